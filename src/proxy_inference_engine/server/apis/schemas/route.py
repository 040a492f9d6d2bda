"""POST /v1/schemas/check: whether a format can be enforced, why not and where, what it costs, what it lets through."""

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest, shorten
from proxy_inference_engine.served.model import INLINE_CHARS, ServedModel
from proxy_inference_engine.server.apis.schemas.schema import MAX_INSTANCE_CHARS, FormatCheck
from proxy_inference_engine.server.apis.shared.route import json_response, receive
from proxy_inference_engine.server.apis.shared.tools import make_output
from proxy_inference_engine.state_machine.demand import Demand, JsonObject, JsonSchema, OutputFormat
from proxy_inference_engine.state_machine.machine import Machine
from proxy_inference_engine.state_machine.schema_report import Compilation, Trial, Walk, advise, spread

_MAX_REASON = 1000


async def check_format(http: HttpRequest) -> Response:
    exchange = await receive(http, FormatCheck)
    # However short a grammar is, compiling it may take seconds: never in the event loop.
    work = exchange.off_loop(lambda: _check(exchange.body, exchange.model, exchange.tenant), INLINE_CHARS + 1)
    return json_response(await work)


def _check(body: FormatCheck, model: ServedModel, tenant: str) -> dict[str, Any]:
    output, trial = make_output(body.response_format, []), Trial(model.machines)
    texts = [_text(trial, instance, output, number) for number, instance in enumerate(body.instances)]
    found = trial.build(_demand(output, body), tenant)
    walks = [] if found.machine is None else _walks(trial, found.machine, texts)
    relaxed = _relaxed(trial, found, output, body, tenant)
    return {
        "object": "format.check",
        "model": model.id,
        "is_enforceable": found.machine is not None,
        "problem": _problem(found, can_relax=bool(relaxed)),
        "relaxed": relaxed,
        "compile_ms": round(found.compile_ms, 3),
        "grammar_chars": _grammar_chars(found),
        "mask_us": spread([each for walk in walks for each in walk.mask_us]),
        "instances": [_walk(walk) for walk in walks],
    }


def _demand(output: OutputFormat, body: FormatCheck) -> Demand:
    """What a chat without tools or reasoning would have it."""
    return Demand(output, can_reason=False, closes_objects=not body.open_objects, any_order=body.open_objects)


def _text(trial: Trial, instance: Any, output: OutputFormat, number: int) -> str:
    param = f"instances[{number}]"
    if not isinstance(output, JsonSchema | JsonObject) and not isinstance(instance, str):
        raise InvalidRequest(f"{param!r} has to be a string: the format is no JSON.", param=param)
    try:
        text = trial.write(instance, output)
    except RecursionError:
        raise InvalidRequest(f"{param!r} is nested too deeply.", param=param) from None
    if len(text) > MAX_INSTANCE_CHARS:
        raise InvalidRequest(f"{param!r} may have at most {MAX_INSTANCE_CHARS} characters as text.", param=param)
    return text


def _walks(trial: Trial, machine: Machine, texts: list[str]) -> list[Walk]:
    """Nothing binds where any text will do."""
    if machine.constraint is None:
        return [Walk(True, text, len(text), 0, 0, []) for text in texts]
    return [trial.walk_text(machine, text) for text in texts]


def _problem(found: Compilation, *, can_relax: bool) -> dict[str, Any] | None:
    if found.error is None:
        return None
    place = found.place
    return {
        "path": None if place is None else shorten(place.path, _MAX_REASON),
        "keyword": None if place is None or not place.keyword else shorten(place.keyword),
        "reason": shorten(found.error if place is None else place.reason, _MAX_REASON),
        "advice": advise(place, can_relax=can_relax),
    }


def _relaxed(trial: Trial, found: Compilation, output: OutputFormat, body: FormatCheck, tenant: str) -> list[str]:
    """`path:keyword` of what does not bind; of a strict schema that is refused, what would not with strict: false."""
    if found.machine is not None:
        return list(found.machine.relaxed)
    if not isinstance(output, JsonSchema) or not output.is_strict:
        return []
    lenient = trial.build(_demand(JsonSchema(output.schema, is_strict=False), body), tenant)
    return [] if lenient.machine is None else list(lenient.machine.relaxed)


def _grammar_chars(found: Compilation) -> int:
    constraint = None if found.machine is None else found.machine.constraint
    return 0 if constraint is None else len(constraint.grammar or "")


def _walk(walk: Walk) -> dict[str, Any]:
    return {
        "is_accepted": walk.is_accepted,
        "text": walk.text,
        "accepted_chars": walk.num_chars_accepted,
        "tokens": walk.num_tokens,
        "forced_tokens": walk.num_forced,
    }
