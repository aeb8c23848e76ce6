"""Damaged videos whose frames carry their own number: none is readable under a wrong one."""

from pathlib import Path

import pytest

from enteron.errors import EnteronError
from enteron.study import open_study
from tests.study.mutated_videos import (
    BASES,
    OTHER_BASES,
    BaseVideo,
    Outcome,
    Picture,
    decoded_pictures,
    examine,
    mutated,
    number_in,
    write_base,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Path and pictures of base videos, each made once."""
    folder = tmp_path_factory.mktemp("bases")
    videos: dict[str, tuple[Path, list[Picture]]] = {}

    def make(base: BaseVideo) -> tuple[Path, list[Picture]]:
        if base.name not in videos:
            path = write_base(folder, base)
            videos[base.name] = (path, list(decoded_pictures(path)))
        return videos[base.name]

    return make


def damaged(path: Path, seed: int, folder: Path) -> tuple[Path, str]:
    data, mutation = mutated(path.read_bytes(), seed)
    target = folder / f"damaged{path.suffix}"
    target.write_bytes(data)
    return target, f"{path.name}, seed {seed}: {mutation}"


def outcomes(bases, seeds, made, folder: Path) -> list[Outcome]:
    found = []
    for seed in seeds:
        base = bases[seed % len(bases)]
        path, originals = made(base)
        target, mutation = damaged(path, seed, folder)
        found.append(examine(target, originals, base.kind, mutation, caution=False))
    return found


def require_no_wrong_number(found: list[Outcome], most_poor: float) -> None:
    for outcome in found:
        assert not outcome.failure, (outcome.mutation, outcome.failure)
        assert not outcome.wrong, (outcome.mutation, outcome.wrong)
    readable = sum(outcome.readable for outcome in found)
    assert sum(len(outcome.poor) for outcome in found) <= most_poor * readable
    # Caution is not bought by calling everything unreadable.
    assert readable > 0.5 * sum(outcome.frames for outcome in found)


_SMALL = [
    base for base in BASES if base.name in ("plain.mkv", "b.mp4", "asp-b.avi", "b.mpg", "b.ts")
]


@pytest.mark.parametrize("base", _SMALL, ids=lambda base: base.name)
def test_undamaged_videos_are_readable_to_the_last_frame(base, made):
    path, originals = made(base)
    outcome = examine(path, originals, base.kind, "none", caution=False)
    assert (outcome.readable, outcome.unreadable) == (base.frames, 0)
    assert outcome.wrong == outcome.poor == []
    assert outcome.missing == ""


def test_damage_never_shifts_a_number(made, tmp_path):
    require_no_wrong_number(outcomes(_SMALL, range(20), made, tmp_path), 0.01)


@pytest.mark.slow
def test_damage_never_shifts_a_number_in_200_videos(made, tmp_path):
    require_no_wrong_number(outcomes(BASES, range(200), made, tmp_path), 0.005)


@pytest.mark.slow
@pytest.mark.parametrize("base", OTHER_BASES, ids=lambda base: base.name)
def test_other_containers_are_readable_to_the_last_frame(base, made):
    path, originals = made(base)
    outcome = examine(path, originals, base.kind, "none", caution=False)
    assert (outcome.readable, outcome.wrong, outcome.poor) == (base.frames, [], [])


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5, 6])
def test_a_frame_read_alone_is_the_frame_of_the_stream(seed, made, tmp_path):
    base = _SMALL[seed % len(_SMALL)]
    target, _ = damaged(made(base)[0], seed, tmp_path)
    try:
        with open_study(target) as study:
            streamed = {frame.number: frame for frame in study}
    except EnteronError as error:
        pytest.skip(f"refused: {error}")
    with open_study(target) as study:
        for number in [*list(streamed)[::-23], *list(streamed)[::31]]:
            alone, frame = study.frame(number), streamed[number]
            assert (alone.image is None) == (frame.image is None), number
            assert alone.problem == frame.problem
            assert alone.time == frame.time
            if alone.image is not None and frame.image is not None:
                assert (alone.image == frame.image).all()
                assert number_in(alone.image) == number


@pytest.mark.parametrize(
    "name", ["plain.mkv", "b.mp4", "asp-b.avi", "b.mpg", "b.ts"], ids=lambda name: name
)
def test_frames_outside_the_damaged_group_stay_readable(name, made, tmp_path):
    """4,096 bytes overwritten in the middle: at most three groups of pictures are lost."""
    base = next(base for base in BASES if base.name == name)
    path, originals = made(base)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = bytes(4096)
    target = tmp_path / path.name
    target.write_bytes(data)
    outcome = examine(target, originals, base.kind, "", caution=False)
    assert outcome.wrong == []
    assert 0 < base.frames - outcome.readable <= 3 * int(base.options["g"])
