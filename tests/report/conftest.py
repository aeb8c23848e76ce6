"""A browser for the tests of the page; they skip, saying so, where there is none."""

import pytest

from tests.browser import Browser, chromium


@pytest.fixture(scope="session")
def browser():
    if chromium() is None:
        pytest.skip("needs Chromium (apt-get install chromium), which is not here")
    with Browser() as made:
        yield made


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
