"""A cache of one's own, and hubs to fill it from."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests import hub as hubs
from tests.hub import Hub
from tests.unit.models.download.pulling import GGUF, NAME


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return hubs.own_cache(tmp_path, monkeypatch)


@pytest.fixture
def hub(cache: Path) -> Iterator[Hub]:
    with hubs.serving() as hub:
        hub.repositories[NAME] = {"README.md": b"hello", "tiny-Q8_0.gguf": GGUF}
        yield hub


@pytest.fixture
def tls_hub(cache: Path) -> Iterator[Hub]:
    """With a certificate that nobody trusts yet: `cert.pem` beside the cache."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path, key_path = cache.parent / "cert.pem", cache.parent / "key.pem"
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    key_path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key_path)
    with hubs.serving(context) as hub:
        hub.repositories[NAME] = {"tiny-Q8_0.gguf": GGUF}
        hub.elsewhere = f"{hub.endpoint}/stored/{NAME}/tiny-Q8_0.gguf"
        yield hub
