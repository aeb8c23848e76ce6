"""Golden numbers of MAPIE 1.6: conformal risk control of recall, and Venn-Abers.

    python3 -m venv /tmp/mapie && /tmp/mapie/bin/pip install MAPIE==1.6.0
    /tmp/mapie/bin/python tests/golden/make_mapie.py

writes `mapie.json` beside this file. MAPIE's recall controller takes a matrix of fixed size: a
study is a row, a lesion a column, the confidence at which it is found the entry. Studies with
fewer lesions are padded with columns that are not labelled, which recall ignores. It finds a lesion
when its confidence is *above* the parameter, and wants a bound *below* alpha; ours are "at or
above" and "at most". So parameters and confidences are chosen such that they are never equal.
"""

import importlib
import json
import random
import warnings
from pathlib import Path

GOLDEN = Path(__file__).with_name("mapie.json")
PARAMETERS = [(step + 0.5) / 200 for step in range(200)]  # confidences are multiples of 0.005
ALPHAS = [0.05, 0.1, 0.15, 0.2, 0.3, 0.5]


def studies(count: int, seed: int) -> list[list[float]]:
    """For each study the confidences at which its 1 to 12 lesions are found; 0: never."""
    rng = random.Random(seed)
    drawn = []
    for _ in range(count):
        skill = rng.random()
        drawn.append(
            [
                0.0 if rng.random() < 0.02 else int(200 * rng.random() ** (0.3 + skill)) / 200
                for _ in range(1 + int(12 * rng.random()))
            ]
        )
    return drawn


RISK_CASES = {"12 studies": (12, 1), "40 studies": (40, 2), "150 studies": (150, 3)}


def events(count: int, seed: int, digits: int) -> tuple[list[float], list[int]]:
    """Confidences and whether each event is true; few digits make ties."""
    rng = random.Random(seed)
    confidences = [round(rng.random(), digits) for _ in range(count)]
    return confidences, [int(rng.random() < c**2) for c in confidences]


VENN_ABERS_CASES = {"ties": (60, 4, 1), "distinct": (200, 5, 9), "few": (7, 6, 2)}
TEST_CONFIDENCES = [step / 40 + 0.0001 for step in range(40)]


def main() -> None:
    """Compute every case."""
    numpy = importlib.import_module("numpy")
    controller_class = importlib.import_module(
        "mapie.risk_control"
    ).MultiLabelClassificationController
    venn_abers = importlib.import_module("mapie._venn_abers")
    warnings.simplefilter("ignore")  # where no parameter will do, MAPIE warns: stored as null
    golden: dict[str, dict[str, object]] = {"risk": {}, "venn_abers": {}}
    for name, (count, seed) in RISK_CASES.items():
        drawn = studies(count, seed)
        widest = max(len(study) for study in drawn)
        x = numpy.array([study + [0.0] * (widest - len(study)) for study in drawn])
        y = numpy.array([[1] * len(study) + [0] * (widest - len(study)) for study in drawn])
        controller = controller_class(
            predict_function=lambda table: table,
            risk="recall",
            method="crc",
            target_level=[1 - alpha for alpha in ALPHAS],
            predict_params=numpy.array(PARAMETERS),
        ).calibrate(x, y)
        lowest = controller.r_hat_plus.min()
        chosen = [
            float(parameter) if lowest < alpha else None
            for parameter, alpha in zip(controller.best_predict_param, ALPHAS, strict=True)
        ]
        golden["risk"][name] = {
            "thresholds": chosen,
            "bounds": [round(float(b), 12) for b in controller.r_hat_plus[::20]],
        }
    for name, case in VENN_ABERS_CASES.items():
        confidences, true = events(*case)
        table = numpy.array([[1 - c, c] for c in confidences])
        tests = numpy.array([[1 - c, c] for c in TEST_CONFIDENCES])
        with numpy.errstate(all="ignore"):
            p0, p1, values = venn_abers.calc_p0p1(table, numpy.array(true))
        merged, pairs = venn_abers.calc_probs(p0, p1, values, tests)
        golden["venn_abers"][name] = {
            "p0": [round(float(p), 12) for p in pairs[:, 0]],
            "p1": [round(float(p), 12) for p in pairs[:, 1]],
            "p": [round(float(p), 12) for p in merged[:, 1]],
        }
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
