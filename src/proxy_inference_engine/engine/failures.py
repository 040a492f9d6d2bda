"""What a request is told when it ends before its answer does."""

import logging

from proxy_inference_engine.errors import Busy, EngineFailure, InvalidRequest, PieError
from proxy_inference_engine.sampling.sampler import InvalidLogits
from proxy_inference_engine.state_machine.matcher import GrammarFailure, GrammarTooComplex

_log = logging.getLogger(__name__)
_RETRY_AFTER_S = 10  # whoever waited so long comes back to a line that is as long


def failure_of(error: BaseException, request_id: str) -> PieError:
    """Whatever went wrong in one request, as it may be shown. The log has the rest."""
    match error:
        case InvalidLogits():
            return EngineFailure("the model's output is not a number", code="model_output_invalid")
        case GrammarTooComplex():
            _log.warning("the grammar of request %s is too complex: %s", request_id, error)
            return InvalidRequest("the grammar is too complex to go on", code="grammar_too_complex")
        case GrammarFailure():
            _log.warning("the grammar of request %s failed: %s", request_id, error)
            return EngineFailure("the grammar is too complex to go on", code="grammar_failed")
        case _:
            _log.error("request %s failed", request_id, exc_info=error)
            return EngineFailure("this request failed inside the engine")


def waited_too_long(timeout_s: float) -> Busy:
    message = f"The request waited {timeout_s:g} seconds for its turn, as long as it may here; try again later."
    return Busy(message, code="queue_timeout", retry_after_s=_RETRY_AFTER_S)
