"""Fixtures of every test.

Tests make their own data. A check that needs `../shared` says so and skips where it is absent.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from enteron.cli import main

ROOT = Path(__file__).parents[1]

# Deterministic: the same examples on every run. The machines are slow and shared: no deadlines.
settings.register_profile(
    "enteron", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("enteron")


@pytest.fixture(scope="session")
def real_events() -> Path:
    """The real event annotation of 60 studies."""
    path = ROOT.parent / "shared" / "galar" / "events-60.json"
    if not path.exists():
        pytest.skip("needs ../shared/galar/events-60.json, which is not here")
    return path


@pytest.fixture
def enteron(tmp_path):
    """Run the command line as a person would, in a process of its own, in an empty folder."""

    def run(*arguments: object, cwd: Path = tmp_path, code: int | None = 0, timeout: int = 120):
        done = subprocess.run(
            [sys.executable, "-m", "enteron", *map(str, arguments)],
            cwd=cwd,
            capture_output=True,
            text=True,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"},
            timeout=timeout,
        )
        if code is not None:
            assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """`enteron …` in this process: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["enteron", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return code or 0, said.out, said.err

    return run


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; tests that need one skip where it is not installed."""
    from tests.browser import Browser, chromium

    if chromium() is None:
        pytest.skip("needs Chromium (apt-get install chromium), which is not installed")
    with Browser() as browser:
        yield browser
