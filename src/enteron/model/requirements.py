"""What the core lacks: torch and its companions, which only some work needs."""

from importlib.util import find_spec

from enteron.errors import EnteronError

INSTALL_TORCH = "pip install 'enteron[train]'"


def torch_installed() -> bool:
    """Whether torch can be imported; it is not imported here."""
    return find_spec("torch") is not None


def require_torch(work: str) -> None:
    """Refuse work that needs torch where it is not installed; `work` is the sentence's subject."""
    if not torch_installed():
        raise EnteronError(f"{work} needs torch, which is not installed", INSTALL_TORCH)
