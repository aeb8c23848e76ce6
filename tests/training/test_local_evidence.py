"""Training with local evidence: boxes of drawn data, from the plan to a reading."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from enteron import read
from enteron.datasets.dataset import Box
from enteron.errors import ConfigError, TrainingError
from enteron.fitting.calibrate import calibrate_model
from enteron.folders.left_out import LEFT_OUT, read_left_out
from enteron.folders.model import load_model, read_record
from enteron.folders.packing import pack_model
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.pictures import prepare_frame
from enteron.inference.runtimes import make_encoder
from enteron.inference.score import score_study
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.model.options import EVIDENCE, FEATURES
from enteron.model.preprocessing import Preprocessing
from enteron.progress import SilentProgress
from enteron.study import open_study
from enteron.study.field_of_view import Circle
from enteron.training import run as training_run
from enteron.training.options import recipe
from enteron.training.patches import covered_cells, teaching_rows
from enteron.training.plan import TrainingRequest, make_plan
from enteron.training.run import run_training
from enteron.training.sampling import StudySamples
from enteron.types import FrameLabels

ULCER = FINDINGS.index("ulcer")
FRAMES = 12


@pytest.fixture(scope="module", autouse=True)
def graphs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENTERON_CACHE", str(tmp_path_factory.mktemp("graphs")))
        yield


def draw(rng: np.random.Generator, lesion: tuple[int, int] | None) -> np.ndarray:
    """Tissue of one tone with noise; a lesion is a pale square of 32 pixels."""
    tone = rng.uniform(0.7, 1.2) * np.array([150, 90, 70])
    image = tone + 8 * rng.normal(size=(112, 112, 3))
    if lesion is not None:
        x, y = lesion
        image[y : y + 32, x : x + 32] = np.array([235, 225, 150]) + rng.normal(size=(32, 32, 3))
    return np.clip(image, 0, 255).astype(np.uint8)


def write_root(root: Path, *, boxes: bool = True) -> Path:
    """Five studies; every other frame has an ulcer somewhere."""
    lines, box_lines = ["study,frame," + ",".join(FINDINGS)], ["study,frame,label,x1,y1,x2,y2"]
    for number, study in enumerate("abcde"):
        rng = np.random.default_rng(number)
        folder = root / study
        folder.mkdir(parents=True)
        for frame in range(FRAMES):
            lesion = None
            cells = ["0"] * len(FINDINGS)
            if frame % 2:
                x, y = (int(n) for n in rng.integers(0, 80, size=2))
                lesion = (x, y)
                cells[ULCER] = "1"
                box_lines.append(f"{study},{frame},ulcer,{x},{y},{x + 32},{y + 32}")
            image = cv2.cvtColor(draw(rng, lesion), cv2.COLOR_RGB2BGR)
            cv2.imwrite(str(folder / f"frame_{frame:06d}.png"), image)
            lines.append(f"{study},{frame},{','.join(cells)}")
    (root / "frames.csv").write_text("\n".join(lines) + "\n")
    if boxes:
        (root / "boxes.csv").write_text("\n".join(box_lines) + "\n")
    return root


def options(**model):
    return recipe(
        "lite",
        epochs=2,
        batch=16,
        model={"local_evidence": True, **model},
        patches={"steps": 60, "rate": 1e-2},
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return write_root(tmp_path_factory.mktemp("drawn") / "own")


@pytest.fixture(scope="module")
def model(root, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("models") / "model"
    request = TrainingRequest((root,), out, options())
    run_training(make_plan(request, SilentProgress()), SilentProgress())
    return out


def test_evidence_finds_lesions_of_a_study_that_did_not_train(root, model, tmp_path):
    network, record = load_model(model)
    study = (set("abcde") - set(make_plan_train(root))).pop()
    embeddings = embed_study(
        open_study(root / study), make_encoder(network.backbone, "onnx"), tmp_path / "s.npy"
    )
    assert embeddings.features.shape == (FRAMES, 2, FEATURES + EVIDENCE)
    evidence = embeddings.features[:, 0, FEATURES + ULCER]
    assert evidence[1::2].min() > evidence[::2].max()
    scores = score_study(network, embeddings).values[:, COLUMN["ulcer"]]
    assert scores[1::2].mean() > scores[::2].mean()
    assert record.training["local evidence"].startswith("ulcer 24 boxes of 4 studies")


def make_plan_train(root: Path) -> tuple[str, ...]:
    request = TrainingRequest((root,), root / "nowhere", options())
    return make_plan(request, SilentProgress()).split.train


def test_runtimes_agree_and_a_store_resumes_to_the_same_bytes(root, model, tmp_path):
    network, _ = load_model(model)
    study = open_study(root / "a")
    onnx, exact = (make_encoder(network.backbone, name) for name in ("onnx", "exact"))
    assert onnx.width == exact.width == FEATURES + EVIDENCE
    first = embed_study(study, onnx, tmp_path / "onnx.npy", EmbedOptions(chunk=4))
    frames = [prepare_frame(study.frame(n), exact.preprocessing).image for n in (0, 1)]
    images = np.stack([image for image in frames if image is not None])
    np.testing.assert_allclose(first.features[:2, 0], exact.encode(images), atol=2e-3)
    assert np.abs(first.features[:, 0] - first.features[:, 1]).max() > 1e-3  # mirror images

    class KilledError(Exception):
        pass

    seen = []

    def stop_after_two_chunks(count: int) -> None:
        seen.append(count)
        if sum(seen) >= 8:
            raise KilledError

    killed = tmp_path / "killed.npy"
    with pytest.raises(KilledError):
        embed_study(study, onnx, killed, EmbedOptions(chunk=4), stop_after_two_chunks)
    embed_study(study, onnx, killed, EmbedOptions(chunk=4))
    assert killed.read_bytes() == (tmp_path / "onnx.npy").read_bytes()


def test_calibrating_and_reading(root, model, tmp_path):
    report = calibrate_model(model, root)
    assert report.support["ulcer"] > 0
    reading = read(root / "e", model=model, out=tmp_path / "reading")
    assert reading.scores.values.shape == (FRAMES, len(LABELS))


def test_a_training_that_died_after_the_fit_resumes_with_it(root, model, tmp_path, monkeypatch):
    out = tmp_path / "model"
    request = TrainingRequest((root,), out, options())

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training_run, "feature_sources", die)
        with pytest.raises(KeyboardInterrupt):
            run_training(make_plan(request, SilentProgress()), SilentProgress())
    monkeypatch.setattr(training_run, "patch_samples", die)  # the fit is not repeated
    resumed = TrainingRequest((root,), out, options(), resume=True)
    run_training(make_plan(resumed, SilentProgress()), SilentProgress())
    assert read_record(out).weights_hash == read_record(model).weights_hash


def test_data_without_boxes_are_refused(tmp_path):
    root = write_root(tmp_path / "own", boxes=False)
    request = TrainingRequest((root,), tmp_path / "model", options())
    with pytest.raises(TrainingError, match="no training study has a box around a finding"):
        make_plan(request, SilentProgress())
    assert not (tmp_path / "model").exists()


def test_the_full_regime_has_no_local_evidence():
    with pytest.raises(ConfigError, match="frozen backbone"):
        recipe("lite", regime="full", model={"local_evidence": True})


def test_boxes_follow_what_the_encoder_sees():
    """Masked or cropped, a box covers the patches that show its pixels."""
    box = Box(0, "ulcer", 90, 40, 150, 100)
    for preprocessing, circle in (
        (Preprocessing(), None),
        (Preprocessing(resize="squash"), None),
        (Preprocessing(border="masked"), Circle(110, 75, 63)),
    ):
        picture = np.zeros((160, 220, 3), np.uint8)
        picture[40:100, 90:150] = 255
        image = preprocessing.resize_and_crop(picture, circle)[0] / 255
        part = preprocessing.shown_part(160, 220, circle)
        cells = covered_cells([box], np.array([0]), {0: part})[0, ULCER].reshape(7, 7)
        shown = image.reshape(7, 32, 7, 32).mean(axis=(1, 3))
        inside = np.ones((7, 7), bool)
        if preprocessing.border == "masked":
            inside[[0, 0, -1, -1], [0, -1, 0, -1]] = False  # black outside the circle
        np.testing.assert_allclose(cells[inside], shown[inside], atol=0.07)


def test_teaching_frames_are_bounded_and_spread_over_studies():
    def samples(study: str, normal: int, lesions: int) -> StudySamples:
        present = np.zeros((normal + lesions, len(LABELS)), bool)
        present[normal:, COLUMN["ulcer"]] = True
        rows = np.arange(normal + lesions)
        return StudySamples(study, 10 * rows, rows, FrameLabels.complete(present))

    train = [samples("a", 1000, 50), samples("b", 100, 0), samples("c", 0, 400)]
    boxes = {
        "a": tuple(Box(10 * row, "ulcer", 0, 0, 9, 9) for row in range(1000, 1050)),
        "b": (),
        "c": tuple(Box(10 * row, "ulcer", 0, 0, 9, 9) for row in range(300)),
    }
    rows = teaching_rows(train, boxes, 240)
    with_boxes = [int((rows[0] >= 1000).sum()), 0, len(rows[2])]
    assert with_boxes == [50, 0, 60]  # 120 with boxes, 60 a study; "a" has 50 only
    assert [int((rows[0] < 1000).sum()), len(rows[1])] == [60, 60]
    assert np.diff(rows[0][:60]).max() <= 18  # evenly over the thousand
    assert rows[2].max() < 300  # a lesion without a box does not say where it is


# ---- findings by evidence alone (recipe default)


def write_regions(root: Path) -> Path:
    """Four studies in which everything is labelled: a tone per region, no finding."""
    lines = ["study,frame," + ",".join(LABELS)]
    for number, study in enumerate("wxyz"):
        rng = np.random.default_rng(100 + number)
        folder = root / study
        folder.mkdir(parents=True)
        for frame in range(10):
            region = frame // 2
            image = np.full((112, 112, 3), 40 * (region + 1)) + 8 * rng.normal(size=(112, 112, 3))
            picture = np.clip(image, 0, 255).astype(np.uint8)
            cv2.imwrite(str(folder / f"frame_{frame:06d}.png"), picture)
            cells = ["1" if column == region else "0" for column in range(len(LABELS))]
            lines.append(f"{study},{frame},{','.join(cells)}")
    (root / "frames.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def regions(tmp_path_factory) -> Path:
    return write_regions(tmp_path_factory.mktemp("regions") / "regions")


def default_options():
    patches = {"steps": 60, "rate": 1e-2, "folds": 2}
    return recipe("default", epochs=1, batch=16, patches=patches)


@pytest.fixture(scope="module")
def apart(root, regions, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("models") / "apart"
    request = TrainingRequest((regions, root), out, default_options())
    run_training(make_plan(request, SilentProgress()), SilentProgress())
    return out


def test_regions_and_findings_are_learnt_apart(apart, root, regions):
    network, record = load_model(apart)
    by_title = {source.labels for source in record.sources}
    assert by_title == {tuple(LABELS[:5]), ("ulcer",)}
    plan = make_plan(
        TrainingRequest((regions, root), apart.parent / "none", default_options()),
        SilentProgress(),
    )
    assert {study.partition(".")[0] for study in plan.split.val} == {"regions"}
    assert sum(study.startswith("own.") for study in plan.split.train) == 5  # all boxes train
    left_out = read_left_out(apart / "training" / LEFT_OUT)
    assert sorted(left_out) == [f"own.{study}" for study in "abcde"]
    scores = left_out["own.c"].values[:, COLUMN["ulcer"]]
    # Every other frame has an ulcer; a clip's mean is highest where two of its three frames do.
    assert roc_auc_score(np.arange(FRAMES) % 2, scores) > 0.8
    assert network.evidence is not None
    assert (network.evidence.scale[ULCER] > 0).item()


def test_calibrated_on_what_was_left_out_and_off_without_proof(apart, root, regions, tmp_path):
    report = calibrate_model(apart, (regions, root))
    calibration = report.calibration
    assert calibration.fitted_for is not None
    assert calibration.fitted_for.left_out_studies == 5
    assert calibration.measured is not None
    assert set(calibration.measured) == {"ulcer"}
    assert calibration.measured["ulcer"].studies == 5
    assert calibration.measured["ulcer"].auc > 0.8
    assert set(calibration.unproven) == set(FINDINGS) - {"ulcer"}
    reading = read(root / "e", model=apart, out=tmp_path / "reading")
    assert reading.run.model is not None
    assert set(reading.run.model.unproven) == set(calibration.unproven)
    assert reading.run.likeness is not None


def test_data_without_regions_are_refused(root, tmp_path):
    request = TrainingRequest((root,), tmp_path / "model", default_options())
    with pytest.raises(TrainingError, match="has all five regions labelled, and the head learns"):
        make_plan(request, SilentProgress())


def test_a_packed_folder_keeps_what_its_calibration_needs(apart, tmp_path):
    packed = pack_model(apart, tmp_path / "packed").record
    assert packed.precision == "half"
    first, second = (
        read_left_out(folder / "training" / LEFT_OUT) for folder in (apart, tmp_path / "packed")
    )
    assert sorted(first) == sorted(second)
