"""The recipes: the paper's numbers, one copy, found from the package."""

import tomllib
from importlib.resources import files

import pytest

from enteron.errors import ConfigError
from enteron.training.options import TrainingOptions, recipe
from tests.conftest import ROOT


def test_paper_is_the_papers():
    options = recipe("paper")
    assert options == TrainingOptions()
    assert options.model_dump(exclude={"model", "data", "sampler", "augmentation"}) == {
        "regime": "full",
        "views": 0,
        "mixup": 0.3,
        "losses": {
            "classification": 1.0,
            "contrastive": 0.4,
            "orthogonality": 0.01,
            "angular": 0.05,
            "gamma_positive": 1.0,
            "gamma_negative": 4.0,
            "margin": 0.05,
            "largest_weight": 50.0,
            "weighted_classification": False,
            "smoothing": 0.05,
            "soft_targets": "joint",
        },
        "optimiser": {
            "backbone_rate": 9e-5,
            "head_rate": 3e-4,
            "decay": 5e-4,
            "betas": (0.9, 0.999),
            "clip": 1.0,
        },
        "schedule": {"rise": 0.15, "start": 10.0, "end": 100.0},
        "ema": 0.999,
        "ema_rise": False,
        "epochs": 5,
        "patience": None,
        "batch": 128,
        "accumulate": 1,
        "precision": "fp16",
        "workers": 8,
        "checkpoint_steps": 500,
        "seed": 42,
    }
    assert (options.model.backbone, options.model.dropout) == ("biomedclip", 0.4)
    assert (options.data.stride, options.sampler.balanced) == (5, True)


def test_paper_toml_says_every_number_itself():
    table = tomllib.loads((ROOT / "recipes" / "paper.toml").read_text())
    silent = {"views", "patience", "patches"}  # which the paper does not have
    assert set(TrainingOptions.model_fields) - set(table) == silent
    assert set(table["augmentation"]) == set(TrainingOptions().augmentation.model_dump())
    assert set(table["losses"]) == set(TrainingOptions().losses.model_dump())


def test_lite_trains_a_head():
    options = recipe("lite")
    assert (options.regime, options.model.backbone) == ("frozen", "lite")


def test_prior_is_the_earlier_submission():
    """Decision 32; everything else is `paper`."""
    options, paper = recipe("prior"), recipe("paper")
    model, losses = options.model, options.losses
    assert (model.differential, model.head, model.text) == (True, "linear", "fixed")
    assert (model.frames, model.local_differencing, model.prototypes) == (1, False, False)
    assert (losses.largest_weight, losses.weighted_classification) == (100.0, True)
    assert options.model_copy(update={"model": paper.model, "losses": paper.losses}) == paper


def test_there_is_one_copy():
    for name in ("paper", "lite", "prior", "default"):
        packaged = files("enteron") / "recipes" / f"{name}.toml"
        assert (ROOT / "recipes" / f"{name}.toml").samefile(str(packaged))


def test_changes_go_on_top(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("epochs = 9\n[optimiser]\nhead_rate = 1e-2\n")
    options = recipe("paper", path, seed=3)
    assert (options.epochs, options.seed, options.batch) == (9, 3, 128)
    assert (options.optimiser.head_rate, options.optimiser.backbone_rate) == (1e-2, 9e-5)
    with pytest.raises(ConfigError, match=r"there is no|cannot be read"):
        recipe("paper", tmp_path / "none.toml")
