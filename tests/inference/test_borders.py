"""Masked borders: one shape for every capsule, measured on a fixed sample of frames."""

import pickle
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression

from enteron.errors import ModelError
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.pictures import prepare_frame, study_fields
from enteron.inference.store import open_embeddings, started_key
from enteron.model.preprocessing import Preprocessing
from enteron.study import open_study
from enteron.study.field_of_view import Circle, default_circle, fields_of_view, inner_circle
from enteron.study.picture import encode_png
from enteron.study.pictures import PictureStudy
from tests.inference.stub import StubEncoder
from tests.study.test_field_of_view import outline, tissue, write_text

SIZE = 160
SHAPES = ("circle", "octagon", "square", "cut circle", "small")
MASKED = Preprocessing(size=32, border="masked")


class MaskingStub(StubEncoder):
    preprocessing = MASKED


def keep_of(shape: str, size: int = SIZE) -> np.ndarray:
    if shape != "small":
        return outline(shape, size)
    y, x = np.indices((size, size))
    return (np.hypot(x - 0.55 * size, y - 0.47 * size) < 0.4 * size)[..., None]


def frames_of(shape: str, count: int, seed: int = 0, *, text: bool = True) -> list[np.ndarray]:
    frames = []
    for number in range(count):
        frame = tissue(1000 * seed + number, SIZE) * keep_of(shape)
        if text and shape != "square":  # a square has no border to write into
            write_text(frame, number)
        frames.append(frame)
    return frames


def write_study(folder: Path, frames: list[np.ndarray]) -> Path:
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        (folder / f"frame_{number:06d}.png").write_bytes(encode_png(frame))
    return folder


def largest_radius(keep: np.ndarray) -> float:
    """By brute force: the farthest that any pixel lies from the nearest one outside."""
    padded = np.pad(keep[..., 0], 1)
    outside, inside = np.argwhere(~padded), np.argwhere(padded)[::7]
    return max(float(np.sqrt(((outside - p) ** 2).sum(axis=1).min())) for p in inside)


# ---- the circle


@pytest.mark.parametrize("count", [1, 4, 24])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_circle_lies_inside_the_field_of_view_and_is_nearly_the_largest(shape, count):
    keep = keep_of(shape)
    circle = inner_circle(frames_of(shape, count))
    y, x = np.indices((SIZE, SIZE)) + 0.5
    within = np.hypot(x - circle.x, y - circle.y) < circle.radius - 0.5
    assert keep[..., 0][within].all()
    assert circle.radius > 0.93 * largest_radius(keep)


def test_a_title_card_does_not_widen_the_circle():
    frames = frames_of("small", 24)
    card = np.full((SIZE, SIZE, 3), 230, np.uint8)
    assert inner_circle([card, *frames]) == inner_circle(frames)


def test_where_nothing_is_lit_the_circle_is_in_the_middle():
    dark = np.full((SIZE, 2 * SIZE, 3), 5, np.uint8)
    spot = dark.copy()
    spot[20:60, 30:70] = 200
    for frame in (dark, spot):
        circle = inner_circle([frame])
        assert (circle.x, circle.y) == pytest.approx((SIZE, SIZE / 2), abs=1.5)
        assert circle.radius == pytest.approx(default_circle(SIZE, 2 * SIZE).radius, abs=4)


def test_sizes_are_measured_apart(tmp_path):
    large = [cv2.resize(frame, (240, 240)) for frame in frames_of("circle", 12)]
    folder = write_study(tmp_path / "s", [*frames_of("small", 12), *large])
    fields = fields_of_view(open_study(folder))
    assert set(fields.circles) == {(SIZE, SIZE), (240, 240)}
    assert fields.circles[SIZE, SIZE] == inner_circle(frames_of("small", 12))
    unknown = np.zeros((50, 80, 3), np.uint8)
    assert fields.circle(unknown) == default_circle(50, 80)


def test_pictures_of_many_capsules_are_measured_alone(tmp_path):
    folder = write_study(tmp_path / "s", frames_of("small", 3) + frames_of("square", 3))
    files = tuple(sorted(folder.iterdir()))
    study = pickle.loads(pickle.dumps(PictureStudy("s", np.arange(6), files, one_camera=False)))
    fields = fields_of_view(study)
    radii = [fields.circle(image).radius for frame in study if (image := frame.image) is not None]
    assert max(radii[:3]) < 0.42 * SIZE < 0.45 * SIZE < min(radii[3:])


# ---- the pictures


def test_a_masked_picture_is_the_circle_and_nothing_else():
    frame, circle = frames_of("small", 1)[0], Circle(88, 75, 60)
    image = MASKED.resize_and_crop(frame, circle)
    y, x = np.indices((32, 32)) + 0.5 - 16
    inside = np.hypot(x, y) <= 16
    assert not image[:, ~inside].any()
    crop = (
        Image.fromarray(frame).crop((28, 15, 148, 135)).resize((32, 32), Image.Resampling.BICUBIC)
    )
    np.testing.assert_array_equal(image[:, inside], np.asarray(crop).transpose(2, 0, 1)[:, inside])
    assert MASKED.shown_part(SIZE, SIZE, circle) == (28, 15, 120, 120)


def test_mirror_images_have_the_same_mask():
    image = MASKED.resize_and_crop(np.full((SIZE, SIZE, 3), 255, np.uint8))
    np.testing.assert_array_equal(image[..., ::-1], image)


def test_every_capsule_has_the_same_outline_afterwards():
    """What is lit: tissue of all shapes is bright here, text and borders are outside."""
    lit = {}
    for shape in SHAPES:
        frames = [np.maximum(frame, 60 * keep_of(shape)) for frame in frames_of(shape, 12)]
        circle = inner_circle(frames)
        for border in ("kept", "masked"):
            preprocessing = Preprocessing(size=32, border=border)
            image = preprocessing.resize_and_crop(frames[3].astype(np.uint8), circle)
            lit[border, shape] = image.max(axis=0) > 40
    for shape in SHAPES[1:]:
        assert not np.array_equal(lit["kept", shape], lit["kept", SHAPES[0]])
        assert np.array_equal(lit["masked", shape], lit["masked", SHAPES[0]])


def test_a_classifier_of_the_border_gets_no_advantage():
    """Studies of one kind of tissue in three borders; studies that are tested did not train."""
    shapes = ("circle", "octagon", "small")
    accuracies = {}
    for border in ("kept", "masked"):
        preprocessing = Preprocessing(size=32, border=border)
        values, truth, groups = [], [], []
        for number in range(12):
            frames = frames_of(shapes[number % 3], 10, seed=number + 1)
            circle = inner_circle(frames)
            for frame in frames:
                values.append(preprocessing.resize_and_crop(frame, circle)[:, ::2, ::2])
                truth.append(number % 3)
                groups.append(number)
        table = np.stack(values).reshape(len(values), -1) / 255
        test = np.array(groups) >= 6
        model = LogisticRegression(C=0.1, max_iter=500)
        model.fit(table[~test], np.array(truth)[~test])
        accuracies[border] = model.score(table[test], np.array(truth)[test])
    assert accuracies["kept"] > 0.95
    assert accuracies["masked"] < 1 / 3 + 0.2  # chance, and three standard errors of 60 frames


# ---- stores


def embed(folder: Path, path: Path, advance=None):
    return embed_study(open_study(folder), MaskingStub(), path, EmbedOptions(chunk=4), advance)


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_study(tmp_path / "study", frames_of("small", 10))


def test_embeddings_are_of_masked_pictures(folder, tmp_path):
    study = open_study(folder)
    fields = study_fields(study, MASKED)
    assert fields is not None
    images = [prepare_frame(frame, MASKED, fields).image for frame in study]
    expected = StubEncoder().encode(np.stack([image for image in images if image is not None]))
    embeddings = embed(folder, tmp_path / "s.npy")
    np.testing.assert_allclose(embeddings.features[:, 0], expected, rtol=1e-6)
    assert embeddings.key.field == str(fields)
    kept = embed_study(study, StubEncoder(), tmp_path / "kept.npy")
    assert kept.key.field is None
    assert np.abs(kept.features - embeddings.features).max() > 1e-3


class KilledError(Exception):
    pass


def killed_after(rows: int):
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if done >= rows:
            raise KilledError

    return advance


def test_a_killed_run_resumes_to_the_same_bytes(folder, tmp_path):
    embed(folder, tmp_path / "whole.npy")
    with pytest.raises(KilledError):
        embed(folder, tmp_path / "killed.npy", killed_after(4))
    assert started_key(tmp_path / "killed.npy") == open_embeddings(tmp_path / "whole.npy").key
    embed(folder, tmp_path / "killed.npy")
    assert (tmp_path / "killed.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    before = (tmp_path / "whole.npy").stat().st_mtime_ns
    embed(folder, tmp_path / "whole.npy")  # opened, not made again
    assert (tmp_path / "whole.npy").stat().st_mtime_ns == before


def test_rows_of_another_field_of_view_are_refused(folder, tmp_path):
    """Frames were replaced by those of another capsule while a run was stopped."""
    with pytest.raises(KilledError):
        embed(folder, tmp_path / "s.npy", killed_after(4))
    for number, frame in enumerate(frames_of("circle", 10)):
        (folder / f"frame_{number:06d}.png").write_bytes(encode_png(frame))
    with pytest.raises(ModelError, match=r"other (files of the study|field of view)"):
        embed(folder, tmp_path / "s.npy")


@pytest.mark.parametrize("count", [1, 2])
def test_short_studies(count, tmp_path):
    folder = write_study(tmp_path / "study", frames_of("octagon", count))
    assert len(embed(folder, tmp_path / "s.npy")) == count
