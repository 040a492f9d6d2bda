"""One browser for all tests of the page: Debian's Chromium, or the one that CHROMIUM names."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@contextmanager
def chromium() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium, or name one with CHROMIUM")
    with driver.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=_FLAGS.split())
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Closed with the package: while it is open, no other event loop runs in this thread."""
    with chromium() as launched:
        yield launched
