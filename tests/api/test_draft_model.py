"""A draft model behind the server: the same answers, its guesses in the metrics, and none of them a `prediction`."""

from typing import Any

from tests.api.running import HELLO, MODEL, running
from tests.drafts import DraftRunner

ASK: dict[str, Any] = {"model": MODEL, "messages": HELLO, "seed": 1, "max_tokens": 60, "ignore_eos": True, "n": 2}
PATH = "/v1/chat/completions"


def texts(answer: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def test_answers_are_the_same_and_guesses_are_counted() -> None:
    with running() as live, live.http() as http:
        expected = texts(http.post(PATH, json=ASK).json())
    with running() as live, live.http() as http:
        live.worker._engine.draft_with(DraftRunner(wrong_every=9), 8)
        answer = http.post(PATH, json=ASK).json()
        stats, metrics = live.stats, http.get("/metrics").text
    assert texts(answer) == expected
    details = answer["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == details["rejected_prediction_tokens"] == 0
    assert 0 < stats.total_model_draft_tokens_accepted <= stats.total_model_draft_tokens == stats.total_draft_tokens
    for name in ("model_draft_tokens", "model_draft_tokens_accepted"):
        assert f'pie_{name}_total{{model="fake"}} {float(getattr(stats, f"total_{name}"))}' in metrics


def test_a_failing_draft_model_is_not_noticed() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("injected fault")

    with running() as live, live.http() as http:
        expected = texts(http.post(PATH, json=ASK).json())
        draft = DraftRunner(on_forward=fail)
        live.worker._engine.draft_with(draft, 8)
        assert [texts(http.post(PATH, json=ASK).json()) for _ in range(2)] == [expected, expected]
        assert draft.is_closed and live.stats.total_failures == 0 and http.get("/ready").status_code == 200
