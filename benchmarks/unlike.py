"""Studies unlike those that a model knows: how many of each source are told to be.

Two models: one that knows drawings only, and the model in the box, which knows drawings and
Kvasir-Capsule. Encoded are 64 frames of every study. Left-out videos are compared with what is
known without the videos of their fold (`real_protocol.json`). Needs the frames of ../shared (or
--frames); without them only drawings are compared.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from enteron.appearance import Appearance, compare, fit_appearance
from enteron.datasets.layouts import open_dataset
from enteron.fitting.scored_studies import StudyScorer
from enteron.folders.model import default_model
from enteron.inference.encoder import Features
from enteron.phantom.dataset import PhantomOptions, make_studies
from enteron.reading import studies_under
from enteron.study import Study
from enteron.types import DataKind

ROOT = Path(__file__).parents[1]
PROTOCOL = Path(__file__).with_name("real_protocol.json")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=Path, default=ROOT.parent / "shared/frames")
    parser.add_argument("--studies", type=int, default=40, help="drawn studies that are known")
    parser.add_argument("--length", type=int, default=400, help="frames of a drawn study")
    parser.add_argument("--out", type=Path, help="keep the drawings here")
    options = parser.parse_args()
    scorer = StudyScorer(default_model())
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        drawn = _drawn(folder / "mixed", "mixed", options.studies, options.length, 1701, scorer)
        navicam = _drawn(folder / "navicam", "navicam", 12, options.length, 1702, scorer)
    real: dict[str, Features] = {}
    other: dict[str, Features] = {}
    if options.frames.is_dir():
        real = _dataset(options.frames / "kvasir-capsule", scorer)
        other = _dataset(options.frames / "wcebleedgen", scorer)
    else:
        print("the real frames of ../shared are not here: drawings only")
    encoder = scorer.encoder.backbone_hash
    print("| the model knows | compared | studies | told to be unlike |\n|---|---|---|---|")
    drawings = fit_appearance({"drawings": list(drawn.values())}, encoder)
    rows: list[tuple[str, str, list[bool]]] = [
        ("drawings", "left-out drawings", _left_out_drawn(drawn, encoder)),
        ("drawings", "drawings of an unseen capsule", _told(drawings, navicam.values(), encoder)),
        ("drawings", "Kvasir-Capsule", _told(drawings, real.values(), encoder)),
        ("drawings", "WCEBleedGen", _told(drawings, other.values(), encoder)),
    ]
    if real:
        both = fit_appearance(_known(drawn, real), encoder)
        rows += [
            ("both", "drawings of an unseen capsule", _told(both, navicam.values(), encoder)),
            ("both", "Kvasir-Capsule, left-out videos", _left_out_real(drawn, real, encoder)),
            ("both", "WCEBleedGen (other capsules)", _told(both, other.values(), encoder)),
        ]
    for known, compared, told in rows:
        if told:
            print(f"| {known} | {compared} | {len(told)} | {100 * np.mean(told):.0f} % |")


def _known(
    drawn: Mapping[str, Features], real: Mapping[str, Features]
) -> dict[DataKind, list[Features]]:
    return {"drawings": list(drawn.values()), "real frames": list(real.values())}


def _told(appearance: Appearance, studies: Iterable[Features], encoder: str) -> list[bool]:
    return [compare(appearance, study, encoder).verdict == "unlike" for study in studies]


def _left_out_drawn(drawn: Mapping[str, Features], encoder: str) -> list[bool]:
    told: list[bool] = []
    for fold in range(4):
        left_out = list(drawn)[fold::4]
        rest = [study for key, study in drawn.items() if key not in left_out]
        appearance = fit_appearance({"drawings": rest}, encoder)
        told += _told(appearance, [drawn[key] for key in left_out], encoder)
    return told


def _left_out_real(
    drawn: Mapping[str, Features], real: Mapping[str, Features], encoder: str
) -> list[bool]:
    told: list[bool] = []
    for videos in json.loads(PROTOCOL.read_text())["folds"]:
        rest = {key: study for key, study in real.items() if key not in videos}
        appearance = fit_appearance(_known(drawn, rest), encoder)
        told += _told(appearance, [real[key] for key in videos], encoder)
    return told


def _drawn(
    root: Path, device: str, count: int, length: int, seed: int, scorer: StudyScorer
) -> dict[str, Features]:
    plan = PhantomOptions.model_validate({"frames": length, "seed": seed, "device": device})
    for _ in make_studies(root, count, plan):
        pass
    return {study.path.name: _encode(study.open, scorer) for study in studies_under(root).studies}


def _dataset(root: Path, scorer: StudyScorer) -> dict[str, Features]:
    studies = open_dataset(root).studies
    return {key: _encode(entry.open, scorer) for key, entry in studies.items()}


def _encode(open_study: Callable[[], Study], scorer: StudyScorer) -> Features:
    with open_study() as study:
        return scorer.encode_some(study)


if __name__ == "__main__":
    main()
