"""A ViT that two cores can train from scratch: the prior and the updated system end to end.

No pretrained ViT is at hand, and differential attention needs a ViT, so both systems start from
random weights on small pictures. What their recipes say about the network, the losses, the
sampler, mixup and the augmentation is kept; sizes, rates, averaging and length are those of a small
training.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from benchmarks._training_data import TEST, TRAIN, training_split
from enteron.datasets.galar import find_studies
from enteron.datasets.submission import read_submission
from enteron.inference.score import score_study
from enteron.inference.store import UNREADABLE, Embeddings, StoreKey, StoreRecord
from enteron.inference.views import VIEW_SETS
from enteron.model import torchvision_operators
from enteron.model.backbones import TINY_TRUNK, Backbone, make_differential, seeded_projection
from enteron.model.network import Network
from enteron.model.options import BackboneSpec
from enteron.model.preprocessing import Preprocessing, flipped
from enteron.training.augmentation import Augmentation
from enteron.training.loop import TrainingLoop
from enteron.training.options import TrainingOptions, recipe
from enteron.training.pictures import ClipOptions, ClipSource, StudyPictures
from enteron.training.sampling import Samples, study_samples
from enteron.types import Annotation, Scores

SIZE, PATCH = 48, 12  # pixels
WIDTH, DEPTH, HEADS = 96, 4, 4

System = Literal["prior", "updated"]
RECIPES: dict[System, Literal["prior", "paper"]] = {"prior": "prior", "updated": "paper"}


@dataclass(frozen=True)
class SmallTraining:
    """One training of one system."""

    folder: Path  # with the drawn studies
    system: System
    seed: int
    draws: int  # clips per epoch
    epochs: int


def options_of(task: SmallTraining) -> TrainingOptions:
    """The system's recipe with what a small training from scratch needs, the same for both."""
    changes: dict[str, Any] = {
        "model": {"backbone": "vit-tiny"},
        "epochs": task.epochs,
        "batch": 64,
        "sampler": {"samples": task.draws},
        "data": {"stride": 1},
        "optimiser": {"backbone_rate": 1e-3, "head_rate": 1e-3},
        "ema": 0.99,  # of some hundred steps, as in `lite`
        "ema_rise": True,
        "workers": 0,
        "seed": task.seed,
    }
    return recipe(RECIPES[task.system], **changes)


def small_network(options: TrainingOptions) -> Network:
    """A network with random weights on pictures of 48 pixels."""
    torchvision_operators.declare()
    import timm

    torch.manual_seed(options.seed)
    trunk = timm.create_model(
        TINY_TRUNK, pretrained=False, num_classes=0, img_size=SIZE, patch_size=PATCH,
        embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS,
    )  # fmt: skip
    differential = options.model.differential
    if differential:
        make_differential(trunk)
    spec = BackboneSpec(
        name="vit-tiny",
        trunk=TINY_TRUNK,
        differential=differential,
        preprocessing=Preprocessing(size=SIZE),
    )
    return Network(Backbone(trunk, seeded_projection(WIDTH), spec), options.model)


def train_and_score(task: SmallTraining) -> list[Scores]:
    """Train a system, and score every test study with its mirror image."""
    torch.set_num_threads(1)
    options = options_of(task)
    studies, split = find_studies(task.folder / TRAIN), training_split(task.folder)

    def source(members: tuple[str, ...], augmentation: Augmentation | None) -> ClipSource:
        samples = Samples([study_samples(studies[study], 1) for study in members])
        clip_options = ClipOptions(options.model.frames, 1, Preprocessing(size=SIZE), augmentation)
        opened = [studies[study].open() for study in members]
        return ClipSource(samples, opened, clip_options, 0, task.folder / "squares")

    train = source(split.train, Augmentation(options.augmentation, SIZE))
    network = (
        TrainingLoop(small_network(options), train, source(split.val, None), options).run().network
    ).eval()
    return [score(task, network, study) for study in find_studies(task.folder / TEST)]


def score(task: SmallTraining, network: Network, name: str) -> Scores:
    """The scores of a test study, whose small pictures are kept and whose embeddings are not."""
    study = find_studies(task.folder / TEST)[name].open()
    preprocessing = network.backbone.spec.preprocessing
    pictures = StudyPictures(study, preprocessing, task.folder / "squares", SIZE)
    images = [pictures.image(row) for row in range(len(study))]
    batch = preprocessing.normalise(torch.stack([i for i in images if i is not None]))
    with torch.inference_mode():
        features = [
            torch.cat([network.backbone(part) for part in view.split(64)])
            for view in (batch, flipped(batch))
        ]
    views = tuple(view.name for view in VIEW_SETS["flip"])
    key = StoreKey(
        backbone="", preprocessing="", runtime="torch", views=views, precision="float32",
        redundancy=None, study="", samples="",
    )  # fmt: skip
    embeddings = Embeddings(
        StoreRecord(key=key, study=study.id, chunk=64, checksums=()),
        study.numbers,
        np.array([UNREADABLE if i is None else row for row, i in enumerate(images)], np.int32),
        torch.stack(features, dim=1).numpy(),
    )
    return score_study(network, embeddings, frames_per_row=study.frames_per_row)


def truths(folder: Path) -> list[Annotation]:
    """The annotation of the test studies, in the order in which they are scored."""
    by_study = {a.study: a for a in read_submission(folder / TEST / "truth.json")}
    return [by_study[study] for study in find_studies(folder / TEST)]
