"""A far engine behind TLS: asked where its certificate is one that this machine trusts, and nowhere else."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.types import Finished, Limits, Request, Sampling
from tests.far import FarSide, far_model, far_side
from tests.unit.images.certificate import make_certificate


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path, "localhost")


@pytest.fixture
def far(certificate: Path) -> Iterator[FarSide]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with far_side() as far:
        far.socket = context.wrap_socket(far.socket, server_side=True)
        yield far


async def test_a_trusted_one_is_looked_at_and_asked(
    far: FarSide, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with far_model(f"https://localhost:{far.server_port}") as model:
        assert model.is_ready
        request = Request("r", "me", (5, 6, 7), Sampling(seed=1), Limits(9, ignore_eos=True))
        outputs = [item.output async for items in model.submit(request) for item in items]
        assert isinstance(outputs[-1], Finished) and len(far.asked) == 1


def test_another_one_is_sent_nothing(far: FarSide) -> None:
    with far_model(f"https://localhost:{far.server_port}", key="secret") as model:
        assert not model.is_ready and not far.asked
