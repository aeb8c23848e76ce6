"""A browser for the tests of the page, which skip where there is none."""

import pytest

from tests.browser import Browser, chromium


@pytest.fixture(scope="session")
def browser():
    if chromium() is None:
        pytest.skip("needs Chromium (apt-get install chromium), which is not installed")
    with Browser() as browser:
        yield browser


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
