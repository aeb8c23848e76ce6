"""Readings of several models combined: against numpy, and everything that cannot be combined."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

import enteron
from enteron.calibration import Calibration, FittedFor, FrameCalibration
from enteron.combination import CombineOptions, combination_hash, combine, mean_scores
from enteron.datasets.submission import write_submission
from enteron.errors import EnteronError
from enteron.folders.model import read_record, save_calibration, save_model
from enteron.folders.reading import load_reading
from enteron.folders.scores import read_score_metadata, write_scores
from enteron.labels import LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.priors import load_priors, priors_hash
from enteron.reading import Reader, ReadOptions
from enteron.report import write_report
from enteron.types import Annotation, Segment, Unit
from tests.making import write_frames

FRAMES = range(10, 58, 2)
THRESHOLDS = ({"blood": 0.2}, {"blood": 0.6, "polyp": None})  # of the two calibrated models


def calibration_of(model, number):
    """A calibration that is bound to the model, with its own temperature, bias and thresholds."""
    record = read_record(model)
    temperature, shift = ((2.0, 0.5), (0.5, -1.0))[number]
    frames = FrameCalibration(
        temperature=temperature,
        bias={label: shift + 0.1 * column for column, label in enumerate(LABELS)},
        thresholds={label: THRESHOLDS[number].get(label, 0.5) for label in LABELS},
    )
    return Calibration(
        fitted_for=FittedFor(
            origin="model",
            weights=record.weights_hash,
            settings=record.settings_hash,
            split=record.split_hash,
            priors=priors_hash(load_priors()),
        ),
        studies=3,
        rates={"stomach": (0.2, 0.4)[number]},
        likelihood=frames,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two models, raw and calibrated, and their readings of two studies."""
    home = tmp_path_factory.mktemp("combination")
    for study in ("3", "12"):
        write_frames(home / "studies" / study, FRAMES)
    for number, name in enumerate("ab"):
        network = start_network(ModelOptions(backbone="vit-tiny"), seed=number)
        save_model(home / f"raw-model-{name}", network)
        shutil.copytree(home / f"raw-model-{name}", home / f"model-{name}")
        calibration = calibration_of(home / f"model-{name}", number)
        save_calibration(calibration, home / f"model-{name}" / "calibration.json")
        for kind in ("", "raw-"):
            reader = Reader(
                home / f"{kind}model-{name}", ReadOptions(views="none", mask_text=False)
            )
            for study in ("3", "12"):
                reader.read(home / "studies" / study, home / f"{kind}{name}" / study)
    return home


def pair(home, kind="", study="3"):
    return [home / f"{kind}{name}" / study for name in "ab"]


def run_of(folder):
    return json.loads((folder / "run.json").read_text())


# ---- the mean


@given(
    seed=st.integers(0, 1000),
    count=st.integers(2, 5),
    mean=st.sampled_from(["probability", "log-odds"]),
)
def test_the_mean_is_that_of_numpy(seed, count, mean):
    rng = np.random.default_rng(seed)
    values = [rng.uniform(0, 1, (7, 17)).astype(np.float32) for _ in range(count)]
    weights = rng.uniform(0.1, 5, count)
    stacked = np.stack(values).astype(np.float64)
    expected = (
        np.average(stacked, axis=0, weights=weights)
        if mean == "probability"
        else expit(np.average(logit(stacked), axis=0, weights=weights))
    )
    np.testing.assert_allclose(mean_scores(values, weights.tolist(), mean), expected, atol=1e-6)


def test_certain_scores_stay_finite_in_the_mean_of_log_odds():
    zeros, ones = np.zeros((1, 17)), np.ones((1, 17))
    np.testing.assert_allclose(mean_scores([zeros, ones], [1, 1], "log-odds"), 0.5)
    assert np.isfinite(mean_scores([ones, ones], [1, 1], "log-odds")).all()


@pytest.mark.parametrize("mean", ["probability", "log-odds"])
def test_calibrated_scores_are_averaged_where_all_readings_are_calibrated(home, tmp_path, mean):
    (reading,) = combine(
        pair(home), tmp_path / "out", options=CombineOptions(mean=mean, weights=(3, 1))
    )
    members = []
    for number, folder in enumerate(pair(home)):
        scale = calibration_of(home / f"model-{'ab'[number]}", number).likelihood
        bias = np.array([scale.bias[label] for label in LABELS])
        raw = logit(np.clip(np.float64(load_reading(folder).scores.values), 1e-6, 1 - 1e-6))
        members.append(expit(raw / scale.temperature + bias))
    expected = (
        0.75 * members[0] + 0.25 * members[1]
        if mean == "probability"
        else expit(0.75 * logit(members[0]) + 0.25 * logit(members[1]))
    )
    np.testing.assert_allclose(reading.scores.values, expected, atol=2e-6)
    assert reading.run.is_calibrated
    scale = reading.run.frame_calibration
    assert scale is not None
    assert (scale.temperature, set(scale.bias.values())) == (1.0, {0.0})
    blood = 0.75 * 0.2 + 0.25 * 0.6
    if mean == "log-odds":
        blood = expit(0.75 * logit(0.2) + 0.25 * logit(0.6))
    assert scale.thresholds["blood"] == pytest.approx(blood, abs=1e-6)
    assert scale.thresholds["polyp"] == pytest.approx(0.5)  # the other model never reports it
    rate = 0.25 if mean == "probability" else expit(0.75 * logit(0.2) + 0.25 * logit(0.4))
    assert reading.run.base_rates == {"stomach": pytest.approx(rate, abs=1e-6)}


def test_raw_scores_are_averaged_where_no_reading_is_calibrated(home, tmp_path):
    (reading,) = combine(pair(home, "raw-"), tmp_path / "out")
    raw = [load_reading(folder).scores.values for folder in pair(home, "raw-")]
    np.testing.assert_allclose(reading.scores.values, np.mean(raw, axis=0), atol=1e-6)
    assert reading.run.is_calibrated is False
    asked = CombineOptions(scores="raw")
    (same,) = combine(pair(home), tmp_path / "asked", options=asked)
    np.testing.assert_array_equal(same.scores.values, reading.scores.values)


def test_a_frame_that_one_model_did_not_see_is_not_shown(home, tmp_path):
    options = ReadOptions(views="none", mask_text=False, redundancy=255.0)
    thinned = Reader(home / "raw-model-a", options).read(home / "studies" / "3", tmp_path / "a")
    assert thinned.scores.encoded is not None
    assert not thinned.scores.encoded.all()
    (reading,) = combine([home / "raw-b" / "3", tmp_path / "a"], tmp_path / "out")
    np.testing.assert_array_equal(reading.scores.encoded, thinned.scores.encoded)
    assert load_reading(home / "raw-b" / "3").scores.encoded is None


# ---- the folder


def test_a_combination_is_a_whole_reading_that_names_its_members(home, tmp_path):
    (reading,) = combine(pair(home), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "scores.parquet", "events.json", "events.csv", "suspicious.json", "submission.json",
        "label-studio.json", "label-studio.xml", "pictures", "report.html", "run.json",
    }  # fmt: skip
    loaded = enteron.load(tmp_path / "out")  # which checks every file against run.json
    assert [(e.label, e.start, e.stop) for e in loaded.events] == [
        (e.label, e.start, e.stop) for e in reading.events
    ]
    run = run_of(tmp_path / "out")
    assert run["state"] == "finished"
    members = run["combination"]["members"]
    for member, folder in zip(members, pair(home), strict=True):
        identity = run_of(folder)["identity"]
        assert member["model"] == identity["model"]
        assert member["calibration"] == identity["calibration"]
        assert member["scores"] == identity["scores"]
        assert member["weight"] == 0.5
    assert run["identity"]["content"] == run_of(pair(home)[0])["identity"]["content"]
    assert run["identity"]["model"] not in {member["model"] for member in members}
    assert run["rows"] == len(FRAMES)
    stated = read_score_metadata(tmp_path / "out" / "scores.parquet")
    assert (stated.study, stated.calibrated) == ("3", True)
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or str(home).encode() not in path.read_bytes()


def test_the_page_says_what_was_combined_and_shows_the_members_pictures(home, tmp_path):
    (reading,) = combine(pair(home), tmp_path / "out")
    page = reading.report.read_text()
    assert "mean of the calibrated probabilities of 2 models" in page
    assert reading.run.combination is not None
    for member in reading.run.combination.members:
        assert member.model is not None
        assert member.model[:16] in page
    saved = json.loads((tmp_path / "out" / "pictures" / "index.json").read_text())
    assert saved["frames"]
    theirs = {
        frame
        for folder in pair(home)
        for frame in json.loads((folder / "pictures" / "index.json").read_text())["frames"]
    }
    assert set(saved["frames"]) <= theirs
    assert "data:image/jpeg" not in page  # text that a recorder wrote is removed unless asked for
    page = write_report(tmp_path / "out", device_text=True).read_text()
    assert page.count("data:image/jpeg") >= len(saved["frames"])


def test_report_export_decode_and_evaluate_take_a_combination(home, tmp_path, command):
    combine(pair(home), tmp_path / "out")
    truth = [Annotation("3", Unit.FRAME, (Segment(10, 58, ("stomach",)),))]
    write_submission(tmp_path / "truth.json", truth)
    study = home / "studies" / "3"
    for arguments in (
        ("report", "out"),
        ("report", "out", "--study", study, "--truth", "truth.json"),
        ("export", "out"),
        ("evaluate", "truth.json", "out"),
        ("validate", "out"),
    ):
        code, _, error = command(*arguments)
        assert code == 0, error
    code, _, error = command("decode", "out/scores.parquet", "--out", "out", "--preset", "paper")
    assert code == 0
    assert "holds means of calibrated scores, for which nothing was fitted" in error
    assert run_of(tmp_path / "out")["combination"] is not None


def test_a_second_run_replaces_an_earlier_combination_and_nothing_else(home, tmp_path):
    combine(pair(home), tmp_path / "out")
    first = (tmp_path / "out" / "events.json").read_bytes()
    run = run_of(tmp_path / "out")
    (tmp_path / "out" / "run.json").write_text(json.dumps({**run, "state": "decoded"}))  # killed
    combine(pair(home), tmp_path / "out")
    assert (tmp_path / "out" / "events.json").read_bytes() == first
    combine(pair(home), tmp_path / "out", options=CombineOptions(mean="log-odds"))
    assert run_of(tmp_path / "out")["combination"]["mean"] == "log-odds"
    assert enteron.load(tmp_path / "out").study == "3"
    shutil.copytree(pair(home)[0], tmp_path / "reading")
    with pytest.raises(EnteronError, match="holds a reading of study 3 that is no combination"):
        combine(pair(home), tmp_path / "reading")
    with pytest.raises(EnteronError, match="'out' holds the reading of study 3, not of 12"):
        combine(pair(home, study="12"), tmp_path / "out")


def test_the_order_of_the_members_changes_nothing_but_the_weights_do(home):
    members = [load_reading(folder) for folder in pair(home)]
    given = combination_hash(members, (2, 1), "probability", "calibrated")
    turned = combination_hash(members[::-1], (1, 2), "probability", "calibrated")
    assert given == turned == combination_hash(members, (4, 2), "probability", "calibrated")
    others = {
        combination_hash(members, (1, 2), "probability", "calibrated"),
        combination_hash(members, (2, 1), "log-odds", "calibrated"),
        combination_hash(members, (2, 1), "probability", "raw"),
    }
    assert len(others) == 3
    assert given not in others


def test_a_combination_can_be_a_member(home, tmp_path):
    (one,) = combine(pair(home), tmp_path / "one")
    (two,) = combine([one.folder, pair(home)[0]], tmp_path / "two")
    assert two.run.combination is not None
    assert one.run.identity is not None
    assert two.run.combination.members[0].model == one.run.identity.model


# ---- several studies


def test_roots_are_combined_study_by_study(home, tmp_path, command):
    code, said, _ = command("combine", home / "a", home / "b", "--out", "all", "--weights", "2,1")
    assert code == 0
    assert "Averaged: calibrated scores of 2 readings. Each was calibrated" in said
    assert "submission.json holds all 2 studies" in said
    together = json.loads((tmp_path / "all" / "submission.json").read_text())
    assert [video["video_id"] for video in together["videos"]] == ["3", "12"]
    (single,) = combine(
        pair(home, study="12"), tmp_path / "12", options=CombineOptions(weights=(2, 1))
    )
    loaded = [enteron.load(folder) for folder in (tmp_path / "all" / "12", single.folder)]
    assert loaded[0].events == loaded[1].events
    lines = (tmp_path / "all" / "studies.csv").read_text().splitlines()
    assert lines[0].startswith("study,frames,unreadable,events,minutes,mouth,esophagus")
    assert [line.split(",")[:2] for line in lines[1:]] == [["3", "24"], ["12", "24"]]
    code, said, _ = command("validate", "all")
    assert code == 0


# ---- a calibration of the combination


def test_tune_fits_a_calibration_that_is_bound_to_the_combination(home, tmp_path, command):
    (combined,) = combine(pair(home), tmp_path / "combined")
    identity = combined.run.identity
    assert identity is not None
    (tmp_path / "scores").mkdir()
    truths = []
    for number in range(4):  # scores of other studies that were combined in the same way
        other = replace(combined.scores, study=str(number), values=combined.scores.values[::-1])
        write_scores(tmp_path / "scores" / f"{number}.parquet", other, identity, calibrated=True)
        segments = (Segment(10, 30, ("stomach",)), Segment(30, 58, ("colon", "blood")))
        truths.append(Annotation(str(number), Unit.FRAME, segments))
    write_submission(tmp_path / "truth.json", truths)
    code, _, error = command("tune", "scores", "truth.json", "--out", "tuned", "--folds", "2")
    assert code == 0, error
    fitted_for = json.loads((tmp_path / "tuned" / "calibration.json").read_text())["fitted_for"]
    assert fitted_for["scored_by"] == identity.model
    readings = (home / "a" / "3", home / "b" / "3")
    more = ("--calibration", "tuned", "--preset", "challenge")
    code, said, error = command("combine", *readings, "--out", "out", *more)
    assert code == 0, error
    assert "with a calibration of the combination" in said
    run = run_of(tmp_path / "out")
    assert run["identity"]["calibration"] is not None
    assert run["preset"] == "challenge"
    for other in (("--mean", "log-odds"), ("--weights", "2,1"), ("--scores", "raw")):
        code, _, error = command("combine", *readings, "--out", "other", *more, *other)
        assert code == 1
        assert "was fitted on scores of another model or combination" in error
        assert not (tmp_path / "other" / "run.json").exists()
    decode = ("decode", "out/scores.parquet", "--model", "tuned", "--out", "out")
    assert command(*decode)[0] == 0
    shutil.copy(home / "a" / "3" / "scores.parquet", tmp_path / "3.parquet")
    code, _, error = command("decode", "3.parquet", "--model", "tuned", "--out", "elsewhere")
    assert code == 1
    assert "another model or combination than 3.parquet" in error


def test_tune_refuses_scores_of_different_models(home, tmp_path, command):
    shutil.copytree(home / "a" / "3", tmp_path / "mixed" / "3")
    shutil.copytree(home / "b" / "12", tmp_path / "mixed" / "12")
    truths = [Annotation(s, Unit.FRAME, (Segment(10, 58, ("colon",)),)) for s in ("3", "12")]
    write_submission(tmp_path / "truth.json", truths)
    code, _, error = command("tune", "mixed", "truth.json")
    assert code == 1
    assert "the scores of studies 12 and 3 are of different models or combinations" in error


# ---- refusals


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a/3",), "1 reading cannot be combined; give two or more"),
        (("a/3", "b/3", "--weights", "1"), "there are 1 weight for 2 readings; give one weight"),
        (("a/3", "b/3", "--weights", "1,x"), "'1,x' is not a list of weights; write numbers above"),
        (("a/3", "b/3", "--weights", "1,0"), "'1,0' is not a list of weights"),
        (("a/3", "b/12"), "'a/3' and 'b/12' are readings of different studies, 3 and 12; give"),
        (("a/3", "b"), "'3' is a reading and 'b' is not; give readings of one study, or folders"),
        (("a/3", "nowhere"), "'nowhere' is not a folder; give folders of readings"),
        (("a/3", "a/3"), "'a/3' and 'a/3' hold the same scores; give each reading once"),
        (("a/3", "raw-b/3"), "'raw-b/3' was not calibrated, and has raw scores only; calibrate"),
        (
            ("raw-a/3", "raw-b/3", "--scores", "calibrated"),
            "'raw-a/3' was not calibrated, and has raw",
        ),
        (("studies", "a"), "the folder 'studies' holds no reading; give folders that"),
        (("a/3", "b/3", "--preset", "challenge"), "were never fitted"),
        (("a/3", "b/3", "--preset", "paper"), "'a/3' was calibrated by 'likelihood', where these"),
        (("a/3", "b/3", "--calibration", "model-a"), "was fitted for one model, not for a comb"),
        (("a/3", "b/3", "--calibration", "raw-model-a"), "give a model folder that was calibrated"),
        (("a/3", "b/3", "--config", "missing.toml"), "missing.toml cannot be read"),
    ],
)
def test_what_cannot_be_combined_is_told_in_a_sentence(home, tmp_path, command, arguments, said):
    places = [home / a if (home / a).exists() else a for a in arguments]
    code, _, error = command("combine", *places, "--out", "out")
    assert code == 1
    assert said in " ".join(error.split())
    assert not (tmp_path / "out" / "run.json").exists()


def test_other_frames_and_other_files_are_named(home, tmp_path):
    write_frames(tmp_path / "less" / "3", [n for n in FRAMES if n not in (12, 20)])
    reader = Reader(home / "model-b", ReadOptions(views="none"))
    reader.read(tmp_path / "less" / "3", tmp_path / "less-b")
    with pytest.raises(EnteronError, match="were read from different files of study 3"):
        combine([pair(home)[0], tmp_path / "less-b"], tmp_path / "out")
    # Scores of an unknown content: only the frames tell.
    for folder in ("full", "less-b"):
        if folder == "full":
            shutil.copytree(pair(home)[0], tmp_path / "full")
        forget_content(tmp_path / folder)
    match = r"of different frames of study 3: 2 frames only in the first \(12, 20\); read the"
    with pytest.raises(EnteronError, match=match):
        combine([tmp_path / "full", tmp_path / "less-b"], tmp_path / "out")


def forget_content(folder):
    """Make a reading one whose content was never recorded."""
    from enteron.folders.identity import file_hashes
    from enteron.folders.reading import read_events_file, write_events
    from enteron.folders.scores import write_scores

    reading = load_reading(folder)
    assert reading.run.identity is not None
    identity = reading.run.identity.model_copy(update={"content": None})
    write_scores(folder / "scores.parquet", reading.scores, identity)
    write_events(folder, reading.scores, reading.events, identity, reading.run.options)
    assert read_events_file(folder / "events.json").identity == identity
    shutil.rmtree(folder / "pictures")
    names = ("scores.parquet", "events.json", "events.csv", "submission.json")
    files = {**reading.run.files, **file_hashes(folder, names)}
    reading.run.model_copy(update={"identity": identity, "files": files}).save(folder)


def test_roots_with_other_studies_are_refused(home, tmp_path):
    shutil.copytree(home / "b" / "3", tmp_path / "b" / "3")
    with pytest.raises(EnteronError, match="'b' has no reading of study 12, which 'a' has; read"):
        combine([home / "a", tmp_path / "b"], tmp_path / "out")
    shutil.copytree(home / "b" / "3", tmp_path / "b" / "again")
    with pytest.raises(EnteronError, match="'3' and 'again' in 'b' are both readings of study 3"):
        combine([home / "a", tmp_path / "b"], tmp_path / "out")


def test_an_unfinished_or_mixed_member_is_refused(home, tmp_path):
    shutil.copytree(pair(home)[1], tmp_path / "b")
    run = run_of(tmp_path / "b")
    (tmp_path / "b" / "run.json").write_text(json.dumps({**run, "state": "scored"}))
    with pytest.raises(EnteronError, match="was begun and not finished"):
        combine([pair(home)[0], tmp_path / "b"], tmp_path / "out")
    (tmp_path / "b" / "run.json").write_text(json.dumps(run))
    shutil.copy(home / "a" / "12" / "scores.parquet", tmp_path / "b" / "scores.parquet")
    with pytest.raises(EnteronError, match="holds scores of study 12"):
        combine([pair(home)[0], tmp_path / "b"], tmp_path / "out")
    (tmp_path / "b" / "scores.parquet").unlink()
    with pytest.raises(EnteronError, match=r"/b' has no scores.parquet; give folders that"):
        combine([pair(home)[0], tmp_path / "b"], tmp_path / "out")


def test_a_reading_of_a_version_without_base_rates_is_refused(home, tmp_path):
    shutil.copytree(pair(home)[1], tmp_path / "b")
    run = run_of(tmp_path / "b")
    (tmp_path / "b" / "run.json").write_text(json.dumps({**run, "base_rates": {}}))
    with pytest.raises(EnteronError, match="does not record the base rates of its calibration"):
        combine([pair(home)[0], tmp_path / "b"], tmp_path / "out")
    (raw,) = combine(
        [pair(home)[0], tmp_path / "b"], tmp_path / "raw", options=CombineOptions(scores="raw")
    )
    assert raw.run.is_calibrated is False


def test_a_member_is_not_written_over(home):
    for members, out in ((pair(home), home / "b" / "3"), ([home / "a", home / "b"], home / "b")):
        with pytest.raises(EnteronError, match="is one of the folders that are combined"):
            combine(members, out)
