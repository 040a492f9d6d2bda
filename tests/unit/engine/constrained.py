"""Requests under real grammars over the fake runner's vocabulary, and what they say."""

from dataclasses import replace
from functools import cache
from typing import Any

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema, ListedText, ToolChoice
from proxy_inference_engine.state_machine.machine import Machine, MachineBuilder
from proxy_inference_engine.types import Limits, Request, Sampling
from tests.unit.engine.driven import Heard

PROMPT = tuple(b"what is it? ")
RECORD = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 6},
        "is_new": {"type": "boolean"},
        "size": {"enum": [1, 22]},
    },
    "required": ["title", "is_new", "size"],
    "additionalProperties": False,
}
NOTE = Tool("note", "", {"type": "object", "properties": {"is_new": {"type": "boolean"}}, "required": ["is_new"]})
FORCED = "the answer is: "


@cache
def builder_of(format: str = "qwen3") -> MachineBuilder:
    return MachineBuilder(by_name(format), ByteTokenizer(), tracks_states=True)


def machine_of(demand: Demand, format: str = "qwen3") -> Machine:
    return builder_of(format).build(replace(demand, can_reason=demand.is_reasoning_open))


def constrained(
    demand: Demand, *, id: str = "a", max_tokens: int = 200, temperature: float = 1.0, seed: int = 1, **rest: Any
) -> Request:
    limits = rest.pop("limits", Limits(max_tokens))
    return Request(
        id=id,
        tenant=rest.pop("tenant", "t"),
        prompt_ids=rest.pop("prompt_ids", PROMPT),
        sampling=Sampling(seed=seed, temperature=temperature),
        limits=limits,
        constraint=machine_of(demand).constraint,
        **rest,
    )


def text_of(heard: Heard) -> str:
    tokenizer = ByteTokenizer()
    return b"".join(tokenizer.token_bytes(token.id) for token in heard.tokens if token.is_visible).decode()


def brief(heard: Heard) -> tuple[list[int], str]:
    return heard.token_ids, heard.finished.reason


DEMANDS = {
    "record": Demand(output=JsonSchema(RECORD)),
    "object": Demand(output=JsonSchema({"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 9})),
    "choice": Demand(output=ListedText((FORCED + "yes", FORCED + "no", "else"))),
    "call": Demand(tools=(NOTE,), tool_choice=ToolChoice("required"), is_parallel=False),
    "calls": Demand(tools=(NOTE,), tool_choice=ToolChoice("required")),
    "auto": Demand(tools=(NOTE,)),
    "thinking": Demand(output=JsonSchema(RECORD), is_reasoning_open=True, max_reasoning_tokens=7),
    "bounded": Demand(is_reasoning_open=True, min_reasoning_tokens=5, max_reasoning_tokens=9),
}
