"""For the inference benchmarks: studies, drawn and real, heads fitted to them, events compared."""

import hashlib
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import torch
from av.video.stream import VideoStream
from numpy.typing import NDArray

from enteron.datasets.dataset import DatasetStudy
from enteron.datasets.layouts import open_dataset
from enteron.datasets.splits import source_study
from enteron.decoding import DecodedEvent
from enteron.errors import StudyError
from enteron.folders.model import model_split, read_record
from enteron.inference.encoder import Encoder, Features, ImageBatch
from enteron.inference.store import Embeddings
from enteron.labels import COLUMN, FINDINGS, LANDMARKS
from enteron.model.network import Network
from enteron.model.preprocessing import window_rows
from enteron.phantom.dataset import PhantomOptions, StudyPlan, make_studies
from enteron.phantom.film import RENDERER
from enteron.priors import load_priors
from enteron.study import Study, open_study

TOLERANCE = 2
"""Frames by which an end of an event may move."""


@dataclass(frozen=True)
class SyntheticStudy:
    """A synthetic study on disk with its true labels."""

    folder: Path  # of frames, or a video
    labels: NDArray[np.bool_]  # (rows, 17)
    frames_per_row: float

    def open(self) -> Study:
        return open_study(self.folder)


def synthetic_study(frames: int, *, video: bool = False, seed: int = 3) -> SyntheticStudy:
    """An Olympus study (336 pixels) that stalls as real ones do; it is kept between runs."""
    options = PhantomOptions(frames=frames, seed=seed, device="olympus", video=video)
    kind = "v" if video else "f"
    root = Path(tempfile.gettempdir()) / f"enteron-bench-{RENDERER}-{seed}-{frames}-{kind}"
    for _ in make_studies(root, 1, options):
        pass
    plan = StudyPlan(1, options, load_priors())
    folder = root / plan.folder
    if video:
        folder = folder.with_name(folder.name + ".mp4")
    return SyntheticStudy(folder, plan.table.values, plan.timeline.frames_per_row)


def reordered_video(frames: int) -> Path:
    """The same study as a video whose pictures are not stored in the order in which they are shown.

    That is x264's default; drawn videos are written without it.
    """
    path = Path(tempfile.gettempdir()) / f"enteron-bench-{RENDERER}-3-{frames}-reordered.mp4"
    if path.exists():
        return path
    part = path.with_suffix(".part")
    options = {"crf": "16", "preset": "veryfast", "bf": "3"}  # the quality of drawn videos
    with (
        av.open(str(part), "w", format="mp4") as container,
        synthetic_study(frames).open() as study,
    ):
        stream = container.add_stream("libx264", rate=3, options=options)
        assert isinstance(stream, VideoStream)
        stream.height = stream.width = 336
        stream.pix_fmt = "yuv420p"
        for frame in study:
            assert frame.image is not None
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame.image, format="rgb24")))
        container.mux(stream.encode())
    return part.replace(path)


ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT.parent / "shared" / "frames" / "kvasir-capsule"


def left_out_studies(model: Path, root: Path) -> list[DatasetStudy]:
    """The labelled studies of a root that neither trained nor validated a model."""
    if not root.is_dir():
        raise StudyError("the real frames are not there", "give the folder of another dataset")
    split = model_split(model, read_record(model))
    seen = {*split.train, *split.val}
    name = root.resolve().name
    studies = [
        entry
        for study, entry in open_dataset(root).studies.items()
        if study not in seen and source_study(name, study) not in seen
    ]
    if not studies:
        raise StudyError(
            f"every study of '{root.name}' trained or validated the model",
            "train it with a split that leaves some out",
        )
    return studies


class RememberingEncoder:
    """An encoder that encodes no picture twice: several readings of a study cost one.

    Only for runtimes whose embeddings do not depend on the batch (docs/inference.md).
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._features: dict[bytes, Features] = {}
        self.runtime = encoder.runtime
        self.batch = encoder.batch
        self.backbone_hash = encoder.backbone_hash
        self.width = encoder.width
        self.preprocessing = encoder.preprocessing

    def encode(self, images: ImageBatch) -> Features:
        keys = [hashlib.sha256(np.ascontiguousarray(image).data).digest() for image in images]
        missing = [row for row, key in enumerate(keys) if key not in self._features]
        if missing:
            encoded = self._encoder.encode(np.ascontiguousarray(images[missing]))
            self._features |= {keys[row]: encoded[k] for k, row in enumerate(missing)}
        return np.stack([self._features[key] for key in keys])


def fit_head(
    network: Network, embeddings: Embeddings, labels: NDArray[np.bool_], steps: int = 300
) -> None:
    """Fit everything after the backbone to one study, in place; a quick fit, not a training.

    A trained head has seen augmented images of many studies. This one sees a single study, whose
    embeddings, of random weights, differ only a little. Two things keep it from overfitting to the
    last digits: noise of a third of that spread, drawn for each frame and for all frames together,
    and labels whose short gaps are closed (they flicker while the picture does not change).
    """
    windows = np.asarray(embeddings.features[window_rows(len(embeddings))], np.float32)
    views = torch.from_numpy(windows).unbind(dim=2)  # each (rows, frames, 512)
    targets = torch.from_numpy(close_gaps(labels).astype(np.float32))
    spread = views[0][:, -1].std(dim=0)
    _set_batch_norm(network, views[0])
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(network.head_parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for step in range(steps):
        inputs = views[step % len(views)]
        noise = 0.3 * spread * (torch.randn_like(inputs) + torch.randn(1, 1, inputs.shape[-1]))
        logits = network.classify(inputs + noise).logits
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()


def _set_batch_norm(network: Network, windows: torch.Tensor) -> None:
    """Set BatchNorm to the study's mean and variance, for the fit as for scoring.

    In training mode it would subtract the noise that all frames share, which scoring does not.
    """
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    with torch.no_grad():
        network.classify(windows)
    network.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def close_gaps(labels: NDArray[np.bool_], longest: int = 8) -> NDArray[np.bool_]:
    """Labels (rows, 17) with gaps of up to `longest` rows closed, in landmarks and findings."""
    closed = labels.copy()
    for label in (*LANDMARKS, *FINDINGS):
        column = COLUMN[label]
        positive_rows = np.flatnonzero(labels[:, column])
        for row, next_row in pairwise(positive_rows):
            if next_row - row <= longest + 1:
                closed[row:next_row, column] = True
    return closed


def largest_shift(reference: list[DecodedEvent], events: list[DecodedEvent]) -> int | None:
    """Frames by which ends of events moved at most; None if there are other events."""
    before = sorted((e.label, e.start, e.stop) for e in reference)
    after = sorted((e.label, e.start, e.stop) for e in events)
    if [label for label, _, _ in before] != [label for label, _, _ in after]:
        return None
    shifts = [max(abs(a[1] - b[1]), abs(a[2] - b[2])) for a, b in zip(before, after, strict=True)]
    return max(shifts, default=0)


def count_kept(reference: list[DecodedEvent], events: list[DecodedEvent]) -> int:
    """Number of reference events with a partner of their own: same label, ends within TOLERANCE."""
    unmatched = list(events)
    kept = 0
    for event in reference:
        for partner in unmatched:
            shift = max(abs(event.start - partner.start), abs(event.stop - partner.stop))
            if partner.label == event.label and shift <= TOLERANCE:
                unmatched.remove(partner)
                kept += 1
                break
    return kept
