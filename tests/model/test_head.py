"""Anatomy conditioning: findings depend on the soft anatomy, both ways."""

import pytest
import torch

from enteron.model.network import AnatomyContextHead, Pathology, TemporalFeatures


@pytest.fixture
def temporal() -> TemporalFeatures:
    torch.manual_seed(0)
    return TemporalFeatures(torch.randn(4, 512), torch.randn(4, 512))


def test_counterfactual_anatomy_changes_the_findings(temporal):
    """The same picture, with stomach and with colon as its anatomy: the findings differ."""
    head = Pathology(dropout=0.4, biases=False, conditioned=True).eval()
    stomach, colon = torch.full((4, 8), -8.0), torch.full((4, 8), -8.0)
    stomach[:, 2], colon[:, 4] = 8.0, 8.0
    in_stomach = head(temporal.current, temporal.delta, stomach)
    in_colon = head(temporal.current, temporal.delta, colon)
    assert (in_stomach != in_colon).all()
    # Without conditioning the same counterfactual changes nothing.
    blind = Pathology(dropout=0.4, biases=False, conditioned=False).eval()
    torch.testing.assert_close(
        blind(temporal.current, temporal.delta, stomach),
        blind(temporal.current, temporal.delta, colon),
        rtol=0,
        atol=0,
    )


def test_findings_send_a_gradient_into_the_anatomy_weights(temporal):
    for conditioned in (True, False):
        head = AnatomyContextHead(conditioned=conditioned).eval()
        head(temporal)[:, 8:].sum().backward()
        gradient = head.anatomy.weight.grad
        assert gradient is not None
        reached = gradient.norm(dim=1) > 0  # of each of the eight, through sigmoid(a)
        assert reached.all() if conditioned else not reached.any()


def test_a_rule_of_place_is_learnt_through_the_anatomy():
    """A finding that counts in the colon only: its evidence is in delta, the place only in a.

    After training, the same evidence with another anatomy is another finding.
    """
    torch.manual_seed(1)
    colon, stomach = torch.full((8,), -6.0), torch.full((8,), -6.0)
    colon[4], stomach[2] = 6.0, 6.0
    in_colon = torch.rand(256) < 0.5
    evidence = torch.zeros(256, 512)
    evidence[:, 0] = torch.randn(256)
    finding = in_colon & (evidence[:, 0] > 0)
    anatomy = torch.where(in_colon[:, None], colon, stomach)
    picture = torch.zeros(256, 512)
    network = Pathology(dropout=0.0, biases=False, conditioned=True)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(250):
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            network(picture, evidence, anatomy)[:, 0], finding.float()
        )
        loss.backward()
        optimiser.step()
    strong = torch.zeros(1, 512)
    strong[0, 0] = 1.0
    with torch.no_grad():
        there = network(picture[:1], strong, colon[None])[0, 0]
        elsewhere = network(picture[:1], strong, stomach[None])[0, 0]
    assert there > 1
    assert elsewhere < -1
