"""Golden numbers of PSDS from `sed_scores_eval` 0.0.4, which does not import beside our pins.

    python3 -m venv /tmp/psds
    /tmp/psds/bin/pip install 'setuptools<81' 'pandas<3' 'numpy<2.4' sed_scores_eval==0.0.4
    /tmp/psds/bin/python tests/golden/make_psds.py

writes `psds.json` beside this file. The cases are drawn with the standard library, whose generator
gives the same numbers everywhere, so that only results are stored. `tests/metrics/test_psds.py`
imports the cases from here.
"""

import importlib
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

GOLDEN = Path(__file__).with_name("psds.json")
FINDINGS = ["blood", "erosion", "polyp", "ulcer"]
SECONDS_PER_FRAME = 0.5

PARAMETERS = {
    # DCASE's two scenarios, then corners. A dtc of 0 cannot be compared: `sed_scores_eval` calls
    # every detection relevant in files with an event of the class, and false in files without.
    "scenario 1": {"dtc": 0.7, "gtc": 0.7, "cttc": None, "alpha_ct": 0, "alpha_st": 1},
    "scenario 2": {"dtc": 0.1, "gtc": 0.1, "cttc": 0.3, "alpha_ct": 0.5, "alpha_st": 1},
    "halves": {"dtc": 0.5, "gtc": 0.5, "cttc": 0.5, "alpha_ct": 1, "alpha_st": 0},
    "any overlap": {"dtc": 1e-3, "gtc": 1e-3, "cttc": None, "alpha_ct": 0, "alpha_st": 0},
    "exact": {"dtc": 1, "gtc": 1, "cttc": 1, "alpha_ct": 0.3, "alpha_st": 0.5},
    "strict events": {"dtc": 0.9, "gtc": 0.2, "cttc": 0.1, "alpha_ct": 2, "alpha_st": 1},
}
MAX_EFPR = (20.0, 100.0, 2000.0)


@dataclass(frozen=True)
class Study:
    """Frame scores and true events in frames, by finding."""

    scores: dict[str, list[float]]
    truth: dict[str, list[tuple[int, int]]]


def cases() -> dict[str, list[Study]]:
    """Named sets of studies, the same on every machine."""
    return {
        "noise": [_study(random.Random(i), 300 + 40 * i, gain=0.0) for i in range(4)],
        "good": [_study(random.Random(10 + i), 400, gain=2.0) for i in range(5)],
        # One digit: many equal scores within and across studies.
        "ties": [_study(random.Random(20 + i), 300, gain=1.0, digits=1) for i in range(5)],
        # A study without lesions, and one without ulcers. A finding that no study shows cannot be
        # compared: `sed_scores_eval` refuses it.
        "absent": [
            _study(random.Random(30), 250, gain=1.5, absent=("ulcer",)),
            _study(random.Random(31), 250, gain=1.5, absent=tuple(FINDINGS)),
            _study(random.Random(32), 250, gain=1.5),
        ],
        # Events with one confidence each on a background of -inf: nothing ever grows or merges.
        "events": [_events(random.Random(40 + i), 300) for i in range(6)],
        "flat": [_study(random.Random(50), 200, gain=0.0, digits=0)],
    }


def _study(
    rng: random.Random,
    frames: int,
    gain: float,
    digits: int = 6,
    absent: tuple[str, ...] = (),
) -> Study:
    """Slow noise, raised by `gain` over true events and by half of it over the next finding's."""
    truth = {f: [] if f in absent else _intervals(rng, frames) for f in FINDINGS}
    scores: dict[str, list[float]] = {}
    for number, finding in enumerate(FINDINGS):
        shown = [(truth[finding], gain), (truth[FINDINGS[number - 1]], gain / 2)]
        level, column = rng.random() - 0.5, []
        for frame in range(frames):
            level = 0.8 * level + rng.random() - 0.5
            height = sum(g for spans, g in shown if any(a <= frame < b for a, b in spans))
            column.append(round(1 / (1 + math.exp(1 - 2 * level - height)), digits))
        scores[finding] = column
    return Study(scores, truth)


def _events(rng: random.Random, frames: int) -> Study:
    truth = {finding: _intervals(rng, frames) for finding in FINDINGS}
    scores: dict[str, list[float]] = {}
    for finding in FINDINGS:
        column = [-math.inf] * frames
        for start, stop in [*_intervals(rng, frames, gap=60), *truth[finding][::2]]:
            confidence = round(rng.random(), 2)
            for frame in range(start, stop):
                column[frame] = max(column[frame], confidence)
        scores[finding] = column
    return Study(scores, truth)


def _intervals(rng: random.Random, frames: int, gap: int = 180) -> list[tuple[int, int]]:
    """Disjoint intervals that do not touch; the first and last frame are sometimes in one."""
    intervals, frame = [], int(rng.random() * gap)
    while frame < frames:
        stop = min(frames, frame + 1 + int(rng.random() * 15))
        intervals.append((frame, stop))
        frame = stop + 1 + int(rng.random() * gap)
    return intervals


def main() -> None:
    """Compute every case with every set of parameters."""
    create_score_dataframe = importlib.import_module(
        "sed_scores_eval.base_modules.scores"
    ).create_score_dataframe
    psds = importlib.import_module("sed_scores_eval").intersection_based.psds
    numpy = importlib.import_module("numpy")
    golden: dict[str, dict[str, dict[str, object]]] = {}
    for name, studies in cases().items():
        scores, truth, durations = {}, {}, {}
        for number, study in enumerate(studies):
            frames = len(study.scores[FINDINGS[0]])
            scores[str(number)] = create_score_dataframe(
                numpy.array([study.scores[f] for f in FINDINGS]).T,
                numpy.arange(frames + 1) * SECONDS_PER_FRAME,
                FINDINGS,
            )
            truth[str(number)] = [
                (start * SECONDS_PER_FRAME, stop * SECONDS_PER_FRAME, finding)
                for finding in FINDINGS
                for start, stop in study.truth[finding]
            ]
            durations[str(number)] = frames * SECONDS_PER_FRAME
        golden[name] = {}
        for label, p in PARAMETERS.items():
            for max_efpr in MAX_EFPR:
                value, findings, (tpr, efpr), _ = psds(
                    scores,
                    truth,
                    durations,
                    dtc_threshold=p["dtc"],
                    gtc_threshold=p["gtc"],
                    cttc_threshold=p["cttc"],
                    alpha_ct=p["alpha_ct"],
                    alpha_st=p["alpha_st"],
                    max_efpr=max_efpr,
                )
                golden[name][f"{label}, {max_efpr:g}"] = {
                    "psds": round(float(value), 12),
                    "findings": {f: round(float(v), 12) for f, v in findings.items()},
                    "roc_points": len(tpr),
                    "last_tpr": round(float(tpr[-1]), 12),
                    "last_efpr": round(float(efpr[-2]), 9),  # the very last is max_efpr itself
                }
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
