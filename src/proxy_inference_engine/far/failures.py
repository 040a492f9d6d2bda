"""What becomes of a far engine's failures: errors that clients may read."""

import errno
import re

from proxy_inference_engine.errors import Busy, InvalidRequest, PieError, QueueFull, Unavailable, shorten
from proxy_inference_engine.far.wire import FarFailure

BROKE_OFF = "The engine that computes this model broke off."
RETRY_S = 2
_MAX_MESSAGE = 300
_PASSING = (500, 502, 503, 504)  # of the engine, not of the request
_OUR_OWN = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL)  # files and ports that are used up on this side
_NO_ROUTE = ((403, None), (404, "Not Found"), (405, None))  # status, and the message where others have that status


def unavailable() -> Unavailable:
    return Unavailable("The engine that computes this model does not answer; try again soon.", retry_after_s=RETRY_S)


def is_our_own(error: Exception) -> bool:
    """Whether a connection failed for want of something here: the engine knows nothing of it."""
    return isinstance(error, OSError) and error.errno in _OUR_OWN


def too_many_connections() -> Busy:
    return Busy("This server has as many connections open as it may.", code="too_many_connections")


def is_passing(failure: FarFailure) -> bool:
    """Whether another engine may do better."""
    return failure.status in _PASSING


def has_no_route(failure: FarFailure) -> bool:
    return any(failure.status == status and message in (None, failure.message) for status, message in _NO_ROUTE)


def as_error(failure: FarFailure, retry_after: str | None) -> PieError:
    """What the engine refused, in our words; `retry_after` as it wrote it."""
    message = shorten(failure.message, _MAX_MESSAGE)
    if failure.status == 429:
        wait_s = int(retry_after) if retry_after and re.fullmatch("[0-9]{1,6}", retry_after) else 1
        return QueueFull("The engine that computes this model has too much to do.", retry_after_s=max(1, wait_s))
    if failure.status in (401, 403):
        return Unavailable("The engine that computes this model refuses the server's key.")
    return InvalidRequest(f"The engine that computes this model refuses the request: {message}")
