import hmac

import pytest
from starlette.datastructures import Headers

from proxy_inference_engine.config import ApiKey
from proxy_inference_engine.server.http.guard import sent_keys
from proxy_inference_engine.server.http.keyring import Keyring


@pytest.mark.parametrize(
    ("headers", "keys"),
    [
        ([("authorization", "Bearer secret")], [b"secret"]),
        ([("authorization", "bearer secret")], [b"secret"]),
        ([("x-api-key", "secret")], [b"secret"]),
        ([], []),
        ([("authorization", "")], []),
        ([("authorization", "Bearer")], [b""]),
        ([("authorization", "Basic secret")], []),
        ([("authorization", "secret")], []),
        ([("authorization", "Bearer a"), ("authorization", "Bearer a")], []),
        ([("authorization", "Bearer a"), ("x-api-key", "a")], [b"a", b"a"]),
        ([("authorization", "Basic a"), ("x-api-key", "b")], [b"b"]),
        ([("x-api-key", "a"), ("x-api-key", "a")], []),
        ([("x-api-key", "\xff")], [b"\xff"]),
    ],
)
def test_finds_the_keys(headers: list[tuple[str, str]], keys: list[bytes]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    assert sent_keys(Headers(raw=raw)) == keys


def test_names_the_tenant_of_a_key() -> None:
    keyring = Keyring((ApiKey("anna", "a" * 40), ApiKey("ben", "b" * 40)))
    for name, key in (("anna", b"a" * 40), ("ben", b"b" * 40)):
        found = keyring.find(key)
        assert found is not None and found.name == name
    for wrong in (b"", b"a", b"a" * 39, b"a" * 41, b"B" * 40, b"\xff" * 40, b"c" * 1_000_000):
        assert keyring.find(wrong) is None
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
    keyring.find(key)
    assert lengths == [(32, 32)] * 3
