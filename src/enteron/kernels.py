"""Loops over numbers, compiled when they are first called and kept on the disk for the next run."""

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def compiled(function: Callable[..., None]) -> Any:
    """A function as machine code that holds no lock, kept where a folder for it can be found."""
    from numba import njit

    try:
        return njit(function, cache=True, nogil=True)
    except RuntimeError:  # neither the package nor the home folder can be written
        return njit(function, nogil=True)
