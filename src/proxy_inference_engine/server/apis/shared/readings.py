"""How other servers' values are read: each function makes fields of ours from a value and the body that it stands in.

Raises NotRead for a value that cannot be said in our words: it is then refused like any other.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.state_machine.gbnf import MalformedGbnf, is_gbnf, lark_of

OtherBody = Mapping[str, Any]
OurFields = Mapping[str, Any]

_MAX_TOKENS = 2**63 - 1
_LEAST_BIAS = -100


class NotRead(Exception):
    """A value that only the other server knows what to do with."""


def refuse(_value: Any, _body: OtherBody) -> NoReturn:
    raise NotRead


def skip(_value: Any, _body: OtherBody) -> None:
    return None


# The shape of the answer


def structured_outputs(value: Any, body: OtherBody) -> OurFields:
    """One of several constraints, and options of the library that enforces it, which say nothing here."""
    if not isinstance(value, dict):
        raise NotRead
    given = {name: each for name, each in value.items() if each not in (None, False)}
    readers = {"json": json_schema, "regex": regex, "choice": choice, "grammar": grammar, "json_object": json_object}
    if "structural_tag" in given:
        raise InvalidRequest("Structural tags are not read here.", param="structured_outputs.structural_tag")
    found = [name for name in readers if name in given]
    if len(found) != 1:
        raise InvalidRequest("One constraint is expected, of: " + ", ".join(readers) + ".", param="structured_outputs")
    return readers[found[0]](given[found[0]], body)


def json_object(_value: Any, _body: OtherBody) -> OurFields:
    return {"response_format": {"type": "json_object"}}


def json_schema(value: Any, _body: OtherBody) -> OurFields:
    """A schema, or its text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise NotRead from None
    if not isinstance(value, dict):
        raise NotRead
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": value}}}


def regex(value: Any, _body: OtherBody) -> OurFields:
    return {"response_format": {"type": "grammar", "syntax": "regex", "definition": value}}


def choice(value: Any, _body: OtherBody) -> OurFields:
    return {"response_format": {"type": "choice", "choices": value}}


def grammar(value: Any, _body: OtherBody) -> OurFields:
    """GBNF, which most servers take; what is not GBNF is taken for Lark."""
    if not isinstance(value, str):
        raise NotRead
    return {"response_format": {"type": "grammar", "syntax": "lark", "definition": _lark(value, "grammar")}}


def _lark(text: str, param: str) -> str:
    if not is_gbnf(text):
        return text
    try:
        return lark_of(text)
    except MalformedGbnf as error:
        raise InvalidRequest(f"Invalid value for {param!r}: {error}", param=param) from None


def response_format(value: Any, body: OtherBody) -> OurFields:
    match value:
        case {"type": "json_object" | "json_schema", "schema": dict() as schema, **rest} if not rest:
            return json_schema(schema, body)
        case {"type": "json_schema", "json_schema": {"schema": dict()} as spec, **rest} if not rest:
            if "name" not in spec:
                return {"response_format": {**value, "json_schema": {"name": "answer", **spec}}}
        case {"type": "json", "value": dict() as schema, **rest} if not rest:
            return json_schema(schema, body)
        case {"type": "regex", "value": str() as pattern, **rest} if not rest:
            return regex(pattern, body)
        case {"type": "grammar", "grammar": str() as text, **rest} if not rest:
            return grammar(text, body)
    raise NotRead


# Tools


def functions(value: Any, _body: OtherBody) -> OurFields:
    if not isinstance(value, list):
        raise NotRead
    tools = [{"type": "function", "function": each} for each in value]
    return {"tools": tools, "parallel_tool_calls": False}


def function_call(value: Any, body: OtherBody) -> OurFields:
    if isinstance(value, str):
        return {"tool_choice": value} if body.get("functions") else {}
    if not isinstance(value, dict) or value.keys() != {"name"} or not body.get("functions"):
        raise NotRead
    return {"tool_choice": {"type": "function", "function": value}}


def tool_choice(value: Any, _body: OtherBody) -> OurFields:
    match value:
        case "any" | {"type": "any" | "required"}:
            return {"tool_choice": "required"}
        case {"type": "auto" | "none" as mode}:
            return {"tool_choice": mode}
        case {"type": "function" | "tool", "name": str() as name}:
            return {"tool_choice": {"type": "function", "function": {"name": name}}}
    raise NotRead


# The length


def max_tokens(value: Any, body: OtherBody) -> OurFields:
    limit = _number(value)
    return {"max_tokens": limit} if limit >= 0 else _without_limit(body)


def unlimited(value: Any, body: OtherBody) -> OurFields:
    if _number(value) >= 0:
        raise NotRead
    return _without_limit(body)


def _without_limit(body: OtherBody) -> OurFields:
    """A text completion has a small limit of its own, where none is named."""
    return {} if "messages" in body or "input" in body else {"max_tokens": _MAX_TOKENS}


def stop(value: Any, _body: OtherBody) -> OurFields:
    if not isinstance(value, list) or "" not in value:
        raise NotRead
    return {"stop": [each for each in value if each != ""]}


# Sampling


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotRead
    return value


def window(value: Any, _body: OtherBody) -> OurFields | None:
    """There 0 switches the penalty off, which here the penalty itself does."""
    last = _number(value)
    return None if last == 0 else {"repetition_window": max(0, last)}


def top_k(value: Any, _body: OtherBody) -> OurFields:
    if _number(value) >= 0:
        raise NotRead
    return {"top_k": 0}


def top_n_sigma(value: Any, _body: OtherBody) -> OurFields:
    if not isinstance(value, int | float) or isinstance(value, bool) or value >= 0:
        raise NotRead
    return {}


def do_sample(value: Any, _body: OtherBody) -> OurFields:
    if value is not False:
        raise NotRead
    return {"temperature": 0}


def n_probs(value: Any, body: OtherBody) -> OurFields:
    number = _number(value)
    return {"logprobs": True, "top_logprobs": number} if "messages" in body else {"logprobs": number}


def logit_bias(value: Any, _body: OtherBody) -> OurFields:
    if not isinstance(value, list):
        raise NotRead
    biases: dict[str, Any] = {}
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or _number(pair[0]) < 0:
            raise NotRead
        biases[str(pair[0])] = _LEAST_BIAS if pair[1] is False else pair[1]
    return {"logit_bias": biases}


def lora(value: Any, _body: OtherBody) -> OurFields:
    if not isinstance(value, list) or not all(isinstance(each, dict) and each.get("scale") == 0 for each in value):
        raise NotRead
    return {}


# The server and the prompt


def stream_options(value: Any, _body: OtherBody) -> OurFields:
    if not isinstance(value, dict) or value.get("continuous_usage_stats") is not False:
        raise NotRead
    return {"stream_options": {name: each for name, each in value.items() if name != "continuous_usage_stats"}}


def add_bos_token(value: Any, _body: OtherBody) -> OurFields:
    return {"add_special_tokens": value}


def reasoning(value: Any, _body: OtherBody) -> OurFields:
    names = {"effort": "reasoning_effort", "max_tokens": "reasoning_budget_tokens", "enabled": "enable_thinking"}
    if not isinstance(value, dict) or not value.keys() <= {*names, "exclude"} or value.get("exclude"):
        raise NotRead
    return {names[name]: each for name, each in value.items() if name in names}


def thinking(value: Any, _body: OtherBody) -> OurFields:
    match value:
        case {"type": "enabled", "budget_tokens": int() as budget}:
            return {"enable_thinking": True, "reasoning_budget_tokens": budget}
        case {"type": "enabled"}:
            return {"enable_thinking": True}
        case {"type": "disabled"}:
            return {"enable_thinking": False}
    raise NotRead
