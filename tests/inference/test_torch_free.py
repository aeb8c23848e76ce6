"""Encoding with an exported graph, and opening a store, work without torch."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    "module",
    ["onnx_runtime", "runtimes", "encoder", "pictures", "store", "embed", "score", "graph_model"],
)
def test_the_module_imports_neither_torch_nor_the_phantom(module):
    code = (
        f"import sys, enteron.inference.{module}\n"
        "print([m for m in sys.modules if m == 'torch' or m.startswith('enteron.phantom')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_a_graph_runs_without_torch(tmp_path):
    """The encoder of a graph that was exported earlier, in a process that cannot import torch."""
    from enteron.inference.onnx_graph import export_graph
    from tests.model.making import FakeBackbone

    backbone = FakeBackbone()
    (tmp_path / "graph.onnx").write_bytes(export_graph(backbone))
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from enteron.inference.onnx_runtime import OnnxEncoder\n"
        "from enteron.model.preprocessing import Preprocessing\n"
        "graph = Path(sys.argv[1]).read_bytes()\n"
        "encoder = OnnxEncoder(graph, 'onnx', '', Preprocessing(size=8), 1)\n"
        "print(encoder.encode(np.zeros((2, 3, 8, 8), np.uint8)).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "graph.onnx"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "(2, 512)"
