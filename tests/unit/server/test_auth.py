import hmac

import pytest
from starlette.datastructures import Headers

from proxy_inference_engine.config import ApiKey
from proxy_inference_engine.server.auth import Keyring, sent_key


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ([("authorization", "Bearer secret")], b"secret"),
        ([("authorization", "bearer secret")], b"secret"),
        ([("x-api-key", "secret")], b"secret"),
        ([], None),
        ([("authorization", "")], None),
        ([("authorization", "Bearer")], b""),
        ([("authorization", "Basic secret")], None),
        ([("authorization", "secret")], None),
        ([("authorization", "Bearer a"), ("authorization", "Bearer a")], None),
        ([("authorization", "Bearer a"), ("x-api-key", "a")], None),
        ([("x-api-key", "a"), ("x-api-key", "a")], None),
        ([("x-api-key", "\xff")], b"\xff"),
    ],
)
def test_finds_the_key(headers: list[tuple[str, str]], key: bytes | None) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    assert sent_key(Headers(raw=raw)) == key


def test_names_the_tenant_of_a_key() -> None:
    keyring = Keyring((ApiKey("anna", "a" * 40), ApiKey("ben", "b" * 40)))
    assert keyring.tenant(b"a" * 40) == "anna"
    assert keyring.tenant(b"b" * 40) == "ben"
    for wrong in (b"", b"a", b"a" * 39, b"a" * 41, b"B" * 40, b"\xff" * 40, b"c" * 1_000_000):
        assert keyring.tenant(wrong) is None
    assert not keyring.is_open
    assert Keyring(()).is_open


@pytest.mark.parametrize("key", [b"a" * 40, b"b" * 40, b"c" * 40, b"", b"x"])
def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
    """Whoever asks and whoever is found: as many comparisons of equal length, by the function that is made for it."""
    lengths: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def noting(one: bytes, other: bytes) -> bool:
        lengths.append((len(one), len(other)))
        return compare(one, other)

    keyring = Keyring((ApiKey("anna", "a" * 40), ApiKey("ben", "b" * 40), ApiKey("carol", "short")))
    monkeypatch.setattr(hmac, "compare_digest", noting)
    keyring.tenant(key)
    assert lengths == [(32, 32)] * 3
