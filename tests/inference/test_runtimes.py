"""Every runtime gives the embeddings of torch, up to its drift, for any number of images."""

import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from enteron.errors import EnteronError, ModelError
from enteron.inference.onnx_graph import (
    export_graph,
    quantise_graph,
    quantise_weight,
    shifted_graph,
)
from enteron.inference.onnx_runtime import OnnxEncoder, openvino_installed
from enteron.inference.runtimes import candidate_runtimes, default_runtime, drift, make_encoder
from enteron.model.backbones import lite_backbone
from tests.inference.making import BLOCKS, image_batch, small_vit

ROUNDING = 2e-5  # of embeddings up to 3; sums of some thousand products in another order
RUNTIMES = ["onnx", "onnx-int8", "torch-int8", "openvino"]


@pytest.fixture(scope="module", autouse=True)
def graphs(tmp_path_factory):
    """A cache for this module: each backbone is exported once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENTERON_CACHE", str(tmp_path_factory.mktemp("graphs")))
        yield


@pytest.fixture(scope="module")
def vit():
    return small_vit()


@pytest.fixture(scope="module")
def lite():
    return lite_backbone()


@pytest.fixture(scope="module", params=RUNTIMES)
def encoder(request, vit):
    if request.param == "openvino" and not openvino_installed():
        pytest.skip("needs the extra 'openvino'")
    return make_encoder(vit, request.param)


@pytest.fixture(scope="module")
def exact(vit):
    return make_encoder(vit, "exact")


def test_exact_is_the_backbone_itself(vit, exact):
    images = image_batch(3)
    normalised = (torch.from_numpy(images).double() / 255 - 0.5) / 0.5
    with torch.inference_mode():
        expected = vit.eval()(normalised.float()).numpy()
    assert exact.runtime == "torch"
    np.testing.assert_allclose(exact.encode(images), expected, atol=ROUNDING)


def test_a_runtime_is_near_the_exact_one(vit, exact, encoder):
    images = image_batch(4)
    measured = drift(encoder.encode(images), exact.encode(images))
    if encoder.runtime in ("onnx", "openvino"):
        assert measured.largest < ROUNDING
    else:
        # Int8 is neither fp32 by mistake nor nonsense.
        assert 0.995 < measured.cosine < 0.99999
    assert encoder.backbone_hash == vit.hash()
    assert encoder.preprocessing == vit.spec.preprocessing


@pytest.mark.parametrize("count", [0, 1, 5])
def test_any_number_of_pictures(encoder, count):
    features = encoder.encode(image_batch(count))
    assert features.shape == (count, 512)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


def test_more_pictures_than_a_batch(exact, encoder):
    """Rows stay in their order across calls and threads."""
    images = image_batch(max(exact.batch, encoder.batch) + 3)
    expected = exact.encode(images)
    features = encoder.encode(images)
    nearest = (features @ expected.T / np.linalg.norm(expected, axis=1)).argmax(axis=1)
    assert nearest.tolist() == list(range(len(images)))


def test_views_in_another_memory_order_give_the_same_bits(encoder, exact):
    images = image_batch(2)
    channels_last = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    flipped = images[..., ::-1]
    for runtime in (encoder, exact):
        np.testing.assert_array_equal(runtime.encode(channels_last), runtime.encode(images))
        np.testing.assert_array_equal(runtime.encode(flipped), runtime.encode(flipped.copy()))


def test_embeddings_do_not_depend_on_the_batch(vit):
    """The same bits for an image alone and in a batch, even with dynamic scales."""
    images = image_batch(5)
    images[0] = 255 * (images[0] > 128)  # a neighbour with the largest activations
    for runtime in ("onnx", "onnx-int8"):
        encoder = make_encoder(vit, runtime, threads=2)
        together = encoder.encode(images)
        alone = np.concatenate([encoder.encode(images[row : row + 1]) for row in range(5)])
        np.testing.assert_array_equal(together, alone)
        single = make_encoder(vit, runtime, threads=1)
        np.testing.assert_array_equal(single.encode(images), together)


def test_torch_int8_depends_on_the_batch(vit):
    """Why it is never chosen: its scales are the batch's."""
    encoder, images = make_encoder(vit, "torch-int8"), image_batch(4)
    images[0] = 255 * (images[0] > 128)
    difference = np.abs(encoder.encode(images)[1] - encoder.encode(images[1:2])[0]).max()
    assert difference > 100 * ROUNDING
    assert "torch-int8" not in candidate_runtimes(vit)


def test_lite_in_onnx_is_exact_but_for_rounding(lite):
    images = image_batch(3, seed=1)
    assert default_runtime(lite) == "onnx"
    measured = drift(
        make_encoder(lite, "onnx").encode(images), make_encoder(lite, "exact").encode(images)
    )
    assert measured.largest < ROUNDING
    assert measured.of_spread < 1e-5


def test_differential_attention_is_exported():
    backbone = small_vit(differential=True)
    images = image_batch(2)
    measured = drift(
        make_encoder(backbone, "onnx").encode(images),
        make_encoder(backbone, "exact").encode(images),
    )
    assert measured.largest < ROUNDING


def test_vits_are_exact_by_default(vit):
    assert default_runtime(vit) == "torch"


def test_threads_of_torch_are_put_back(vit):
    before = torch.get_num_threads()
    make_encoder(vit, "exact", threads=before + 1).encode(image_batch(1))
    assert torch.get_num_threads() == before


# The int8 weights


def test_weights_round_to_the_nearest_of_129_values():
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(50, 7)).astype(np.float32)
    weight[:, 3] = 0
    values, scales = quantise_weight(weight)
    assert values.dtype == np.int8
    assert np.abs(values.astype(int)).max(axis=0).tolist() == [64, 64, 64, 0, 64, 64, 64]
    assert (np.abs(values * scales - weight) <= scales / 2 * (1 + 1e-5)).all()


def test_every_linear_layer_of_the_trunk_is_quantised(vit):
    graph = export_graph(vit)
    model = onnx.load_from_string(quantise_graph(graph))
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("DynamicQuantizeMatMul") == 4 * BLOCKS  # qkv, proj, fc1, fc2
    weights = [t for t in model.graph.initializer if t.name.endswith(".int8")]
    assert sum(numpy_helper.to_array(t).size for t in weights) == BLOCKS * 12 * 192 * 192
    assert len(model.SerializeToString()) < len(graph) - 2 * 12 * 192 * 192 * BLOCKS  # fp32 is gone


# Refusals


def test_an_unknown_runtime_is_refused(vit):
    with pytest.raises(EnteronError, match="no runtime 'onx'; did you mean 'onnx'"):
        make_encoder(vit, "onx")
    with pytest.raises(EnteronError, match="'auto', 'exact', 'torch'"):
        make_encoder(vit, "quantum-leap")


def test_threads_below_one_are_refused(vit):
    with pytest.raises(EnteronError, match="on 0 threads; give at least 1"):
        make_encoder(vit, "exact", threads=0)


def test_openvino_that_is_not_installed_is_named(vit, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(EnteronError, match=r"OpenVINO is not installed; pip install .*openvino"):
        make_encoder(vit, "openvino")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA card here")
def test_a_card_that_is_not_there_is_named(vit):
    with pytest.raises(EnteronError, match="'cuda-fp16' needs a CUDA card, and torch sees none"):
        make_encoder(vit, "cuda-fp16")


def test_int8_of_convolutions_needs_pictures(lite):
    with pytest.raises(EnteronError, match="needs pictures to be calibrated on; pack the model"):
        make_encoder(lite, "onnx-int8")


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((1, 3, 64, 64), np.uint8), np.zeros((1, 3, 224, 224)), np.zeros((3, 224, 224), "u1")],
    ids=["size", "type", "no batch"],
)
def test_other_arrays_are_refused(exact, encoder, wrong):
    for runtime in (exact, encoder):
        with pytest.raises(ModelError, match=r"give uint8 images \(n, 3, 224, 224\)"):
            runtime.encode(wrong)


def test_a_shifted_graph_adds_a_constant_and_nothing_else():
    backbone = small_vit()
    graph = export_graph(backbone)
    shift = np.linspace(-1, 1, 512, dtype=np.float32)
    preprocessing = backbone.spec.preprocessing
    size = preprocessing.size
    images = np.random.default_rng(0).integers(0, 256, (3, 3, size, size), dtype=np.uint8)
    plain = OnnxEncoder(graph, "onnx", "", preprocessing, 1).encode(images)
    moved = OnnxEncoder(shifted_graph(graph, shift), "onnx", "", preprocessing, 1).encode(images)
    np.testing.assert_allclose(moved, plain + shift, atol=1e-5)
