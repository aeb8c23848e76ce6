"""`suspicious.json`: written, read again, and what it says about a promised recall."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from enteron.calibration import Calibration
from enteron.confidence import Guarantee, Signatures, study_signature
from enteron.decoding import decode
from enteron.decoding.suspicious import SuspicionOptions
from enteron.errors import EnteronError
from enteron.folders.suspicious import (
    SUSPICIOUS,
    read_suspicious,
    suspicious_frames,
    write_suspicious,
)
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores

PRIORS = load_priors()


def study(seed: int = 0, rows: int = 800, times: bool = True) -> Scores:
    rng = np.random.default_rng(seed)
    values = (rng.random((rows, len(LABELS))) ** 6 / 2).astype(np.float32)
    values[:, COLUMN["colon"]] = 0.99
    values[200:210, COLUMN["polyp"]] = 0.95
    seconds = np.arange(rows) / 2 if times else None
    return Scores("7", FrameAxis(5 * np.arange(rows)), values, seconds)


class Store:
    """Embeddings as a store gives them, for as much of it as is used."""

    def __init__(self, rows: int, shift: float, seed: int, encoder: str = "abc"):
        rng = np.random.default_rng(seed)
        self.key = SimpleNamespace(backbone=encoder)
        self.frames = 5 * np.arange(rows)
        self.readable = np.arange(rows)
        self.features = rng.normal(size=(rows, 2, 64)) + 2 + shift * np.sin(np.arange(64))

    @property
    def appearance(self) -> np.ndarray:
        return self.features[:, 1]

    def __len__(self):
        return len(self.frames)


def guarantee(**changes) -> Guarantee:
    points = tuple(
        tuple(study_signature(Store(300, 0.0, seed).features[:, 1]).tolist()) for seed in range(25)
    )
    fields = {
        "alpha": 0.1,
        "threshold": 0.3,
        "studies": 20,
        "bound": 0.1,
        "missed": 0.06,
        "devices": {"olympus": 25},
        "signatures": Signatures(encoder="abc", points=points),
    }
    return Guarantee(**{**fields, **changes})


def test_the_list_is_written_and_read_again(tmp_path):
    scores = study()
    events = decode(scores)
    written = write_suspicious(tmp_path, scores, events, PRIORS, None)
    assert read_suspicious(tmp_path) == written
    first = written.frames[0]
    assert (first.label, first.region) == ("polyp", "colon")
    assert 1000 <= first.frame < 1050
    assert first.time == first.frame / 10
    assert not written.calibrated
    assert written.folded_by == "time"
    assert len(written.frames) == 300
    assert [frame.suspicion for frame in written.frames] == sorted(
        (frame.suspicion for frame in written.frames), reverse=True
    )
    assert suspicious_frames(tmp_path)[:1] == (first.frame,)
    text = (tmp_path / SUSPICIOUS).read_text()
    assert len(text.splitlines()) == 302  # one picture a line
    assert json.loads(text)["study"] == "7"


def test_a_folder_without_a_list(tmp_path):
    assert read_suspicious(tmp_path) is None
    assert suspicious_frames(tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "suspicious.json is not JSON: it ends in the middle"),
        ('{"study": "7"}', "damaged at 'unit'"),
        (
            '{"study":"7","unit":"frame","calibrated":true,"folded_by":"time",'
            '"frames":[{"frame":-1,"label":"polyp","confidence":1,"suspicion":1}]}',
            r"damaged at 'frames\.0\.frame'",
        ),
        (
            '{"study":"7","unit":"frame","calibrated":true,"folded_by":"time",'
            '"frames":[{"frame":1,"label":"cat","confidence":1,"suspicion":1}]}',
            r"damaged at 'frames\.0\.label'",
        ),
    ],
)
def test_a_damaged_list(tmp_path, text, said):
    (tmp_path / SUSPICIOUS).write_text(text)
    with pytest.raises(EnteronError, match=said):
        read_suspicious(tmp_path)


def test_a_list_of_another_study(tmp_path):
    write_suspicious(tmp_path, study(), [], PRIORS, None)
    with pytest.raises(EnteronError, match="is of study 7, the reading of study 8"):
        read_suspicious(tmp_path, "8")


def promise_of(tmp_path, scores, *, store=None, device=None, **changes):
    calibration = Calibration(guarantee=guarantee(**changes))
    content = write_suspicious(
        tmp_path, scores, decode(scores), PRIORS, calibration, embeddings=store, device=device
    )
    assert content.promise is not None
    return content, content.promise


def test_a_promise_holds_for_studies_like_the_fitted_ones(tmp_path):
    scores = study()
    content, promise = promise_of(tmp_path, scores, store=Store(800, 0.0, 99))
    assert promise.verdict == "holds"
    assert promise.p_value is not None
    assert promise.p_value > 0.05
    assert promise.recall == pytest.approx(0.9)
    #  As many pictures as have at least the fitted suspicion, and the list holds them all.
    assert promise.pictures == sum(f.suspicion >= 0.3 for f in content.frames)
    assert content.folded_by == "time"  # the promise was fitted without folding
    _, long = promise_of(tmp_path, scores, threshold=1e-30)
    assert long.pictures > 300
    assert len(suspicious_frames(tmp_path)) == long.pictures


@pytest.mark.parametrize(
    ("arguments", "verdict", "reason"),
    [
        ({"store": Store(800, 1.0, 5)}, "does not hold", "look unlike those of the 25 fitted"),
        ({}, "unknown", "no embeddings are stored"),
        ({"store": Store(800, 0.0, 99), "signatures": None}, "unknown", "on scores alone"),
        ({"store": Store(800, 0.0, 99, "other")}, "unknown", "another image encoder"),
        (
            {"store": Store(800, 0.0, 99), "device": "navicam"},
            "does not hold",
            r"other capsules \(olympus\), not navicam",
        ),
        ({"store": Store(800, 0.0, 99), "device": "Olympus"}, "holds", "look like those"),
    ],
)
def test_what_the_file_says_about_a_promise(tmp_path, arguments, verdict, reason):
    _, promise = promise_of(tmp_path, study(), **arguments)
    assert promise.verdict == verdict
    assert re.search(reason, promise.reason)


def test_a_weighted_list_keeps_no_promise(tmp_path):
    weighted = SuspicionOptions(weights={"ulcer": 3.0})
    content = write_suspicious(
        tmp_path, study(), [], PRIORS, Calibration(guarantee=guarantee()), options=weighted
    )
    assert content.weights == {"ulcer": 3.0}
    assert content.promise is not None
    assert content.promise.verdict == "does not hold"
    assert "fitted without weights" in content.promise.reason


def test_embeddings_of_other_frames_are_refused(tmp_path):
    with pytest.raises(EnteronError, match="have other frames"):
        write_suspicious(
            tmp_path,
            study(),
            [],
            PRIORS,
            None,
            embeddings=Store(799, 0.0, 0),  # type: ignore[arg-type]
        )


def test_every_label_of_the_list_is_a_finding(tmp_path):
    content = write_suspicious(tmp_path, study(times=False), [], PRIORS, None)
    assert {frame.label for frame in content.frames} <= set(FINDINGS)
    assert {frame.time for frame in content.frames} == {None}
