"""The cache of exported graphs: keyed by what a graph depends on, sealed, checked, and pruned.

A graph from the disk is used only if the folder is the user's alone, the graph's seal was made with
the user's secret key, and the graph encodes pictures as the backbone itself does. Otherwise it is
built again. `docs/inference.md` says what that protects against, and what not.
"""

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from enteron.errors import EnteronError
from enteron.files import write_bytes
from enteron.model.options import BackboneSpec

_GRAPH_FORMAT = 3  # raised when export or quantisation, or the trial images of int8, change
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "timm")

MOST_GRAPHS = 16
MOST_BYTES = 3 * 2**30
"""Graphs that have not been used for longest are deleted beyond either number."""

_LARGEST_GRAPH = 2**31  # bytes; protobuf has no larger messages
_SUFFIX = ".graph"
_KEY = "key"
_SEAL_BYTES = 32  # HMAC-SHA-256, at the start of the file


def cache_folder() -> Path:
    """`ENTERON_CACHE`, else `XDG_CACHE_HOME/enteron`, else `~/.cache/enteron`."""
    folder = os.environ.get("ENTERON_CACHE")
    if folder:
        return Path(folder)
    user_cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(user_cache) if user_cache else Path.home() / ".cache") / "enteron"


def graph_folder() -> Path:
    """The folder of graphs and of the key: inside the cache, and open to the user only."""
    return cache_folder() / "graphs"


def graph_key(spec: BackboneSpec, backbone_hash: str, kind: str) -> str:
    """A file name made from everything that the graph depends on.

    The specification is included because weights alone do not determine the number of heads.
    """
    dependencies = {
        "backbone": backbone_hash,
        "spec": spec.model_dump(mode="json"),
        "kind": kind,
        "format": _GRAPH_FORMAT,
        "versions": {name: _version(name) for name in _PACKAGES},
    }
    digest = hashlib.sha256(json.dumps(dependencies, sort_keys=True).encode()).hexdigest()
    return f"{spec.name}-{kind}-{digest[:24]}"


def cached_graph(
    key: str, build: Callable[[], bytes], is_faithful: Callable[[bytes], bool]
) -> bytes:
    """The cached graph, or a new one, which is cached if the folder can be written.

    `is_faithful` compares what a graph from the disk computes with the backbone. It is not asked
    about a new graph, and only about graphs that this user sealed: it runs them.
    """
    folder = graph_folder()
    try:
        secret = _secret(folder)
    except (OSError, EnteronError):
        return build()  # without a cache every run exports again; nothing else is lost
    path = folder / f"{key}{_SUFFIX}"
    graph = _sealed_graph(path, key, secret)
    if graph is not None and is_faithful(graph):
        return graph
    graph = build()
    try:
        write_bytes(path, _seal(key, graph, secret) + graph)
        _prune(folder, path)
    except (OSError, EnteronError):
        pass
    return graph


def _sealed_graph(path: Path, key: str, secret: bytes) -> bytes | None:
    """The graph in a file that carries this user's seal; None for anything else."""
    try:
        if path.stat().st_size > _LARGEST_GRAPH:
            return None
        content = path.read_bytes()
        os.utime(path)  # used now: `_prune` deletes others first
    except OSError:
        return None
    seal, graph = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
    return graph if hmac.compare_digest(seal, _seal(key, graph, secret)) else None


def _seal(key: str, graph: bytes, secret: bytes) -> bytes:
    """Of the graph under its name: a graph that was renamed to another's is not accepted."""
    return hmac.new(secret, key.encode() + b"\0" + graph, hashlib.sha256).digest()


# ---- the folder and its key


def _secret(folder: Path) -> bytes:
    """The user's secret key, made on first use; OSError where the folder is not the user's alone.

    A key that others could have read is replaced, after which old graphs are built again.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()  # a symbolic link is not followed
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise
        if stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(0o700)
            (folder / _KEY).unlink(missing_ok=True)
    path = folder / _KEY
    secret = _read_secret(path)
    if secret is not None:
        return secret
    # Written aside and linked, so that of two processes one makes the key and both have it.
    aside = folder / f".{_KEY}.{secrets.token_hex(8)}"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SEAL_BYTES))
        try:
            path.hardlink_to(aside)
        except FileExistsError:
            if _read_secret(path) is None:  # damaged, or readable by others
                aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    secret = _read_secret(path)
    if secret is None:
        raise OSError("the key of the cache cannot be read")
    return secret


def _read_secret(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        private = status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
        if not stat.S_ISREG(status.st_mode) or not private or status.st_size != _SEAL_BYTES:
            return None
        return file.read()


def _prune(folder: Path, newest: Path) -> None:
    """Delete the graphs that have not been used for longest, but never the newest."""
    graphs = sorted(
        ((path, path.stat()) for path in folder.glob(f"*{_SUFFIX}")),
        key=lambda graph: graph[1].st_mtime_ns,
        reverse=True,
    )
    graphs.sort(key=lambda graph: graph[0] != newest)
    total = 0
    for count, (path, status) in enumerate(graphs):
        total += status.st_size
        if count and (count >= MOST_GRAPHS or total > MOST_BYTES):
            path.unlink(missing_ok=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
