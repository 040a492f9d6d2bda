"""The self-test's model computed by hand: what is expected of a library is right, not only what one answered."""

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp import self_test
from proxy_inference_engine.runners.llama_cpp.library import start

Floats = NDArray[np.float64]
SQUARES = ("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
WIDTH = 32


def normal(rows: Floats, weights: Floats) -> Floats:
    scales: Floats = weights / np.sqrt((rows**2).mean(axis=1, keepdims=True) + 1e-5)
    return rows * scales


def rotated(rows: Floats) -> Floats:
    angles = np.arange(len(rows))[:, None] * 10_000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    turned = (rows[:, 0::2] + 1j * rows[:, 1::2]) * np.exp(1j * angles)
    return np.stack((turned.real, turned.imag), axis=2).reshape(rows.shape)


def logits_of(ids: tuple[int, ...]) -> Floats:
    w = {name: self_test._numbers(at, (WIDTH, WIDTH)).reshape(WIDTH, WIDTH) for at, name in enumerate(SQUARES, 1)}
    last, first, second = (self_test._numbers(at, (WIDTH,)).astype(np.float64) for at in (10, 11, 12))
    rows = w["token_embd"][list(ids)].astype(np.float64)
    inner = normal(rows, first)
    queries, keys, values = (inner @ w[f"attn_{name}"].T for name in "qkv")
    scores = rotated(queries) @ rotated(keys).T / np.sqrt(WIDTH) + np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    rows = rows + shares @ values @ w["attn_output"].T
    inner = normal(rows, second)
    gate = inner @ w["ffn_gate"].T
    rows = rows + gate / (1 + np.exp(-gate)) * (inner @ w["ffn_up"].T) @ w["ffn_down"].T
    return normal(rows, last) @ w["output"].T


def test_the_expected_numbers_are_those_of_the_model() -> None:
    logits = logits_of((*self_test._IDS, self_test._NEXT))
    for row, expected in zip((-2, -1), self_test._EXPECTED, strict=True):
        assert np.allclose(logits[row, : len(expected)], expected, atol=1e-4)


def test_a_library_that_computes_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = start().binding
    assert self_test.failure(binding) is None
    monkeypatch.setattr(self_test, "_NEXT", 6)
    assert "it computes" in (self_test.failure(binding) or "")


def test_kv_in_another_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = start().binding
    monkeypatch.setattr(binding, "llama_state_seq_get_data", lambda *_: 0)
    assert self_test.failure(binding) == "its KV is not laid out as expected"


def test_kv_that_does_not_come_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = start().binding
    monkeypatch.setattr(binding, "llama_state_seq_set_data", lambda *_: 0)
    assert self_test.failure(binding) == "KV that was read and written back computes something else"
