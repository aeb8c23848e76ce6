"""Trainings in their own processes: killed at any moment, and several as one."""

import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from enteron.training.options import TrainingOptions
from tests.conftest import ROOT
from tests.training.making import small_options


class TrainingProcesses:
    """Starts `tests.training.training_process`, always with the same options."""

    def __init__(self, folder: Path, options: TrainingOptions) -> None:
        self.folder = folder
        (folder / "options.json").write_text(options.model_dump_json())

    def start(self, checkpoints: str, out: str, **environment: str) -> subprocess.Popen[str]:
        paths = [
            self.folder / "options.json",
            "-" if checkpoints == "-" else self.folder / checkpoints,
        ]
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.training.training_process",
                *map(str, paths),
                str(self.folder / out),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )

    def finish(self, process: subprocess.Popen[str]) -> str:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        return out


def kill_after(process: subprocess.Popen[str], steps: int, delay: float) -> int:
    """SIGKILL, `delay` seconds after a number of printed steps; how many were read."""
    assert process.stdout is not None
    read_steps = 0
    while read_steps < steps and process.stdout.readline():
        read_steps += 1
    try:
        process.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return read_steps


def same_bytes_after_kills(folder: Path, kills: int, options: TrainingOptions) -> None:
    trainings = TrainingProcesses(folder, options)
    trainings.finish(trainings.start("-", "whole.safetensors"))
    draw = random.Random(20261116)
    for _ in range(kills):
        process = trainings.start("checkpoints", "resumed.safetensors")
        kill_after(process, draw.randint(0, 3), draw.random() * 0.08)
        assert process.returncode == -signal.SIGKILL
    trainings.finish(trainings.start("checkpoints", "resumed.safetensors"))
    whole, resumed = (folder / name for name in ("whole.safetensors", "resumed.safetensors"))
    assert whole.read_bytes() == resumed.read_bytes()


@pytest.mark.slow
def test_the_same_bytes_after_two_kills(tmp_path):
    same_bytes_after_kills(tmp_path, 2, small_options(checkpoint_steps=1))


@pytest.mark.slow
def test_the_same_bytes_after_ten_kills(tmp_path):
    same_bytes_after_kills(tmp_path, 10, small_options(checkpoint_steps=1, epochs=8))


def free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


def test_two_processes_are_as_one(tmp_path):
    """Dropout, mixup, BatchNorm and accumulation included: equal up to rounding.

    Sums are added in another order, and AdamW divides small gradients by their own size, so single
    weights may part by more than the rounding itself; over 12 steps they stay within 1e-4.
    """
    trainings = TrainingProcesses(
        tmp_path, small_options(accumulate=2, batch=8, checkpoint_steps=100)
    )
    trainings.finish(trainings.start("-", "one.safetensors"))
    port = free_port()
    pair = [
        trainings.start(
            "-",
            "two.safetensors",
            RANK=str(rank),
            WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        for rank in (0, 1)
    ]
    for process in pair:
        trainings.finish(process)
    one, two = (load_file(tmp_path / f"{name}.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=1e-4, msg=name)
