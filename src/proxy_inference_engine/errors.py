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
    │   └── QuotaExceeded           429  code insufficient_quota
    ├── EngineError                 what happened on our side
    │   ├── EngineFailure           500
    │   └── Unavailable             503
    │       └── StoreError          503  code storage_full, storage_unavailable
    └── StartupError                one plain line on the terminal, exit code 1

The mapping to a response body lives in `server/failures.py`, once.
"""


class PieError(Exception):
    """Root of the tree: `message` is safe to show to a client."""

    status = 500
    type = "server_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code


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


class QuotaExceeded(ClientError):
    """A key keeps as many objects as it may; only deleting some helps, waiting does not."""

    status = 429
    type = "rate_limit_error"
    code = "insufficient_quota"


class EngineError(PieError):
    """Something failed on our side; the message never carries details of it."""


class EngineFailure(EngineError):
    code = "engine_failure"


class Unavailable(EngineError):
    status = 503
    code = "engine_unavailable"


class StoreError(Unavailable):
    """Nothing was stored, or it cannot be read now. Inference goes on."""

    code = "storage_unavailable"


class StartupError(PieError):
    """The server cannot start; printed as one line."""
