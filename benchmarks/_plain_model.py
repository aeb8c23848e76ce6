"""`lite` trained and calibrated on drawn studies from features without mirror images.

For benchmarks that read without the mirror image, on machines where encoding every frame twice
takes too long. Everything but the stored views is what `enteron train --preset lite` and `enteron
calibrate` do.
"""

from functools import partial
from pathlib import Path
from unittest.mock import patch

from enteron.fitting.calibrate import calibrate_model
from enteron.inference import embed, score
from enteron.inference.views import VIEW_SETS
from enteron.progress import SilentProgress
from enteron.training import features as training_features
from enteron.training.options import recipe
from enteron.training.plan import TrainingRequest, make_plan
from enteron.training.run import run_training


def train_plain(root: Path, features: Path, out: Path, *, epochs: int = 10) -> None:
    """Train and calibrate a model folder on the studies of a root; a third of them calibrates."""
    options = recipe("lite", epochs=epochs, data={"validation": 0.3})
    request = TrainingRequest((root,), out, options, features=features)
    plain = VIEW_SETS["none"]
    with patch.object(training_features, "stored_views", lambda *_: plain):
        run_training(make_plan(request, SilentProgress()), SilentProgress())
    with (
        patch.object(embed, "embed_study", partial(embed.embed_study, views=plain)),
        patch.object(score, "score_study", partial(score.score_study, views="none")),
    ):
        calibrate_model(out, root, features=features)
