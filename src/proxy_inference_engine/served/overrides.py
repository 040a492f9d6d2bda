"""What the operator says of every request to a model, whatever it says itself."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from proxy_inference_engine.config import Config
from proxy_inference_engine.served.ask import Ask, ChatPrompt

SWITCH = "enable_thinking"  # the variable by which chat templates are told whether to think


@dataclass(frozen=True, slots=True)
class Overrides:
    sampling: Mapping[str, float]  # in place of the request's
    stop: tuple[str, ...]  # beside the request's
    reasons: bool | None  # None: the request says
    variables: Mapping[str, Any]  # for the template, where the request does not set them

    def apply(self, ask: Ask) -> Ask:
        prompt, demand = ask.prompt, ask.demand
        if isinstance(prompt, ChatPrompt):
            variables = {**self.variables, **prompt.variables}
            if self.reasons is not None:
                variables[SWITCH] = self.reasons
                demand = replace(demand, can_reason=self.reasons)
            prompt = replace(prompt, variables=variables)
        limits = replace(ask.limits, stop=[*ask.limits.stop, *self.stop]) if self.stop else ask.limits
        sampling: Any = replace(ask.sampling, **self.sampling)  # type: ignore[arg-type]  # of the same names
        return replace(ask, prompt=prompt, demand=demand, limits=limits, sampling=sampling)


def overrides_of(config: Config) -> Overrides | None:
    forced = {} if config.force_sampling is None else config.force_sampling.given()
    reasons = None if config.reasoning is None else config.reasoning == "on"
    if not (forced or config.stop or config.template_variables or reasons is not None):
        return None
    return Overrides(forced, config.stop, reasons, config.template_variables or {})
