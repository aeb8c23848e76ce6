"""Exported graphs, kept in a folder so that a backbone is exported once on a machine.

Entries can be deleted at any time. A graph and its digest are two files, the digest written last;
what does not fit its digest is built again.
"""

import hashlib
import json
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from enteron.errors import EnteronError
from enteron.files import write_bytes, write_text
from enteron.model.backbone import BackboneSpec

_MADE_BY = ("torch", "onnx", "onnxscript", "onnxruntime", "timm")


def cache_folder() -> Path:
    """`ENTERON_CACHE`, else `XDG_CACHE_HOME/enteron`, else `~/.cache/enteron`."""
    own = os.environ.get("ENTERON_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "enteron"


def graph_key(spec: BackboneSpec, backbone_hash: str, kind: str) -> str:
    """Names a graph by everything it depends on.

    The specification is part of it because weights alone do not tell how many heads share them.
    """
    facts = {
        "backbone": backbone_hash,
        "spec": spec.model_dump(mode="json"),
        "kind": kind,
        "versions": {name: _version(name) for name in _MADE_BY},
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{spec.name}-{kind}-{digest[:24]}"


def cached_graph(key: str, build: Callable[[], bytes]) -> bytes:
    """The stored graph, or a new one, stored if the folder allows it."""
    folder = cache_folder()
    path, seal = folder / f"{key}.onnx", folder / f"{key}.sha256"
    try:
        graph = path.read_bytes()
        if hashlib.sha256(graph).hexdigest() == seal.read_text(encoding="utf-8").strip():
            return graph
    except (OSError, UnicodeDecodeError):
        pass  # not there, or not readable: built again
    graph = build()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(path, graph)
        write_text(seal, hashlib.sha256(graph).hexdigest() + "\n")
    except (OSError, EnteronError):
        pass  # without a cache the next run exports again, which is all that is lost
    return graph


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
