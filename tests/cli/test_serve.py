"""`enteron serve`: what it refuses, and that it starts, answers and ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.report.making import write_folder


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "there is no folder 'nowhere'; give a folder of readings."),
        ((".", "--studies", "nowhere"), "there is no folder 'nowhere'; give the folder"),
        ((".", "--host", "192.0.2.7"), "others could reach 192.0.2.7 without a login"),
        ((".", "--host", "0.0.0.0", "--token"), "'0.0.0.0' stands for every address"),
        ((".", "--host", "reader", "--token"), "'reader' is not an address; give one"),
        ((".", "--token", "--users", "u.json"), "--token and --users exclude each other"),
        ((".", "--users", "u.json"), "there is no file 'u.json'; make it with `enteron"),
    ],
)
def test_refusals(command, arguments, sentence):
    code, said, wrong = command("serve", *arguments, "--no-open")
    assert code == 1
    assert wrong.startswith(f"enteron: {sentence}")
    assert said == ""


def test_a_short_token_is_refused(command, monkeypatch):
    monkeypatch.setenv("ENTERON_TOKEN", "short")
    code, _, wrong = command("serve", ".", "--token", "--no-open")
    assert code == 1
    assert "short enough to be guessed; give at least 12 characters" in wrong


def test_a_port_in_use_is_refused(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, wrong = command("serve", ".", "--port", port, "--no-open")
    assert code == 1
    assert f"port {port} of 127.0.0.1 cannot be used" in wrong


@pytest.mark.parametrize("token", [False, True])
def test_it_starts_answers_and_ends(tmp_path, token):
    write_folder(tmp_path / "reading")
    command = [sys.executable, "-m", "enteron", "serve", ".", "--port", "0", "--no-open"]
    environment = {**os.environ, "ENTERON_TOKEN": "a-token-for-the-test"}
    server = subprocess.Popen(
        [*command, *(["--token"] if token else [])],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("1 reading in ")
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert address is not None
        with urllib.request.urlopen(f"{address.group()}{'login' if token else ''}") as answer:
            assert answer.status == 200
            assert b"enteron reader" in answer.read()
        if token:
            assert server.stdout.readline() == "Token: a-token-for-the-test\n"
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{address.group()}api/studies")
    finally:
        server.send_signal(signal.SIGINT)
        _, wrong = server.communicate(timeout=30)
    assert "Traceback" not in wrong
    assert str(tmp_path) not in wrong
