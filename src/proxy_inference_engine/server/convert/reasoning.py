"""What a body says about reasoning, from its several fields: whether, how much, and what the template is told."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import Format

_SWITCH = "enable_thinking"
_EFFORT = "reasoning_effort"
_VARIABLES = "chat_template_kwargs"
_INNER = f"{_VARIABLES}.{_SWITCH}"


class Fields(Protocol):
    """The fields of a body that say something about reasoning."""

    @property
    def enable_thinking(self) -> bool | None: ...

    @property
    def reasoning_effort(self) -> str | None: ...

    @property
    def reasoning_budget_tokens(self) -> int | None: ...

    @property
    def reasoning_min_tokens(self) -> int | None: ...

    @property
    def chat_template_kwargs(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Reasoning:
    variables: Mapping[str, Any]  # for the template
    is_wanted: bool = True
    min_tokens: int = 0
    max_tokens: int | None = None


def make_reasoning(body: Fields, format: Format, readable: Set[str]) -> Reasoning:
    """`readable` are the variables that the template reads."""
    switch = _switch(body)
    _check_limits(body)
    if format.thinking is None and format.channels is None:
        _refuse_all(body, switch)
    if switch is False and body.reasoning_min_tokens:
        raise _conflict("reasoning_min_tokens", "reasoning is switched off")
    return Reasoning(
        _variables(body, switch, readable),
        is_wanted=switch is not False,
        min_tokens=body.reasoning_min_tokens or 0,
        max_tokens=body.reasoning_budget_tokens,
    )


def _variables(body: Fields, switch: bool | None, readable: Set[str]) -> dict[str, Any]:
    """The client's own, and of our fields those that the template reads."""
    # The switch also decides what the model may write: a template that does not read it is no reason to refuse it.
    variables = {name: value for name, value in body.chat_template_kwargs.items() if name != _SWITCH}
    for name, value in ((_SWITCH, switch), (_EFFORT, body.reasoning_effort)):
        if value is None or name not in readable:
            continue
        if variables.setdefault(name, value) != value:
            raise _conflict(f"{_VARIABLES}.{name}", f"'{name}' says otherwise")
    return variables


def _switch(body: Fields) -> bool | None:
    """On, off, or None where nobody said."""
    inner = body.chat_template_kwargs.get(_SWITCH)
    if inner is not None and not isinstance(inner, bool):
        raise InvalidRequest(f"Invalid value for '{_INNER}': a boolean is expected.", param=_INNER)
    by_effort = None if body.reasoning_effort is None else body.reasoning_effort != "none"
    said = [value for value in (body.enable_thinking, inner, by_effort) if value is not None]
    if len(set(said)) > 1:
        param = _EFFORT if by_effort not in (None, said[0]) else _INNER
        raise _conflict(param, f"'{_SWITCH}' says otherwise")
    return said[0] if said else None


def _check_limits(body: Fields) -> None:
    budget = body.reasoning_budget_tokens
    if budget is not None and (body.reasoning_min_tokens or 0) > budget:
        raise _conflict("reasoning_min_tokens", f"'reasoning_budget_tokens' is {budget}")


def _refuse_all(body: Fields, switch: bool | None) -> None:
    """For a family that does not reason; what asks for no reasoning is fine."""
    asking = {
        _SWITCH: body.enable_thinking,
        _EFFORT: body.reasoning_effort is not None and switch,
        "reasoning_budget_tokens": body.reasoning_budget_tokens,
        "reasoning_min_tokens": body.reasoning_min_tokens,
        _INNER: body.chat_template_kwargs.get(_SWITCH),
    }
    for param, value in asking.items():
        if value:
            raise InvalidRequest(f"'{param}' asks for reasoning, which this model does not do.", param=param)


def _conflict(param: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"'{param}' cannot be honoured: {reason}.", param=param)
