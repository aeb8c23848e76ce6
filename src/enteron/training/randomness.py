"""Random numbers from counters: no state lives from one step to the next.

Whatever is drawn for a step follows from the seed and the step's number. A resumed training, one
of several processes or one with other workers therefore draws the same without being told.
"""

import hashlib

import numpy as np


def seed_of(*parts: int | str) -> int:
    """A seed below 2^63 from counters and words; different parts give unrelated seeds."""
    text = "/".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def generator(*parts: int | str) -> np.random.Generator:
    """A numpy generator from counters and words."""
    return np.random.default_rng(seed_of(*parts))
