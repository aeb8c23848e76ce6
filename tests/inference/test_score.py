import numpy as np
import pytest
import torch

from enteron.errors import ModelError
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.runtimes import make_encoder
from enteron.inference.score import probe_effect, score_study
from enteron.inference.store import UNREADABLE, Embeddings, Probe, StoreKey, StoreRecord
from enteron.labels import LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.model.preprocessing import window_rows
from enteron.study import open_study
from tests.making import write_frames

KEY = StoreKey(
    backbone="", preprocessing="", runtime="", views=("plain", "flipped"), precision="float32",
    redundancy=None, samples="", study="",
)  # fmt: skip


def stored(rows, unreadable=(), probes=(), seed=0):
    features = np.random.default_rng(seed).normal(size=(rows, 2, 512)).astype(np.float32)
    source = np.arange(rows, dtype=np.int32)
    source[list(unreadable)] = UNREADABLE
    features[list(unreadable)] = np.nan
    record = StoreRecord(key=KEY, study="s", chunk=64, checksums=(), probes=probes)
    return Embeddings(record, np.arange(rows) * 5, source, features)


def network(**options):
    net = start_network(ModelOptions(backbone="vit-tiny", **options)).eval()
    with torch.no_grad():  # a fresh BatchNorm would hide what it does
        buffers = dict(net.get_submodule("head.excitation.norm").named_buffers())
        buffers["running_mean"].normal_()
        buffers["running_var"].uniform_(0.5, 2.0)
    return net


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"neighbour_step": 3},
        {"frames": 1},
        {"local_differencing": False},
        {"prototypes": False, "contrastive": False, "anatomy_conditioning": False},
    ],
)
def test_a_study_is_scored_as_its_windows_one_by_one(options, monkeypatch):
    monkeypatch.setattr("enteron.inference.score._BLOCK", 7)  # several blocks in a small study
    net, embeddings = network(**options), stored(40)
    scores = score_study(net, embeddings)
    rows = window_rows(40, net.options.neighbour_step, net.options.frames)
    with torch.inference_mode():
        for row in range(40):
            windows = torch.from_numpy(embeddings.features[rows[row]])  # (frames, views, 512)
            flips = [net.classify(windows[None, :, view]).logits.sigmoid()[0] for view in (0, 1)]
            expected = (flips[0] + flips[1]) / 2
            np.testing.assert_allclose(scores.values[row], expected, atol=1e-5)
    np.testing.assert_array_equal(scores.axis.frames, np.arange(40) * 5)


def test_without_flips_only_the_plain_view_counts():
    net, embeddings = network(), stored(10)
    scores = score_study(net, embeddings, views="none")
    windows = torch.from_numpy(embeddings.features[window_rows(10), 0])
    with torch.inference_mode():
        expected = net.classify(windows).logits.sigmoid()
    np.testing.assert_allclose(scores.values, expected, atol=1e-5)


def test_unreadable_frames_are_as_if_they_had_not_been_stored():
    net, embeddings = network(), stored(12, unreadable=(0, 5, 6, 11))
    scores = score_study(net, embeddings, times=np.linspace(0, 5.5, 12))
    rows = embeddings.readable
    source = np.arange(8, dtype=np.int32)
    without = Embeddings(embeddings.record, rows * 5, source, embeddings.features[rows])
    np.testing.assert_array_equal(scores.values, score_study(net, without).values)
    assert scores.axis.frames.tolist() == [5, 10, 15, 20, 35, 40, 45, 50]
    assert scores.times is not None  # for the types
    assert scores.times.tolist() == [0.5, 1.0, 1.5, 2.0, 3.5, 4.0, 4.5, 5.0]


def test_a_study_without_a_readable_frame_is_refused():
    with pytest.raises(ModelError, match="study s has no readable frame"):
        score_study(network(), stored(3, unreadable=(0, 1, 2)))


def test_the_effect_of_redundancy_is_measured_on_probes():
    net = network()
    probes = (Probe(row=5, twin=2), Probe(row=9, twin=7))
    embeddings = stored(12, probes=probes)
    scores = score_study(net, embeddings)
    effect = probe_effect(net, embeddings, scores)
    differences = []
    for probe in probes:  # the study with only this frame's embedding replaced by its source's
        features = embeddings.features.copy()
        features[probe.row] = features[probe.twin]
        replaced = Embeddings(embeddings.record, embeddings.frames, embeddings.source, features)
        differences.append(np.abs(score_study(net, replaced).values - scores.values)[probe.row])
    assert effect is not None  # for the types
    assert effect.frames == 2
    assert effect.mean == pytest.approx(np.mean(differences), rel=1e-4)
    assert effect.largest == pytest.approx(np.max(differences), rel=1e-4)
    assert probe_effect(net, stored(12), score_study(net, stored(12))) is None


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_from_pictures_to_scores_as_the_paper_reads_them(tmp_path, precision):
    """Six passes per frame, written out, against one pass per picture and mirror image."""
    study = open_study(write_frames(tmp_path / "s", range(1, 8), size=96))
    net = network()
    encoder = make_encoder(net.backbone, "exact", threads=2)
    options = EmbedOptions(chunk=3, precision=precision)
    scores = score_study(net, embed_study(study, encoder, tmp_path / "s.npy", options))
    preprocessing = net.backbone.spec.preprocessing
    prepared = [preprocessing.apply(f.image) for f in study if f.image is not None]
    tolerance = 1e-4 if precision == "float32" else 5e-3
    with torch.inference_mode():
        for row in range(7):
            clip = torch.stack([prepared[max(row - back, 0)] for back in (2, 1, 0)])[None]
            flips = [net(c).logits.sigmoid()[0] for c in (clip, clip.flip(-1))]
            expected = (flips[0] + flips[1]).numpy() / 2
            np.testing.assert_allclose(scores.values[row], expected, atol=tolerance)
    assert scores.values.shape == (7, len(LABELS))
