"""Sampling that differs by what a model is writing: the operator's own values for some states of an answer."""

import json
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from proxy_inference_engine.types import State

_Share = Annotated[float, Field(ge=0, le=1)]


class Override(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """What replaces a request's own value; None: nothing."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: _Share | None = None


class StateSampling(BaseModel, frozen=True, extra="forbid"):
    tool_call: Override | None = None
    reasoning: Override | None = None
    structured: Override | None = None

    def overrides(self) -> dict[State, dict[str, float]]:
        """Only what was said."""
        given = self.model_dump(exclude_none=True)
        states: tuple[State, ...] = ("tool_call", "reasoning", "structured")
        return {state: given[state] for state in states if given.get(state)}


def parse_states(value: object) -> object:
    """A table as TOML gives it, or JSON as the environment does. ValueError names the place."""
    if value is None or isinstance(value, StateSampling):
        return value
    try:
        table = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("should be a JSON object") from None
    try:
        return StateSampling.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else "should be a table of states") from None
