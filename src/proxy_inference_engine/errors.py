"""Every error that crosses a module border, with the HTTP status it becomes.

    PieError
    ├── ClientError                 what the caller sent is wrong
    │   ├── InvalidRequest          400
    │   ├── ContextLengthExceeded   400  code context_length_exceeded
    │   ├── Unauthenticated         401  code invalid_api_key
    │   ├── Forbidden               403
    │   ├── NotFound                404
    │   ├── MethodNotAllowed        405
    │   ├── RequestTimeout          408
    │   ├── TooLarge                413
    │   ├── UnsupportedMedia        415
    │   ├── HeadersTooLarge         431  code headers_too_large
    │   ├── QueueFull               429  code queue_full, Retry-After
    │   ├── RateLimited             429  code rate_limit_exceeded, Retry-After
    │   └── QuotaExceeded           429  code insufficient_quota
    ├── EngineError                 what happened on our side
    │   ├── EngineFailure           500
    │   ├── StorageCorrupt          500  code storage_corrupt
    │   └── Unavailable             503  Retry-After, where it is known
    │       ├── Busy                503  code server_busy, Retry-After
    │       └── StoreError          503  code storage_full, storage_unavailable
    └── StartupError                one plain line on the terminal, exit code 1

The mapping to a response body lives in `server/http/errors.py`, once.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping

_MAX_WORD = 64
# What ends a thread. All else that goes wrong in one request ends that request alone, also what is no Exception: a
# library written in Rust raises its panics as a BaseException of their own.
ENDINGS = (SystemExit, KeyboardInterrupt, GeneratorExit)
# In a message: where the name of the parameter stands, in quotes. No word that `shorten` or `repr` quotes has it.
PARAM = "\0param\0"


class PieError(Exception):
    """Root of the tree: `message` is safe to show to a client."""

    status = 500
    type = "server_error"
    code: str | None = None
    details: Mapping[str, object] | None = None  # what a program may read, where an API has a place for it

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self._text = message
        self.param = param
        if code is not None:
            self.code = code

    @property
    def message(self) -> str:
        """Made late: on its way out an error may learn what the client calls the parameter."""
        return self._text.replace(PARAM, repr(self.param))

    def rename(self, name_param: Callable[[str], str]) -> None:
        """Name the parameter as `name_param` has it: layers below know no API's own words."""
        if self.param is not None:
            self.param = name_param(self.param)

    def __str__(self) -> str:
        return self.message


class ClientError(PieError):
    status = 400
    type = "invalid_request_error"


class InvalidRequest(ClientError):
    """400: a field is missing, of the wrong type, out of range or not supported."""


class ContextLengthExceeded(ClientError):
    code = "context_length_exceeded"


class Unauthenticated(ClientError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(ClientError):
    status = 403
    type = "permission_error"


class NotFound(ClientError):
    status = 404
    type = "not_found_error"
    code = "not_found"


class MethodNotAllowed(ClientError):
    status = 405


class RequestTimeout(ClientError):
    status = 408
    code = "request_timeout"


class TooLarge(ClientError):
    status = 413
    code = "request_too_large"


class UnsupportedMedia(ClientError):
    status = 415


class HeadersTooLarge(ClientError):
    status = 431
    code = "headers_too_large"


class QueueFull(ClientError):
    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    retry_after_s = 1

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimited(ClientError):
    """A key has used as many requests or tokens as it may in this time."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, unit: str, *, retry_after_s: int) -> None:
        super().__init__(f"This key has used as many {unit} as it may for now; try again in {retry_after_s} seconds.")
        self.retry_after_s = retry_after_s


class QuotaExceeded(ClientError):
    """A key keeps as many objects as it may; only deleting some helps, waiting does not."""

    status = 429
    type = "rate_limit_error"
    code = "insufficient_quota"


class EngineError(PieError):
    """Something failed on our side; the message never carries details of it."""


class EngineFailure(EngineError):
    code = "engine_failure"


class StorageCorrupt(EngineError):
    """One stored object is damaged. It can be deleted, and every other can be read."""

    code = "storage_corrupt"


class Unavailable(EngineError):
    status = 503
    code = "engine_unavailable"
    retry_after_s: int | None = None  # when it is worth another try; None: nobody knows

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class Busy(Unavailable):
    """Too much is going on at once; a little later it is not."""

    code = "server_busy"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: int | None = 1) -> None:
        super().__init__(message, code=code, retry_after_s=retry_after_s)


class StoreError(Unavailable):
    """Nothing was stored, or it cannot be read now. Inference goes on."""

    code = "storage_unavailable"


class StartupError(PieError):
    """The server cannot start; printed as one line."""


def shorten(text: str, length: int = _MAX_WORD) -> str:
    """A client's own word, safe to quote in a message: one line, printable, not long."""
    printable = "".join(c if c.isprintable() else "?" for c in text[: length + 1])
    return printable if len(printable) <= length else printable[:length] + "…"


def nearest(word: str, names: Iterable[str]) -> str:
    """The end of a message about a word that is none of some names: the one that was probably meant, if any."""
    close = difflib.get_close_matches(word[:_MAX_WORD], list(names), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""
