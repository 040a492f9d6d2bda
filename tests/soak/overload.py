"""Twice as many clients as there is room for: what is refused costs nobody else anything.

What gets done is counted by step of the engine, which does not depend on the machine: whole answers only.
"""

import threading
from collections.abc import Callable

from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, Running, running
from tests.soak.outcome import Outcome, scaled

_NUM_SLOTS, _NUM_WAITING = 8, 4
_NUM_TOKENS = 20
_NUM_ANSWERS = 4000  # of each half
_MUCH = 400  # of few answers too large a part is the last ones, who have the steps to themselves
_STEP_S = 0.005
_LEAST = 0.9
_BODY = {"model": MODEL, "messages": HELLO, "max_tokens": _NUM_TOKENS, "ignore_eos": True}


def run(scale: float) -> Outcome:
    num_answers = scaled(_NUM_ANSWERS, scale)
    runner = FakeRunner(lanes=(Lane(_NUM_SLOTS, 512),), step_seconds=lambda _: _STEP_S)
    admission = Admission(max_waiting=_NUM_WAITING, max_waiting_per_tenant=_NUM_WAITING)
    with running(runner, admission=admission) as live:
        peak, _ = _goodput(live, num_answers, _NUM_SLOTS)
        crowded, num_refused = _goodput(live, num_answers, 2 * (_NUM_SLOTS + _NUM_WAITING))
    print(f"tokens of whole answers a step: {peak:.2f} at capacity, {crowded:.2f} at twice; {num_refused} refused")
    is_much = num_answers >= _MUCH
    wrong = [f"goodput fell from {peak:.2f} to {crowded:.2f} tokens a step"] * (is_much and crowded < _LEAST * peak)
    return Outcome(2 * num_answers, wrong + ["nothing was refused"] * (num_refused == 0))


def _goodput(live: Running, num_answers: int, num_clients: int) -> tuple[float, int]:
    """Tokens of whole answers by step, and how often somebody was told to come again."""
    answers, refusals, left = list[int](), list[int](), threading.Semaphore(num_answers)
    before = live.stats.total_steps

    def work() -> None:
        with live.http() as http:
            while left.acquire(blocking=False):
                _ask(lambda: http.post("/v1/chat/completions", json=_BODY).status_code, answers, refusals)

    threads = [threading.Thread(target=work) for _ in range(num_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    live.wait_idle()
    assert len(answers) == num_answers
    return _NUM_TOKENS * len(answers) / (live.stats.total_steps - before), len(refusals)


def _ask(post: Callable[[], int], answers: list[int], refusals: list[int]) -> None:
    """Again and again until it is answered; an impatient client, who does not wait as it is told."""
    while (status := post()) == 429:
        refusals.append(status)
        threading.Event().wait(_STEP_S)
    assert status == 200, status
    answers.append(status)
