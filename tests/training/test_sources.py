"""Training and calibration on several data roots with partial labels, from plan to model folder."""

import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from enteron.cli.train import _shares
from enteron.datasets.layouts import open_sources
from enteron.errors import ConfigError, LabelError, TrainingError
from enteron.fitting.calibrate import calibrate_model
from enteron.fitting.decoder import fit_decoder
from enteron.fitting.frames import LabelledStudy, fit_calibration
from enteron.folders.model import load_calibration, read_record
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.labels import COLUMN, LABELS
from enteron.model.backbones import lite_backbone
from enteron.priors import load_priors
from enteron.training.options import TrainingOptions, recipe
from enteron.training.plan import TrainingRequest, make_plan
from enteron.training.run import run_training
from enteron.types import FrameAxis, Scores
from tests.making import write_frames
from tests.training.making import some_labels
from tests.training.model_folders import LookupEncoder, write_root

ULCER, POLYP = COLUMN["ulcer"], COLUMN["polyp"]


class Messages:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)

    @contextmanager
    def task(self, description: str, total: int, unit: str = "frames"):
        yield lambda completed: None


def write_table(root: Path, studies: dict[str, list[str]]) -> Path:
    """A table with cells of ulcer for every study; polyp is known in the first half only."""
    lines = ["study,frame,ulcer,polyp"]
    for number, (study, ulcers) in enumerate(studies.items()):
        write_frames(root / study, range(len(ulcers)), size=42 + 2 * number)
        for frame, ulcer in enumerate(ulcers):
            polyp = str(frame % 2) if 2 * frame < len(ulcers) else ""
            lines.append(f"{study},{frame},{ulcer},{polyp}")
    (root / "frames.csv").write_text("\n".join(lines) + "\n")
    return root


WITH, WITHOUT = ["1"] * 6 + ["0"] * 6 + [""] * 8, ["0"] * 10 + [""] * 10


@pytest.fixture(scope="module")
def roots(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("roots")
    # The seed alone would validate on "b", which shows no ulcer.
    own = write_table(folder / "own", {"a": WITH, "b": WITHOUT, "c": WITH, "d": WITHOUT})
    return write_root(folder / "galar"), own


@pytest.fixture(scope="module")
def features(roots, tmp_path_factory) -> Path:
    backbone = lite_backbone()
    encoder = LookupEncoder(backbone.hash(), backbone.spec.preprocessing)
    folder = tmp_path_factory.mktemp("features")
    for source in open_sources(roots):
        for study, entry in source.dataset.studies.items():
            embed_study(entry.open(), encoder, folder / f"{source.key(study)}.npy", EmbedOptions())
    return folder


def quick(**changes) -> TrainingOptions:
    return recipe("lite", epochs=2, batch=16, **changes)


@pytest.fixture(scope="module")
def trained(roots, features, tmp_path_factory) -> tuple[Path, list[str]]:
    progress = Messages()
    out = tmp_path_factory.mktemp("models") / "model"
    options = quick(sampler={"shares": (3, 1)})
    request = TrainingRequest(roots, out, options, features=features)
    run_training(make_plan(request, progress), progress)
    return out, progress.texts


def test_each_source_is_split_by_study(roots, tmp_path):
    plan = make_plan(TrainingRequest(roots, tmp_path / "m", quick()), Messages())
    assert {study.split(".")[0] for study in plan.split.train} == {"galar", "own"}
    assert len([study for study in plan.split.val if study.startswith("galar.")]) == 1
    assert len([study for study in plan.split.val if study.startswith("own.")]) == 1
    # Stratified: an ulcer on both sides of the table.
    shows = {s.study: s.labels.present[:, ULCER].any() for s in (*plan.train, *plan.val)}
    assert any(shows[study] for study in plan.split.val if study.startswith("own."))
    assert any(shows[study] for study in plan.split.train if study.startswith("own."))
    alone = make_plan(TrainingRequest(roots[1:], tmp_path / "m", quick()), Messages())
    assert {f"own.{study}" for study in alone.split.val} < set(plan.split.val)
    assert "stratified by label" in alone.split.rule
    unstratified = quick(data={"stratified": False})
    seeded = make_plan(TrainingRequest(roots[1:], tmp_path / "m", unstratified), Messages())
    assert seeded.split.rule == "seeded 42, validation 0.15, test 0"


def test_frames_that_say_nothing_are_no_samples(roots, tmp_path):
    plan = make_plan(TrainingRequest(roots[1:], tmp_path / "m", quick()), Messages())
    samples = {s.study: s for s in (*plan.train, *plan.val)}
    # In "a" frames 0-11 have an ulcer cell and 0-9 a polyp cell; 12-19 have neither.
    assert len(samples["a"]) == 12
    assert samples["a"].stored.size == 20
    assert not samples["a"].labels.is_complete


def test_results_per_source(roots, trained):
    out, messages = trained
    sources = {"studies in Galar's layout", "own table"}
    history = json.loads((out / "training" / "history.json").read_text())
    assert all(set(epoch["sources"]) == sources for epoch in history["epochs"])
    assert history["epochs"][0]["sources"]["own table"]["region_accuracy"] is None
    record = read_record(out)
    assert "own table (3 studies, " in record.training["data"]
    assert "drawn 25 %" in record.training["data"]
    assert record.training["labels unknown"].endswith("% of all labels of all frames")
    assert "own table: findings ap" in record.results
    assert "own table: region accuracy" not in record.results
    page = (out / "training" / "training.html").read_text()
    assert "<h2>Sources</h2>" in page
    assert "<td>own table</td><td>3</td>" in page
    assert "<th>Unknown</th>" in page
    assert "Training on 6 studies" in messages[0]
    # Titles, not the names of folders, which may say more than they should.
    assert str(roots[0].parent) not in (out / "model.json").read_text() + page
    assert "galar." not in (out / "model.json").read_text()


def test_a_label_without_validation_frames_is_named(trained):
    _, messages = trained
    warned = [text for text in messages if text.startswith("Warning: ")]
    train_only = [
        text for text in warned if "none in validation: it will never be reported" in text
    ]
    assert warned == train_only


def test_the_warning_of_a_label_that_validation_lacks(tmp_path):
    root = write_table(tmp_path / "own", {"a": WITH, "b": ["0"] * 20, "c": ["0"] * 20})
    backbone = lite_backbone()
    encoder = LookupEncoder(backbone.hash(), backbone.spec.preprocessing)
    (tmp_path / "features").mkdir()
    for study, entry in open_sources([root])[0].dataset.studies.items():
        path = tmp_path / "features" / f"{study}.npy"
        embed_study(entry.open(), encoder, path, EmbedOptions())
    split = tmp_path / "split.json"
    from enteron.datasets.splits import Split, save_split

    save_split(Split(("a", "b"), ("c",), (), "by hand"), split)
    progress = Messages()
    request = TrainingRequest(
        (root,), tmp_path / "m", quick(), split=split, features=tmp_path / "features"
    )
    run_training(make_plan(request, progress), progress)
    assert (
        "Warning: ulcer: 6 training frames, none in validation: it will never be reported. Label "
        "it in another study, or give a split that has it on both sides." in progress.texts
    )


def test_calibration_on_both(roots, features, trained):
    model, _ = trained
    report = calibrate_model(model, roots, features=features)
    assert (report.calibration.studies, report.event_studies) == (2, 1)
    assert report.unknown["mouth"] == 20  # the table's validation study
    assert report.unknown["polyp"] == 10
    thresholds = report.calibration.likelihood.thresholds
    assert thresholds["ulcer"] is not None  # only the table shows ulcers
    assert report.calibration.events  # fitted on Galar's study
    assert load_calibration(model) == report.calibration
    with pytest.raises(LabelError, match=r"study galar.\d of the part 'val' is not under 'own'"):
        calibrate_model(model, roots[1], features=features)


def test_calibration_without_a_complete_study(roots, features, trained):
    model, _ = trained
    plan = {"own.a", "own.b", "own.c", "own.d"}
    from enteron.datasets.splits import Split, load_split, save_split

    before = load_split(model / "split.json")
    record = (model / "model.json").read_text()
    own = [study for study in before.val if study in plan]
    other = Split(before.train, tuple(own), (), "own only")
    save_split(other, model / "split.json")
    (model / "model.json").write_text(record.replace(before.hash, other.hash))
    try:
        report = calibrate_model(model, roots, features=features)
    finally:
        save_split(before, model / "split.json")
        (model / "model.json").write_text(record)
    assert (report.calibration.studies, report.event_studies) == (1, 0)
    assert report.calibration.events == {}
    assert report.calibration.likelihood.thresholds["colon"] is None


# ---- Fits on frames with unknown labels


def labelled(seed: int, hide: float = 0.0) -> LabelledStudy:
    rng = np.random.default_rng(seed)
    truth = some_labels(120, seed)
    odds = np.where(truth, 1.0, -1.5) + rng.normal(size=truth.shape)
    scores = Scores(str(seed), FrameAxis(np.arange(120)), 1 / (1 + np.exp(-odds)))  # pyright: ignore[reportArgumentType]
    if not hide:
        return LabelledStudy(scores, truth)
    known = rng.random(truth.shape) >= hide
    return LabelledStudy(scores, truth & known, known)


def test_hiding_whole_rows_is_leaving_them_out():
    """Unknown rows change nothing: the fit is that of the known rows alone."""
    study = labelled(1)
    known = np.zeros_like(study.truth)
    known[:70] = True
    hidden = LabelledStudy(study.scores, study.truth & known, known)
    short = LabelledStudy(
        Scores("1", FrameAxis(np.arange(70)), study.scores.values[:70]), study.truth[:70]
    )
    ours, expected = fit_calibration([hidden]), fit_calibration([short])
    assert (ours.paper, ours.likelihood, ours.rates) == (
        expected.paper,
        expected.likelihood,
        expected.rates,
    )


def test_a_label_that_is_never_known_is_never_emitted():
    study = labelled(2)
    known = np.ones_like(study.truth)
    known[:, COLUMN["blood"]] = False
    fitted = fit_calibration([LabelledStudy(study.scores, study.truth & known, known)])
    assert fitted.likelihood.thresholds["blood"] is None
    assert "blood" not in fitted.rates
    assert fitted.likelihood.thresholds["colon"] is not None


def test_a_label_that_is_known_only_where_it_is_present_has_no_threshold():
    study = labelled(2)
    known = np.ones_like(study.truth)
    known[:, COLUMN["blood"]] = study.truth[:, COLUMN["blood"]]
    fitted = fit_calibration([LabelledStudy(study.scores, study.truth, known)])
    assert fitted.likelihood.thresholds["blood"] is None
    # A complete study that shows a region from end to end keeps its threshold.
    always = study.truth.copy()
    always[:, COLUMN["colon"]] = True
    complete = fit_calibration([LabelledStudy(study.scores, always)])
    assert complete.likelihood.thresholds["colon"] == 0.01


def test_events_are_fitted_on_complete_studies_only():
    complete, partial = [labelled(n) for n in (1, 2)], labelled(3, hide=0.3)
    priors = load_priors()
    with_partial = fit_decoder([*complete, partial], priors)
    assert with_partial.studies == 3
    assert set(with_partial.silence) == set(LABELS)  # two studies are enough
    assert fit_decoder([complete[0], partial], priors).silence == {}  # one is not
    alone = fit_decoder([partial], priors)
    assert (alone.events, alone.kappa) == ({}, None)


# ---- Mistakes


def test_shares_must_fit_the_roots(roots, tmp_path):
    request = TrainingRequest(roots, tmp_path / "m", quick(sampler={"shares": (1, 2, 3)}))
    with pytest.raises(TrainingError, match="there are 3 shares for 2 data roots; give one share"):
        make_plan(request, Messages())
    with pytest.raises(ConfigError, match="shares are numbers above 0"):
        quick(sampler={"shares": (1, 0)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("galar=2", "--share has no share for 'own'; give one share per data root"),
        ("galar=2,owm=1", "--share names 'owm', which is no data root; did you mean 'own'"),
        ("galar=two,own=1", "--share gives 'galar' the share 'two'; write it like A=2,B=1"),
    ],
)
def test_shares_by_name(tmp_path, text, message):
    folders = [tmp_path / "galar", tmp_path / "own"]
    assert _shares("own=1, galar=2.5", folders) == (2.5, 1.0)
    with pytest.raises(ConfigError, match=message):
        _shares(text, folders)


@pytest.mark.parametrize(
    ("regime", "runtime", "said"),
    [
        ("frozen", "auto", "may choose another one when the training resumes; name a runtime"),
        ("frozen", "onyx", "there is no runtime 'onyx'; did you mean 'onnx'"),
        ("full", "onnx", "only torch can do; leave out --runtime"),
    ],
)
def test_a_runtime_that_cannot_be_used_is_refused_before_anything_is_written(
    roots, tmp_path, regime, runtime, said
):
    options = quick().model_copy(update={"regime": regime})
    request = TrainingRequest(roots, tmp_path / "m", options, runtime=runtime)
    with pytest.raises(ConfigError, match=said):
        make_plan(request, Messages())
    assert not (tmp_path / "m").exists()
