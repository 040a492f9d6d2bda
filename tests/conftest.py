"""Settings for every test: the same examples and the same seeds in each run, and logging that is left as it was."""

import logging
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

from proxy_inference_engine.far.model import FarModel
from proxy_inference_engine.served import request as served_request
from scripts.postgres import Cluster
from tests import vllm
from tests.postgres import new_schema, running_cluster

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def vllm_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights, as vLLM loads it: the same as the API's tests have on MLX."""
    if not vllm.is_installed():
        pytest.skip(vllm.MISSING)
    tiny = pytest.importorskip("tests.tiny")
    folder: Path = tiny.write_llama(tmp_path_factory.mktemp("vllm") / "tiny", head_dim=32)
    return folder


@pytest.fixture(scope="session")
def vllm_model(vllm_tiny: Path) -> Iterator[FarModel]:
    """Over one vLLM for all tests that leave it as they found it."""
    with ExitStack() as stack:
        url = os.environ.get("VLLM_TEST_URL")
        if url is None:
            url = stack.enter_context(vllm.running(vllm_tiny, vllm_tiny.parent / "vllm.log")).url
        yield stack.enter_context(vllm.over(url, vllm_tiny, vllm_tiny.parent))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    with running_cluster() as made:
        yield made


@pytest.fixture
def postgres_url(postgres: Cluster) -> str:
    """A store of its own, empty."""
    return new_schema(postgres)


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """`pie` configures logging for the whole process; the next test must not inherit that."""
    root, package = logging.getLogger(), logging.getLogger("proxy_inference_engine")
    before = list(root.handlers), root.level, package.level, logging.raiseExceptions
    yield
    root.handlers, root.level, package.level, logging.raiseExceptions = before


@pytest.fixture(autouse=True)
def _steady_seeds(request: pytest.FixtureRequest) -> Iterator[None]:
    """A request without a seed gets one: the same in each run, or a test would meet another answer now and then."""
    with pytest.MonkeyPatch.context() as patch:
        seeds = SimpleNamespace(randbits=random.Random(request.node.nodeid).getrandbits)
        patch.setattr(served_request, "secrets", seeds)
        yield
