"""What a far engine's refusal becomes, whatever it writes."""

import pytest

from proxy_inference_engine.errors import QueueFull
from proxy_inference_engine.far.failures import as_error
from proxy_inference_engine.far.wire import FarFailure


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7), ("0", 1), (None, 1), ("Fri, 31 Dec 1999 23:59:59 GMT", 1), ("-3", 1), ("1.5", 1), ("9" * 5_000, 1)],
)
def test_how_long_to_wait_is_handed_on_where_it_is_a_number(said: str | None, seconds: int) -> None:
    error = as_error(FarFailure(429, "busy"), said)
    assert isinstance(error, QueueFull) and error.retry_after_s == seconds
