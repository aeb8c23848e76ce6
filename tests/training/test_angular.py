"""The angular loss keeps rare prototypes apart where the objective alone lets them collapse."""

import pytest

from tests.training.collapse import COLON, FIRST_FINDING, train_prototypes


@pytest.mark.parametrize("seed", [0, 1])
def test_it_separates_prototypes_that_collapse_without_it(seed):
    without = train_prototypes(angular_weight=0.0, seed=seed)
    with_it = train_prototypes(angular_weight=0.05, seed=seed)
    # Both start apart: two random directions of 512 numbers are orthogonal to within 0.05 or so.
    assert abs(without.likeness[0]) < 0.05
    assert without.likeness[-1] > 0.4
    assert with_it.likeness[-1] < 0.2
    # The collapse is towards the region in which the findings lie, and that too is prevented.
    assert without.cosines[FIRST_FINDING:, COLON].mean() > 0.2
    assert with_it.cosines[FIRST_FINDING:, COLON].abs().mean() < 0.1
