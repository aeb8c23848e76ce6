"""The packaged priors, their file, and fitting, on studies small enough to check by hand."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from enteron.cli.priors import app
from enteron.errors import ConfigError, EnteronError, LabelError, SubmissionError, UnitError
from enteron.labels import FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.priors import Priors, Share, load_priors, priors_to_json, save_priors
from enteron.priors.fit import fit_priors
from enteron.types import Annotation, Segment, Unit

ROOT = Path(__file__).parents[1]
PACKAGED = ROOT / "src" / "enteron" / "priors.json"
SOURCE = "events of 60 Galar studies (RARE-VISION training annotation, CC BY 4.0)"


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


def test_packaged_priors_are_complete_finite_small_and_name_their_source():
    priors = load_priors()
    table = json.loads(PACKAGED.read_text())
    assert PACKAGED.stat().st_size < 60_000
    assert all(math.isfinite(x) for x in leaves(table) if not isinstance(x, str))
    blocks = [block for block in table.values() if isinstance(block, dict) and "unit" in block]
    assert len(blocks) == 7
    assert all("60 Galar studies" in block["source"] for block in blocks)
    assert set(priors.presence.labels) == set(LABELS)
    assert priors.strides == {"1": 16, "5": 44}
    for region in REGIONS:
        assert set(priors.given_region.shares[region]) == {*LANDMARKS, *FINDINGS}


def test_presence_prefers_the_published_80_studies():
    priors = load_priors()
    assert priors.presence.labels["blood"].fitted == Share(count=35, n=60)
    assert priors.share("blood") == 51 / 80
    # The dataset's description gives these shares to two decimals.
    assert priors.back_steps.mean_steps == 2.6
    said = {"erosion": 0.56, "angiectasia": 0.51, "hematin": 0.28, "ulcer": 0.20, "pylorus": 0.73}
    for label, share in said.items():
        assert priors.share(label) == pytest.approx(share, abs=0.0051)


def test_priors_agree_with_what_is_known_of_the_data():
    priors = load_priors()
    given = priors.given_region.shares
    assert given["colon"]["active bleeding"] == 0
    assert given["colon"]["lymphangioectasis"] < 0.001
    assert given["esophagus"]["blood"] == 0
    for region in REGIONS:
        duration = priors.regions.durations[region]
        assert duration.published is not None
        # 60 of the same 80 studies: the medians are near, though not equal.
        assert duration.fitted.median == pytest.approx(duration.published.median, rel=0.1)
        assert duration.fitted.log_sd == pytest.approx(duration.published.log_sd, abs=0.15)
    for finding in FINDINGS:
        assert 0.05 < priors.run_lengths(finding).single < 0.35
        assert 2 <= priors.run_lengths(finding).quantile(0.5) <= 10


def test_a_smoothed_share_is_never_certain():
    everywhere = load_priors().presence.labels["small intestine"].used
    assert everywhere.value == 1
    assert everywhere.smoothed == pytest.approx(80.5 / 81)
    assert Share(count=0, n=9).smoothed == pytest.approx(0.05)
    assert Share(count=5, n=10).sampling_error == pytest.approx(math.sqrt(0.25 / 10))


def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path: Path):
    save_priors(load_priors(), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == PACKAGED.read_bytes()
    assert load_priors(tmp_path / "again.json") == load_priors()
    assert [p.name for p in tmp_path.iterdir()] == ["again.json"]


def test_saving_into_no_folder_says_so(tmp_path: Path):
    with pytest.raises(EnteronError, match="existing folder"):
        save_priors(load_priors(), tmp_path / "nowhere" / "priors.json")


def broken(change: str) -> str:
    table = json.loads(PACKAGED.read_text())
    if change == "missing label":
        del table["presence"]["labels"]["polyp"]
    elif change == "unknown key":
        table["landmark"] = {}
    elif change == "not finite":
        table["regions"]["durations"]["colon"]["fitted"]["log_mean"] = math.nan
    elif change == "falling":
        table["findings"]["labels"]["ulcer"]["lengths"]["quantiles"].reverse()
    elif change == "no source":
        table["findings"]["source"] = ""
    elif change == "foreign label":
        table["presence"]["latent"]["polypp"] = {"ulcer": 0.1}
    elif change == "contradiction":
        table["presence"]["latent"] = {
            "polyp": {"blood": 0.9, "ulcer": 0.9},
            "ulcer": {"blood": -0.9},
        }
    elif change == "beyond one":
        table["regions"]["correlation"] = {"colon": {"stomach": 1.5}}
    elif change == "endless":
        table["regions"]["durations"]["colon"]["fitted"]["log_mean"] = 1e4
    return json.dumps(table)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "holds a list"),
        ("{}", "is missing"),
        (broken("missing label"), "'polyp' is missing"),
        (broken("unknown key"), "did you mean 'landmarks'"),
        (broken("not finite"), "contains NaN"),
        (broken("falling"), "must not fall"),
        (broken("no source"), "at least 1 character"),
        (broken("foreign label"), "'polypp' is not one of the 17 labels"),
        (broken("contradiction"), "correlations contradict each other"),
        (broken("beyond one"), "correlations contradict each other or exceed 1"),
        (broken("endless"), "less than or equal to 20"),
    ],
)
def test_a_bad_file_is_refused_with_its_mistake(tmp_path: Path, text: str, said: str):
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_priors(path)


def test_a_missing_file_is_refused_with_the_remedy(tmp_path: Path):
    with pytest.raises(ConfigError, match="enteron priors fit"):
        load_priors(tmp_path / "none.json")


# Two studies, one character per row. The first is stored at every fifth frame.
#
#   row      0         1         2
#            0123456789012345678901234567
#   region   mmeessssssiiisiiiiiiiicccccc     one step back, from i to s, at row 13
#   z-line   ...z........................     ends where the esophagus does (row 4)
#   pylorus  .........p..................     ends where the stomach does (row 10)
#   blood    .......bb.b...........bb....     runs of 2, 1, 2; all within one burst
#   ulcer    .......u....................     on a row of blood
REGION_LETTERS = {"m": "mouth", "e": "esophagus", "s": "stomach", "i": "small intestine"} | {
    "c": "colon"
}
FIRST = {
    "region": "mmeessssssiiisiiiiiiiicccccc",
    "z-line": "...z........................",
    "pylorus": ".........p..................",
    "blood": ".......bb.b...........bb....",
    "ulcer": ".......u....................",
}
SECOND = {"region": "iiii"}


def drawn_by_hand(study: str, lines: dict[str, str], first: int = 0) -> Annotation:
    rows = []
    for i, letter in enumerate(lines["region"]):
        others = [k for k, line in lines.items() if k != "region" and line[i] != "."]
        rows.append((REGION_LETTERS[letter], *others))
    segments: list[Segment] = []
    for i, labels in enumerate(rows):
        if segments and segments[-1].labels == labels:
            segments[-1] = Segment(segments[-1].start, first + i + 1, labels)
        else:
            segments.append(Segment(first + i, first + i + 1, labels))
    return Annotation(study, Unit.INDEX, tuple(segments))


@pytest.fixture(scope="module")
def by_hand() -> Priors:
    annotations = [drawn_by_hand("a", FIRST, first=7), drawn_by_hand("b", SECOND)]
    return fit_priors(annotations, {"a": 5, "b": 1}, "by hand")


def test_durations_count_original_frames(by_hand: Priors):
    durations = by_hand.regions.durations
    assert durations["mouth"].fitted.median == 2 * 5
    assert durations["stomach"].fitted.log_mean == pytest.approx(math.log(7 * 5), abs=1e-4)
    # The small intestine lasts 11 rows of 5 frames in one study, 4 rows of 1 in the other.
    logs = np.log([11 * 5, 4])
    assert durations["small intestine"].fitted.log_mean == pytest.approx(logs.mean(), abs=1e-4)
    assert durations["small intestine"].fitted.log_sd == pytest.approx(logs.std(ddof=1), abs=1e-4)
    assert by_hand.rows == 32
    assert by_hand.presence.labels["colon"].used == Share(count=1, n=2)


def test_a_back_step_has_a_shorter_and_a_longer_side(by_hand: Priors):
    steps = by_hand.back_steps
    assert steps.studies.used == Share(count=1, n=2)
    assert (steps.steps, steps.mean_steps) == (1, 1.0)
    # Three rows of small intestine, then one of stomach: the glance back is the shorter.
    assert steps.shorter.median == 1 * 5
    assert steps.longer.median == 3 * 5
    assert steps.early.count == 0
    assert steps.borders == {"small intestine": Share(count=1, n=1)}


def test_landmarks_lie_where_they_were_drawn(by_hand: Priors):
    z_line, pylorus = (by_hand.landmarks.labels[label] for label in ("z-line", "pylorus"))
    assert z_line.main["ends"] == Share(count=1, n=1)
    assert z_line.needs == ("esophagus", "stomach")
    assert pylorus.main["ends"] == Share(count=1, n=1)
    assert pylorus.lengths.single == 1
    assert by_hand.landmarks.labels["ileocecal valve"].runs.n == 0


def test_findings_are_measured_in_rows(by_hand: Priors):
    blood = by_hand.findings.labels["blood"]
    assert blood.bursts.n == 1
    assert blood.bursts.single == 1
    assert blood.runs.log_mean == pytest.approx(math.log(3), abs=1e-4)
    assert blood.lengths.single == pytest.approx(1 / 3, abs=1e-4)
    assert blood.rows == 5
    # Gaps of 1 and 11 rows.
    assert (blood.gaps_inside.n, blood.gaps_inside.single) == (2, 0.5)
    ulcer = by_hand.cooccurrence
    assert ulcer.pooled["ulcer"]["blood"] == 1
    assert ulcer.pooled["blood"]["ulcer"] == pytest.approx(1 / 5)
    assert ulcer.both["blood"]["ulcer"].studies == 1


def test_given_region_is_a_share_of_frames(by_hand: Priors):
    shares = by_hand.given_region.shares
    assert by_hand.given_region.frames["small intestine"] == 11 * 5 + 4
    assert shares["stomach"]["blood"] == pytest.approx(2 / 7, abs=1e-4)
    assert shares["small intestine"]["blood"] == pytest.approx(5 / 59, abs=1e-4)
    assert shares["colon"]["blood"] == pytest.approx(2 / 6, abs=1e-4)
    assert shares["mouth"]["ulcer"] == 0


def test_fitting_refuses_what_it_cannot_know():
    study = drawn_by_hand("a", SECOND)
    with pytest.raises(EnteronError, match="no studies"):
        fit_priors([], {}, "nothing")
    with pytest.raises(EnteronError, match="stride"):
        fit_priors([study], {"b": 5}, "by hand")
    with pytest.raises(LabelError, match="no events"):
        fit_priors([Annotation("a", Unit.INDEX)], {"a": 5}, "by hand")
    both: Annotation
    both = Annotation("a", Unit.INDEX, (Segment(0, 3, ("stomach", "colon")),))
    with pytest.raises(LabelError, match="stomach and colon at once"):
        fit_priors([both], {"a": 5}, "by hand")
    frames: Any = Annotation("a", Unit.FRAME, study.segments)
    with pytest.raises(UnitError, match="index or frame"):
        fit_priors([frames], {"a": 5}, "by hand")


def truth_file(tmp_path: Path) -> Path:
    events = [
        {"start": 0, "end": 9, "label": ["stomach"]},
        {"start": 10, "end": 99, "label": ["small intestine"]},
    ]
    path = tmp_path / "truth.json"
    path.write_text(json.dumps({"videos": [{"video_id": "40", "events": events}]}))
    return path


@pytest.mark.parametrize(("rule", "frames"), [((), 90), (("--stride-of", "35-41=3"), 270)])
def test_the_command_writes_priors(tmp_path: Path, rule: tuple[str, ...], frames: int):
    out = tmp_path / "mine.json"
    done = CliRunner().invoke(
        app, ["fit", str(truth_file(tmp_path)), "--out", str(out), "--no-published", *rule]
    )
    assert done.exit_code == 0, done.output
    priors = load_priors(out)
    assert priors.regions.durations["small intestine"].fitted.median == frames
    assert priors.presence.labels["blood"].published is None
    assert "truth.json" in priors.source


def test_the_command_refuses_a_bad_stride_and_a_bad_file(tmp_path: Path):
    truth, out = str(truth_file(tmp_path)), str(tmp_path / "mine.json")
    for rule in ("40", "40=", "40=0", "=5"):
        done = CliRunner().invoke(app, ["fit", truth, "--out", out, "--stride-of", rule])
        assert isinstance(done.exception, ConfigError)
        assert "39-60=1" in str(done.exception)
    (tmp_path / "bad.json").write_text('{"videos": 3}')
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "bad.json"), "--out", out])
    assert isinstance(done.exception, SubmissionError)
    assert not (tmp_path / "mine.json").exists()


def test_fitting_again_gives_the_packaged_bytes(real_events: Path, tmp_path: Path):
    out = tmp_path / "again.json"
    done = CliRunner().invoke(app, ["fit", str(real_events), "--out", str(out), "--source", SOURCE])
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == PACKAGED.read_bytes()
    assert priors_to_json(load_priors()) == out.read_text()
