"""Files are whole or not there."""

import os
import stat

import pytest

from enteron.errors import EnteronError
from enteron.files import write_bytes, write_text


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "one")
    write_text(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        EnteronError, match=r"could not be written completely \(No space left on device"
    ):
        write_bytes(path, b"new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(EnteronError, match="cannot be written"):
        write_text(tmp_path / "none" / "a.txt", "x")
