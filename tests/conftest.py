"""Settings for every test: the same examples of hypothesis in each run, and logging that is left as it was."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """`pie` configures logging for the whole process; the next test must not inherit that."""
    root, package = logging.getLogger(), logging.getLogger("proxy_inference_engine")
    before = list(root.handlers), root.level, package.level, logging.raiseExceptions
    yield
    root.handlers, root.level, package.level, logging.raiseExceptions = before
