"""Twice as many requests as can be answered: what is answered is as much as ever, and in time."""

import pytest

from proxy_inference_engine.engine.queue import Admission
from tests.sim.load import Load, poisson

_SECONDS = 30.0
_BEARABLE_S = 5.0  # from coming to the last token: later than that nobody is glad of an answer
_CAPACITY = 17.0  # requests a second, about, that this machine can answer with all slots busy


def goodput(per_second: float, admission: Admission, queue_timeout_s: float | None) -> float:
    """Answers a second that came in time."""
    load = Load(admission=admission, queue_timeout_s=queue_timeout_s)
    load.run(poisson(1, per_second, _SECONDS), until=_SECONDS)
    ended = [stay for stay in load.stays.values() if stay.ended is not None]
    return sum((stay.ended or 0) - stay.arrived <= _BEARABLE_S for stay in ended) / _SECONDS


LIMITS = Admission(max_waiting=32, max_waiting_per_tenant=16)


def test_overload_at_twice_the_capacity_keeps_the_goodput() -> None:
    curve = {share: goodput(share * _CAPACITY, LIMITS, None) for share in (0.5, 0.8, 1.0, 1.3, 2.0)}
    assert curve[0.5] == pytest.approx(0.5 * _CAPACITY, rel=0.15), "below the capacity everybody is answered in time"
    assert curve[2.0] >= 0.9 * max(curve.values()), curve


def test_a_time_out_in_the_queue_keeps_it_too() -> None:
    """Where the line is as long as one likes, waiting has to end by itself."""
    endless = Admission(max_waiting=10**6, max_waiting_per_tenant=10**6, max_waiting_tokens=10**9)
    peak = goodput(_CAPACITY, LIMITS, None)
    assert goodput(2 * _CAPACITY, endless, None) < 0.5 * peak, "without any limit nearly everybody comes too late"
    assert goodput(2 * _CAPACITY, endless, 3.0) >= 0.9 * peak
