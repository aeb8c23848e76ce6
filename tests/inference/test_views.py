"""Mirrored and turned views: what they are, what is stored of them, and how they are averaged."""

import numpy as np
import pytest
import torch

from enteron.errors import ModelError
from enteron.inference.embed import embed_study
from enteron.inference.score import score_study
from enteron.inference.store import open_embeddings
from enteron.inference.views import VIEW_SETS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.model.preprocessing import window_rows
from enteron.study import open_study
from tests.inference.stub import StubEncoder, stub_features
from tests.making import write_frames

FRAMES = np.arange(2)


def by_hand(image: np.ndarray) -> dict[str, np.ndarray]:
    """Turns and flips by numpy of one image (3, size, size)."""
    planes = image.transpose(1, 2, 0)
    changed = {
        "plain": planes,
        "flipped": np.fliplr(planes),
        "flipped-vertically": np.flipud(planes),
        "turned-90": np.rot90(planes, 1),
        "turned-180": np.rot90(planes, 2),
        "turned-270": np.rot90(planes, 3),
        "transposed": planes.transpose(1, 0, 2),
        "transversed": np.rot90(planes, 2).transpose(1, 0, 2),
    }
    return {name: picture.transpose(2, 0, 1) for name, picture in changed.items()}


def test_views_are_the_eight_symmetries_of_a_square():
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 5), dtype=np.uint8)
    seen = set()
    for view in VIEW_SETS["d4"]:
        changed = view.change(images, FRAMES)
        for image, result in zip(images, changed, strict=True):
            np.testing.assert_array_equal(result, by_hand(image)[view.name])
        assert changed.flags.c_contiguous
        seen.add(changed.tobytes())
    assert len(seen) == 8
    assert [len(views) for views in VIEW_SETS.values()] == [1, 2, 4, 8]
    for fewer, more in zip(("none", "flip", "flips"), ("flip", "flips", "d4"), strict=True):
        assert VIEW_SETS[more][: len(VIEW_SETS[fewer])] == VIEW_SETS[fewer]


def test_the_group_is_closed():
    """Two symmetries after each other are a symmetry."""
    image = np.arange(9, dtype=np.uint8).reshape(1, 1, 3, 3)
    orbit = {view.change(image, FRAMES).tobytes() for view in VIEW_SETS["d4"]}
    for first in VIEW_SETS["d4"]:
        for second in VIEW_SETS["d4"]:
            assert second.change(first.change(image, FRAMES), FRAMES).tobytes() in orbit


def test_all_views_are_stored_and_a_killed_run_ends_with_the_same_bytes(tmp_path):
    study = open_study(write_frames(tmp_path / "7", range(150), size=40))
    views = VIEW_SETS["d4"]
    whole = embed_study(study, StubEncoder(), tmp_path / "whole.npy", views=views)
    assert whole.features.shape == (150, 8, 512)
    assert whole.key.views == tuple(view.name for view in views)

    class KilledError(Exception):
        pass

    done = 0

    def kill(count: int) -> None:
        nonlocal done
        done += count
        if done >= 64:
            raise KilledError

    with pytest.raises(KilledError):
        embed_study(study, StubEncoder(), tmp_path / "part.npy", None, kill, views=views)
    assert not (tmp_path / "part.npy").exists()
    embed_study(study, StubEncoder(), tmp_path / "part.npy", views=views)
    assert (tmp_path / "part.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    # A partial or finished store of other views is refused, and left as it is.
    before = (tmp_path / "whole.npy").read_bytes()
    with pytest.raises(ModelError, match="made with other views of each picture"):
        embed_study(study, StubEncoder(), tmp_path / "whole.npy", views=VIEW_SETS["flips"])
    assert (tmp_path / "whole.npy").read_bytes() == before


def test_a_store_of_two_views_has_the_bytes_it_always_had(tmp_path):
    """The default set, its names and its order are part of every store that exists."""
    study = open_study(write_frames(tmp_path / "7", range(3), size=32))
    embed_study(study, StubEncoder(), tmp_path / "s.npy")
    stored = open_embeddings(tmp_path / "s.npy")
    assert stored.key.views == ("plain", "flipped")
    pictures = [study.frame(n).image for n in range(3)]
    images = np.stack([p.transpose(2, 0, 1) for p in pictures if p is not None])
    np.testing.assert_array_equal(stored.features[:, 0], stub_features(images))
    np.testing.assert_array_equal(stored.features[:, 1], stub_features(images[..., ::-1]))


def test_scores_are_the_mean_over_the_views(tmp_path):
    study = open_study(write_frames(tmp_path / "7", range(6), size=40))
    embeddings = embed_study(study, StubEncoder(), tmp_path / "s.npy", views=VIEW_SETS["d4"])
    net = start_network(ModelOptions(backbone="vit-tiny")).eval()
    windows = torch.from_numpy(np.array(embeddings.features[window_rows(6)]))  # (6, 3, 8, 512)
    with torch.inference_mode():
        each = [net.classify(windows[:, :, view]).logits.sigmoid() for view in range(8)]
    for views, members in VIEW_SETS.items():
        expected = torch.stack(each[: len(members)]).mean(0)
        scores = score_study(net, embeddings, views=views)
        np.testing.assert_allclose(scores.values, expected, atol=1e-6)
    two = embed_study(study, StubEncoder(), tmp_path / "two.npy")
    np.testing.assert_array_equal(
        score_study(net, two).values, score_study(net, embeddings, views="flip").values
    )
    with pytest.raises(ModelError, match="have no view 'flipped-vertically'"):
        score_study(net, two, views="flips")
