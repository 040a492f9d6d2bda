"""What a body says about reasoning, from its several fields: whether, how much, and what the template is told.

One policy for all: a model that does not reason, or whose template reads no effort, skips the effort and is named as
ignoring it; who switches reasoning off where nothing can, is told so in the same way. What asks for reasoning in so
many words (`enable_thinking`, a budget) is refused by a model that does none.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from proxy_inference_engine.errors import PARAM, ClientError, InvalidRequest, shorten
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.overrides import SWITCH

_EFFORT = "reasoning_effort"
_VARIABLES = "chat_template_kwargs"
_INNER = f"{_VARIABLES}.{SWITCH}"


class ReasoningFields(Protocol):
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
class ReasoningWishes:
    variables: Mapping[str, Any]  # for the template
    is_wanted: bool = True
    min_tokens: int = 0
    max_tokens: int | None = None
    ignored: tuple[str, ...] = ()  # fields that change nothing for this model


def make_reasoning(
    body: ReasoningFields, model: ServedModel, name_param: Callable[[str], str] = str
) -> ReasoningWishes:
    """`name_param`: what the API calls a field of chats. Raises InvalidRequest that names the field."""
    try:
        wishes = _wishes(body, model)
    except ClientError as error:
        error.rename(name_param)
        raise
    return replace(wishes, ignored=tuple(map(name_param, wishes.ignored)))


def _wishes(body: ReasoningFields, model: ServedModel) -> ReasoningWishes:
    readable = model.renderer.variables
    effort = body.reasoning_effort if model.can_reason or _EFFORT in readable else None
    said = _said(body, effort)
    switch = said[0].value if said else None
    _check_limits(body)
    if not model.can_reason:
        _refuse_all(body, readable)
    if switch is False and body.reasoning_min_tokens:
        raise _conflict("reasoning_min_tokens", "reasoning is switched off")
    goes_on = switch is False and model.can_reason and not model.can_silence
    given = {name: value for name, value in body.chat_template_kwargs.items() if name != SWITCH}
    variables = template_variables(given, model)
    return ReasoningWishes(
        _with_ours(variables.readable, switch, effort, readable),
        is_wanted=switch is not False or goes_on,  # what it thinks all the same is no text
        min_tokens=body.reasoning_min_tokens or 0,
        max_tokens=body.reasoning_budget_tokens,
        ignored=(
            *(each.param for each in said if goes_on and each.param not in readable),
            *_idle(body, model),
            *variables.ignored,
        ),
    )


class TemplateVariables(NamedTuple):
    """What a client gives the chat template, divided into what that reads and the names of the rest.

    Those that only the server may fill are among what is read: the renderer refuses them.
    """

    readable: dict[str, Any]
    ignored: tuple[str, ...]


def template_variables(given: Mapping[str, Any], model: ServedModel) -> TemplateVariables:
    reads = model.renderer.reads
    readable = {name: value for name, value in given.items() if reads(name)}
    return TemplateVariables(readable, tuple(f"{_VARIABLES}.{shorten(name)}" for name in given if not reads(name)))


def _idle(body: ReasoningFields, model: ServedModel) -> Iterator[str]:
    """Wishes to reason that nothing reads."""
    readable = model.renderer.variables
    if body.reasoning_effort not in (None, "none") and _EFFORT not in readable:
        yield _EFFORT
    if body.chat_template_kwargs.get(SWITCH) and not model.can_reason and SWITCH not in readable:
        yield _INNER


def _with_ours(
    variables: dict[str, Any], switch: bool | None, effort: str | None, readable: Set[str]
) -> dict[str, Any]:
    """The client's own variables, and of our fields those that the template reads."""
    # The switch also decides what the model may write: a template that does not read it is no reason to refuse it.
    for name, value in ((SWITCH, switch), (_EFFORT, effort)):
        if value is None or name not in readable:
            continue
        if variables.setdefault(name, value) != value:
            raise _conflict(f"{_VARIABLES}.{name}", f"'{name}' says otherwise")
    return variables


class _Said(NamedTuple):
    """What one field says about whether to reason."""

    param: str
    value: bool


def _said(body: ReasoningFields, effort: str | None) -> list[_Said]:
    """What the fields of a body say, which is all the same. Raises InvalidRequest where two of them differ."""
    inner = body.chat_template_kwargs.get(SWITCH)
    if inner is not None and not isinstance(inner, bool):
        raise InvalidRequest(f"Invalid value for {PARAM}: a boolean is expected.", param=_INNER)
    by_effort = None if effort is None else effort != "none"
    fields = ((SWITCH, body.enable_thinking), (_INNER, inner), (_EFFORT, by_effort))
    said = [_Said(param, value) for param, value in fields if value is not None]
    if len({each.value for each in said}) > 1:
        param = _EFFORT if by_effort not in (None, said[0].value) else _INNER
        raise _conflict(param, f"'{SWITCH}' says otherwise")
    return said


def _check_limits(body: ReasoningFields) -> None:
    budget = body.reasoning_budget_tokens
    if budget is not None and (body.reasoning_min_tokens or 0) > budget:
        raise _conflict("reasoning_min_tokens", f"'reasoning_budget_tokens' is {budget}")


def _refuse_all(body: ReasoningFields, readable: Set[str]) -> None:
    """Refuse to reason, for a family that cannot. Who asks for none may, and for what its template reads."""
    asking = {
        SWITCH: body.enable_thinking and SWITCH not in readable,
        "reasoning_budget_tokens": body.reasoning_budget_tokens,
        "reasoning_min_tokens": body.reasoning_min_tokens,
    }
    for param, value in asking.items():
        if value:
            raise InvalidRequest(f"{PARAM} asks for reasoning, which this model does not do.", param=param)


def _conflict(param: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{PARAM} cannot be honoured: {reason}.", param=param)
