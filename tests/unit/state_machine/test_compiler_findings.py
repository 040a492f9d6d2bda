"""Remembered findings: a good one stays, a bad one for a while, and there is a bound."""

import pytest

from proxy_inference_engine.state_machine import compiler
from proxy_inference_engine.state_machine.compiler import Finding, Findings

GOOD, BAD = Finding(None, 0.5), Finding("too long", 0.0)


def test_what_was_never_asked_is_not_known() -> None:
    assert Findings().get("a") is None


def test_a_refusal_is_forgotten_and_the_rest_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Findings()
    kept.put("good", GOOD)
    kept.put("bad", BAD)
    assert (kept.get("good"), kept.get("bad")) == (GOOD, BAD)
    monkeypatch.setattr(compiler, "_REFUSED_S", -1.0)
    assert (kept.get("good"), kept.get("bad")) == (GOOD, None)


def test_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_MAX_FINDINGS", 2)
    kept = Findings()
    kept.put("a", GOOD)
    kept.put("b", GOOD)
    assert kept.get("a") == GOOD
    kept.put("c", BAD)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (GOOD, None, BAD)
