"""Nothing leaves the machine, and nothing is left on it: not by the libraries either."""

import os
import subprocess
import sys


def test_onnxruntime_leaves_no_trace_and_reports_nothing(tmp_path):
    """On import it writes `deviceid` and a queue of events, unless it is told not to."""
    environment = {name: v for name, v in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    environment.pop("XDG_CACHE_HOME", None)
    program = "import enteron.inference.onnx_runtime"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert not list(tmp_path.rglob("*"))
