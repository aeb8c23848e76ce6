"""Packed model folders: read without torch, the same numbers as with it, and nothing else."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from typer.testing import CliRunner

import enteron
from benchmarks import plain_install
from enteron.calibration import Calibration, FittedFor
from enteron.cli import app
from enteron.datasets.dataset import Dataset
from enteron.datasets.layouts import Source
from enteron.errors import EnteronError, ModelError
from enteron.folders.model import (
    default_model,
    load_calibration,
    load_model,
    open_model,
    read_record,
    save_calibration,
    save_model,
)
from enteron.folders.packing import pack_model
from enteron.folders.reading import trained_on_sentence
from enteron.inference.accelerator import uses_cuda
from enteron.inference.embed import embed_study
from enteron.inference.graph_model import GraphBackbone, StoredGraph
from enteron.inference.graph_weights import WEIGHTS_FILE
from enteron.inference.runtimes import (
    candidate_runtimes,
    default_runtime,
    drift,
    make_encoder,
)
from enteron.labels import LABELS
from enteron.model import requirements
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.model.preprocessing import window_rows
from enteron.model.tensor_table import read_table
from enteron.priors import load_priors, priors_hash
from enteron.study import open_study
from enteron.training.run import training_sources
from enteron.training.sampling import Samples, StudySamples
from enteron.types import FrameLabels, Layout, TrainingSource
from tests.conftest import ROOT
from tests.making import label_rows, picture, write_frames, write_labels
from tests.model.making import smooth_images

SOURCES = (
    TrainingSource(title="synthetic studies", kind="drawings", studies=3, frames=180),
    TrainingSource(title="Kvasir-Capsule", kind="real frames", studies=1, frames=20),
)
BLOCKED = ("torch", "torchvision", "timm", "open_clip", "transformers", "onnx", "onnxscript",
           "safetensors")  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A network whose every part has weights that matter."""
    folder = tmp_path_factory.mktemp("models") / "plain"
    network = start_network(ModelOptions(backbone="lite", local_evidence=True, biases=True))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in network.named_parameters():
            if not name.startswith("backbone.trunk"):
                tensor.add_(0.05 * torch.randn(tensor.shape, generator=generator))
        for name, tensor in network.named_buffers():
            if name.endswith("head.excitation.norm.running_mean"):
                tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator))
    save_model(folder, network, sources=SOURCES)
    return folder


@pytest.fixture(scope="module")
def packed(plain) -> Path:
    folder = plain.parent / "packed"
    assert not pack_model(plain, folder, name="stand-in 1").calibrated
    return folder


@pytest.fixture
def broken(packed, tmp_path) -> Path:
    """A copy to break."""
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in packed.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def images(count: int) -> np.ndarray:
    return np.stack([(255 * image).astype(np.uint8) for image in smooth_pictures(count)])


def smooth_pictures(count: int) -> np.ndarray:
    values = smooth_images(count, 224).numpy()
    return (values - values.min()) / (values.max() - values.min())


# ---- the same numbers


def test_graphs_compute_what_torch_does(packed):
    network, record = load_model(packed)
    model = open_model(packed)
    assert isinstance(model.backbone, GraphBackbone)
    batch = images(4)
    graph = make_encoder(model.backbone, default_runtime(model.backbone)).encode(batch)
    exact = make_encoder(network.backbone, "exact").encode(batch)
    assert np.abs(exact[:, 512:]).max() > 0.1  # local evidence says something
    np.testing.assert_allclose(graph, exact, atol=2e-5 * np.abs(exact).max())
    # A study of one frame, of two, and of many windows.
    for count in (1, 2, 60):
        features = np.random.default_rng(count).normal(size=(count, 521)).astype(np.float32)
        rows = window_rows(count, 1, record.options.frames)
        expected = network.probabilities(features, rows)
        np.testing.assert_allclose(model.head.probabilities(features, rows), expected, atol=2e-6)
        assert expected.std() > 0.05
    few = window_rows(60, 1, 3)[7:9]  # fewer windows than frames
    np.testing.assert_allclose(
        model.head.probabilities(features, few), network.probabilities(features, few), atol=2e-6
    )


def test_rounding_moves_scores_little(plain, packed):
    features = np.random.default_rng(0).normal(size=(40, 521)).astype(np.float32)
    rows = window_rows(40, 1, 3)
    before, after = (load_model(f)[0].probabilities(features, rows) for f in (plain, packed))
    assert 0 < np.abs(before - after).max() < 0.01


def test_a_packed_folder_is_small_and_holds_no_weight_twice(plain, packed):
    record = read_record(packed)
    assert (record.precision, record.name, record.sources) == ("half", "stand-in 1", SOURCES)
    assert record.graphs is not None
    assert sum(file.stat().st_size for file in packed.iterdir()) < 12e6
    for name, digest in record.graphs.items():
        content = (packed / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert len(content) < 200_000
        assert str(ROOT).encode() not in content  # no place of this machine
    assert record.weights_hash != read_record(plain).weights_hash


def test_packing_again_changes_nothing_and_keeps_the_calibration(broken, tmp_path):
    record = read_record(broken)
    fitted_for = FittedFor(
        origin="model",
        weights=record.weights_hash,
        settings=record.settings_hash,
        priors=priors_hash(load_priors()),
        study_ids=(),
    )
    save_calibration(Calibration(fitted_for=fitted_for), broken / "calibration.json")
    again = tmp_path / "again"
    assert pack_model(broken, again).calibrated
    assert read_record(again) == record
    assert load_calibration(again).fitted_for == fitted_for
    with pytest.raises(ModelError, match="'again' holds a model already; give a new folder"):
        pack_model(broken, again)


# ---- int8


@pytest.fixture(scope="module")
def with_int8(plain, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("galar")
    write_frames(root / "Galar_Frames_1_to_10" / "1", range(1, 13), size=64)
    write_labels(root / "Labels" / "1.csv", label_rows((12, ["small_intestine"])), first=1)
    folder = plain.parent / "with-int8"
    pack_model(plain, folder, int8=[root])
    return folder


def test_int8_is_another_runtime_of_a_packed_folder(with_int8, packed):
    model, reference = open_model(with_int8).backbone, open_model(packed).backbone
    assert read_record(with_int8).weights_hash == read_record(packed).weights_hash
    assert sum(file.stat().st_size for file in with_int8.iterdir()) < 12e6
    assert default_runtime(model) == "onnx"
    assert candidate_runtimes(model) == ("onnx", "onnx-int8")
    size_and_crop = model.spec.preprocessing.resize_and_crop
    batch = np.stack([size_and_crop(picture(number)) for number in (2, 7, 11)])
    exact = make_encoder(reference, "onnx").encode(batch)
    encoder = make_encoder(model, "onnx-int8")
    assert encoder.runtime == "onnx-int8"
    measured = drift(encoder.encode(batch), exact)
    assert measured.cosine > 0.99
    assert 1e-4 < measured.of_spread < 0.3  # near, and not the same


def test_embeddings_of_another_quantisation_are_refused(with_int8, tmp_path):
    """The same weights packed on other pictures have other scales, and give other embeddings."""
    study = open_study(write_frames(tmp_path / "77", range(3), size=64))
    backbone = open_model(with_int8).backbone
    assert isinstance(backbone, GraphBackbone)
    encoder = backbone.int8_encoder(1)
    graph = (with_int8 / "encoder-int8.onnx").read_bytes()
    assert encoder.quantisation == hashlib.sha256(graph).hexdigest()
    embed_study(study, encoder, tmp_path / "stored.npy")
    encoder.quantisation = "0" * 64
    with pytest.raises(EnteronError, match="quantisation of the encoder"):
        embed_study(study, encoder, tmp_path / "stored.npy")


def test_int8_is_read_without_torch(with_int8, tmp_path):
    write_frames(tmp_path / "77", range(6), size=64)
    code = (
        "from enteron.cli import app\n"
        "app(['read', '77', '--out', 'out', '--runtime', 'onnx-int8'], standalone_mode=False)\n"
    )
    done = run_blocked(code, tmp_path, ENTERON_MODEL=str(with_int8))
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["runtime"]["name"] == "onnx-int8"


def test_a_folder_without_int8_says_how_to_get_it(packed, plain, tmp_path):
    with pytest.raises(ModelError, match="has no encoder in int8; use --runtime onnx, or pack"):
        make_encoder(open_model(packed).backbone, "onnx-int8")
    with pytest.raises(EnteronError):
        pack_model(plain, tmp_path / "out", int8=[tmp_path / "nothing"])
    assert not (tmp_path / "out").exists()


# ---- without torch


def run_blocked(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which nothing of the extra `train` can be imported."""
    block = f"import sys\nfor name in {BLOCKED!r}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", block + code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables,
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_a_study_is_read_in_a_process_without_torch(packed, tmp_path):
    write_frames(tmp_path / "77", range(6), size=64)
    code = (
        "import enteron\n"
        "reading = enteron.read('77', out='out')\n"
        "print(reading.run.model.sentence)\n"
    )
    done = run_blocked(code, tmp_path, ENTERON_MODEL=str(packed))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "stand-in 1 (no model was named), trained on synthetic studies (drawings, 3 studies) and "
        "Kvasir-Capsule (real frames, 1 study)"
    )
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["model"]["name"] == "stand-in 1"
    assert run["model"]["default"] is True
    assert [source["kind"] for source in run["model"]["sources"]] == ["drawings", "real frames"]
    assert run["runtime"]["name"] == "onnx"
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    with_torch = enteron.read(tmp_path / "77", model=packed, out=tmp_path / "again")
    stored = enteron.load(tmp_path / "out")
    np.testing.assert_array_equal(stored.scores.values, with_torch.scores.values)


@pytest.fixture
def no_torch(monkeypatch):
    """As if it were not installed, for what asks first."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not requirements.torch_installed()


def test_what_needs_torch_says_so(plain, packed, tmp_path, no_torch):
    with pytest.raises(ModelError, match=r"'plain' is not packed.*pip install 'enteron\[train\]'"):
        open_model(plain)
    install = r"needs torch, which is not installed; pip install 'enteron\[train\]'"
    with pytest.raises(EnteronError, match=f"a CUDA card {install}"):
        uses_cuda("cuda")
    assert not uses_cuda("auto")
    backbone = open_model(packed).backbone
    assert candidate_runtimes(backbone) == ("onnx",)
    with pytest.raises(EnteronError, match=f"the network in 'packed' {install}"):
        make_encoder(backbone, "exact")
    runner = CliRunner()
    for command in (
        ["train", str(tmp_path), "--out", str(tmp_path / "m")],
        ["pack", str(plain), "--out", str(tmp_path / "m")],
    ):
        error = runner.invoke(app, command).exception
        assert isinstance(error, EnteronError)
        assert "needs torch, which is not installed" in str(error)
    assert not (tmp_path / "m").exists()


def test_a_packed_model_can_still_run_in_torch(packed):
    backbone = open_model(packed).backbone
    encoder = make_encoder(backbone, "exact")
    assert (encoder.runtime, encoder.backbone_hash) == ("torch", backbone.hash())


# ---- the model that is used when none is named


def test_without_a_model_in_the_package_the_sentence_asks_for_one(monkeypatch, tmp_path):
    monkeypatch.delenv("ENTERON_MODEL", raising=False)
    monkeypatch.setattr("enteron.folders.model.files", lambda package: tmp_path)
    with pytest.raises(ModelError, match="no model of its own; give a model folder with --model"):
        default_model()


def test_the_command_takes_the_default_and_says_so(packed, tmp_path, monkeypatch):
    monkeypatch.setenv("ENTERON_MODEL", str(packed))
    folder = write_frames(tmp_path / "77", range(4), size=64)
    result = CliRunner().invoke(app, ["read", str(folder), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    output = " ".join(result.output.split())
    assert "The model 'stand-in 1' (no other was named) learnt from Kvasir-Capsule" in output


# ---- what is refused


@pytest.mark.parametrize("name", ["model.safetensors", "encoder.onnx", "head.onnx"])
def test_another_file_is_refused_and_a_missing_one(broken, name):
    content = bytearray((broken / name).read_bytes())
    content[len(content) // 2] ^= 1
    (broken / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"'{name}' is not the file that 'model.json' describes"):
        open_model(broken)
    (broken / name).unlink()
    with pytest.raises(ModelError, match=f"'{name}' is missing"):
        open_model(broken)


def change_graph(folder: Path, name: str, change) -> None:
    """Change a graph and the hash that names it: what a folder made to do harm would hold."""
    model = onnx.load_model_from_string((folder / name).read_bytes())
    change(model)
    content = model.SerializeToString()
    (folder / name).write_bytes(content)
    record = json.loads((folder / "model.json").read_text())
    record["graphs"][name] = hashlib.sha256(content).hexdigest()
    (folder / "model.json").write_text(json.dumps(record))


def first_external(model: onnx.ModelProto) -> onnx.TensorProto:
    return next(tensor for tensor in model.graph.initializer if tensor.external_data)


def with_place(key: str, value: str):
    def change(model: onnx.ModelProto) -> None:
        entry = next(e for e in first_external(model).external_data if e.key == key)
        entry.value = value

    return change


def external_constant(model: onnx.ModelProto) -> None:
    tensor = onnx.TensorProto(name="c", data_type=1, dims=[1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=tensor))


def inner_graph(model: onnx.ModelProto) -> None:
    inner = onnx.helper.make_graph([], "inner", [], [])
    model.graph.node.append(
        onnx.helper.make_node("If", ["c"], ["d"], then_branch=inner, else_branch=inner)
    )


def sparse_tensor(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.add()


def function(model: onnx.ModelProto) -> None:
    model.functions.add(name="f")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_place("location", "/etc/passwd"), "takes numbers from another file"),
        (with_place("location", "../model.safetensors"), "takes numbers from another file"),
        (with_place("location", "./model.safetensors"), "takes numbers from another file"),
        (with_place("offset", "0"), "asks for a tensor that 'model.safetensors' does not have"),
        (with_place("length", "2"), "asks for a tensor that 'model.safetensors' does not have"),
        (with_place("offset", "x"), "is not a graph that enteron wrote"),
        (with_place("offset", "-8"), "asks for a tensor"),
        (external_constant, "is not a graph that enteron wrote"),
        (inner_graph, "is not a graph that enteron wrote"),
        (sparse_tensor, "is not a graph that enteron wrote"),
        (function, "is not a graph that enteron wrote"),
    ],
)
def test_a_graph_that_reaches_out_of_its_folder_is_refused(broken, change, sentence):
    change_graph(broken, "head.onnx", change)
    with pytest.raises(ModelError, match=f"'head.onnx' {sentence}"):
        open_model(broken)


def test_the_graph_of_another_network_is_refused(broken):
    def wider(model: onnx.ModelProto) -> None:
        model.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 5

    change_graph(broken, "head.onnx", wider)
    with pytest.raises(ModelError, match=r"'head\.onnx' is"):
        open_model(broken)


def test_damaged_graphs_end_in_a_sentence(packed):
    """The reader of graphs raises nothing else, whatever the bytes; nor does the runtime."""
    weights, table = (packed / "model.safetensors").read_bytes(), read_table(packed / WEIGHTS_FILE)
    graph = (packed / "head.onnx").read_bytes()
    refused = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        content = bytearray(graph)
        for _ in range(int(rng.integers(1, 6))):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
        content = content[: int(rng.integers(1, len(content)))] if seed % 2 else content
        try:
            stored = StoredGraph.of("head.onnx", bytes(content), weights, table)
            if seed < 12:
                stored.session()
        except ModelError:
            refused += 1
    assert refused > 60


def test_a_record_with_one_graph_is_refused(broken):
    record = json.loads((broken / "model.json").read_text())
    del record["graphs"]["head.onnx"]
    (broken / "model.json").write_text(json.dumps(record))
    with pytest.raises(ModelError, match="names one graph of two"):
        open_model(broken)


def test_weights_too_large_for_half_precision_are_refused(tmp_path):
    network = start_network(ModelOptions(backbone="vit-tiny"))
    with torch.no_grad():
        network.backbone.projection.weight[0, 0] = 1e6
    save_model(tmp_path / "m", network)
    with pytest.raises(ModelError, match=r"'backbone.projection.weight' has numbers.*16 bits"):
        pack_model(tmp_path / "m", tmp_path / "p")
    assert not (tmp_path / "p" / "model.json").exists()


# ---- what trained a model


def samples_of(*studies: tuple[str, int], title: str = "") -> list[StudySamples]:
    return [
        StudySamples(
            study,
            np.arange(count),
            np.arange(count),
            FrameLabels.complete(np.zeros((count, len(LABELS)), bool)),
            title,
        )
        for study, count in studies
    ]


def source_of(title: str, synthetic: bool) -> Source:
    return Source(Dataset(Layout.GALAR, title, "root", "", {}, synthetic=synthetic), title, "")


def test_drawings_are_known_by_their_root_or_by_their_studies():
    drawn, moved = source_of("synthetic studies", True), source_of("studies", False)
    both = samples_of(("a", 5), title=drawn.title) + samples_of(("b", 2), ("c", 3), title="studies")
    request = SimpleNamespace(options=SimpleNamespace(model=ModelOptions(backbone="lite")))
    plan: Any = SimpleNamespace(sources=(drawn, moved), request=request, boxes={})
    for says, kind in (
        ({"b": True, "c": True}, "drawings"),
        ({"b": True}, "drawings and real frames"),
        ({}, "real frames"),
    ):
        sources = training_sources(plan, Samples(both), says)
        assert [source.kind for source in sources] == ["drawings", kind]
        assert [(source.studies, source.frames) for source in sources] == [(1, 5), (2, 5)]
    # The samples of a single source bear no title.
    single: Any = SimpleNamespace(sources=(drawn,), request=request, boxes={})
    alone = training_sources(single, Samples(samples_of(("a", 4))), {})
    assert [(source.kind, source.studies, source.frames) for source in alone] == [
        ("drawings", 1, 4)
    ]


def test_a_model_of_drawings_says_that_it_has_seen_nothing_real():
    assert trained_on_sentence(SOURCES[:1]) == (
        "trained on synthetic studies (drawings, 3 studies): it has never seen a real frame"
    )
    assert trained_on_sentence(()) == "which does not say what it was trained on"


# ---- a plain installation


@pytest.mark.slow
def test_a_plain_installation_reads_a_video_offline(packed, capsys):
    plain_install.main(["--model", str(packed)])
    assert "both pages are complete" in capsys.readouterr().out
