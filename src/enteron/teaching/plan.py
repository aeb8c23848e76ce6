"""What is to be trained on what, checked before anything heavy is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from enteron.errors import TrainingError
from enteron.galar.catalogue import Entry
from enteron.galar.splits import Split, load_split
from enteron.teaching import folder
from enteron.teaching.company import Company
from enteron.teaching.data import choose_split, read_part, usable_studies
from enteron.training.options import TrainingOptions
from enteron.training.samples import Samples, StudySamples, require_samples


@dataclass(frozen=True)
class Request:
    """What a person asked for."""

    root: Path
    out: Path
    options: TrainingOptions
    split: Path | None = None  # none: a seeded one
    features: Path | None = None  # where features are stored; none: in the model folder
    resume: bool = False


@dataclass(frozen=True)
class Plan:
    """What will be done."""

    request: Request
    studies: Mapping[str, Entry]
    split: Split
    train: list[StudySamples]
    val: list[StudySamples]

    @property
    def features(self) -> Path:
        """Where features are stored."""
        return self.request.features or self.request.out / folder.FEATURES


def make_plan(request: Request, company: Company) -> Plan:
    """Find the studies, divide them and read their labels; whatever cannot be used is refused."""
    studies = usable_studies(request.root)
    split = _split(request, studies)
    stride = request.options.data.stride
    count = len(split.train) + len(split.val)
    with company.counting("Reading labels", count, "studies") as advance:
        train = read_part(studies, split.train, stride, advance)
        val = read_part(studies, split.val, stride, advance)
    require_samples(Samples(train), "train")
    require_samples(Samples(val), "val")
    return Plan(request, studies, split, train, val)


def _split(request: Request, studies: Mapping[str, Entry]) -> Split:
    """A new split, or the one that the interrupted training has."""
    if not (request.resume and folder.is_begun(request.out)):
        folder.require_new(request.out)
        return choose_split(studies, request.options, request.split)
    stored, split = folder.begun(request.out)
    if request.split is not None and load_split(request.split).hash != split.hash:
        raise TrainingError(
            f"'{request.out.name}' is being trained on another split",
            "leave --split out, or train into another folder",
        )
    # Who reads the pictures changes nothing.
    now = request.options.model_copy(update={"workers": stored.workers})
    for name in TrainingOptions.model_fields:
        if getattr(stored, name) != getattr(now, name):
            raise TrainingError(
                f"the training in '{request.out.name}' was begun with another '{name}'",
                "resume with the same options or with none, or train into another folder",
            )
    return split
