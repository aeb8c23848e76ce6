"""Anatomy gating: what a region practically never shows is attenuated there."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from enteron.decode.state_machine import Stay
from enteron.labels import FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.priors import Priors


def gated(
    p: NDArray[np.float32],
    stays: Iterable[Stay],
    priors: Priors,
    factor: float = 0.3,
    implausible: float = 0.001,
) -> NDArray[np.float32]:
    """(rows, 17) probabilities times `factor` where P(label | region) < `implausible`.

    Paper stage 3: "anatomy gating attenuating predictions by 70 % in anatomically implausible
    regions"; which ones those are is decision 28. Rows without a decoded region stay as they are.
    """
    if factor == 1:
        return p
    result = p.copy(order="K")
    for region, start, stop in stays:
        shares = priors.given_region.shares[REGIONS[region]]
        for column, label in enumerate(LABELS):
            gates = label in LANDMARKS or label in FINDINGS
            if gates and shares.get(label, 0.0) < implausible:
                result[start:stop, column] *= np.float32(factor)
    return result
