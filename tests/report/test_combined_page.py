"""The page of a combination, in a browser."""

from dataclasses import replace

import numpy as np
import pytest

from enteron.combination import CombineOptions, combine
from enteron.folders.reading import RunRecord
from tests.report.conftest import OVERFLOW
from tests.report.making import EVENTS, scores_for, write_folder


@pytest.fixture(scope="module")
def combined(tmp_path_factory):
    """Two readings with pictures of the same frames, by models that nobody calibrated."""
    home = tmp_path_factory.mktemp("combined")
    first = scores_for(EVENTS)
    noise = np.random.default_rng(1).uniform(-0.05, 0.05, first.values.shape)
    second = replace(first, values=np.clip(first.values + noise, 0, 1).astype(np.float32))
    folders = [
        write_folder(home / name, scores=scores, pictures=True)
        for name, scores in (("a", first), ("b", second))
    ]
    (reading,) = combine(folders, home / "out", options=CombineOptions(preset="gap-merge"))
    np.testing.assert_allclose(reading.scores.values, (first.values + second.values) / 2, atol=1e-6)
    return reading


def test_the_page_opens_with_pictures_and_says_what_it_is(browser, combined):
    tab = browser.open(combined.report)
    tab.settle()
    assert tab.run(OVERFLOW) == 0
    text = tab.run("document.body.textContent")
    assert "mean of the raw probabilities of 2 models" in text
    assert "weight 0.5" in text
    assert "gap-merge" in text
    assert tab.run("document.querySelectorAll('img').length") > 0
    assert tab.complaints() == []
    assert tab.requests() == []
    tab.close()


def test_unknown_models_and_contents_are_recorded_as_such(combined):
    run = RunRecord.load(combined.folder)
    assert run is not None
    assert run.identity is not None
    assert run.combination is not None
    assert (run.identity.model, run.identity.content) == (None, None)
    assert [member.model for member in run.combination.members] == [None, None]
    assert run.is_calibrated is False
    assert run.unreadable is not None  # what is known of the study is kept
    assert run.unreadable.count == 2
