"""What any chat-like API asks of the model, and how that becomes the engine's request. Knows no wire format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Interaction
from proxy_inference_engine.server.convert.request import (
    check_prompt,
    check_text,
    make_limits,
    make_sampling,
    make_state_sampling,
)
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.schemas.generating import Generating
from proxy_inference_engine.server.services import Services
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand
from proxy_inference_engine.state_machine.machine import Machine, MachineBuilder
from proxy_inference_engine.types import Request

_MAX_MESSAGE = 300

Blame = Callable[[InvalidDemand, Demand], str]  # the parameter, in the words of the API, that a refusal is about


@dataclass(frozen=True, slots=True)
class Ask:
    """One conversation to answer. `knobs` has the fields of sampling and stopping."""

    id: str
    turns: Sequence[Interaction]
    knobs: Generating
    demand: Demand
    blame: Blame
    prompt_param: str = "messages"
    max_tokens: int | None = None  # None: all that is left of the context
    variables: Mapping[str, Any] = field(default_factory=dict)  # for the chat template
    add_generation_prompt: bool = True
    continue_final: bool = False
    num_choices: int = 1
    num_top_logprobs: int | None = None


class Prepared(NamedTuple):
    request: Request
    machine: Machine


def prepare(ask: Ask, services: Services, tenant: str) -> Prepared:
    """The proved request of the engine, and the machine its answers are read with. Raises ClientError."""
    engine, demand = services.engine, ask.demand
    sampling = make_sampling(ask.knobs, services.defaults, engine.tokenizer, services.breakers)
    num_chars = sum(len(turn.text) for turn in ask.turns)
    check_text(num_chars, engine.tokenizer, engine.context_tokens, ask.prompt_param)
    prompt = services.renderer.chat(
        ask.turns,
        tools=demand.tools,
        variables=ask.variables,
        add_generation_prompt=ask.add_generation_prompt,
        continue_final=ask.continue_final,
    )
    check_prompt(prompt.ids, engine.context_tokens, ask.prompt_param, needs_answer=True)
    limits = make_limits(ask.knobs, ask.max_tokens, len(prompt.ids), engine.context_tokens, engine.tokenizer)
    machine = build_machine(services.machines, replace(demand, is_reasoning_open=prompt.opens_reasoning), ask.blame)
    request = Request(
        id=ask.id,
        tenant=tenant,
        prompt_ids=prompt.ids,
        images=prompt.images,
        sampling=sampling,
        limits=limits,
        num_choices=ask.num_choices,
        num_top_logprobs=ask.num_top_logprobs,
        constraint=machine.constraint,
        state_sampling=make_state_sampling(sampling, services.state_overrides),
    )
    return Prepared(request, machine)


def build_machine(builder: MachineBuilder, demand: Demand, blame: Blame) -> Machine:
    """Raises InvalidRequest that names the parameter."""
    try:
        return builder.build(demand)
    except InvalidDemand as error:
        param = blame(error, demand)
        message = f"Invalid value for {param!r}: {shorten(error.message, _MAX_MESSAGE)}"
        raise InvalidRequest(message, param=param) from None
