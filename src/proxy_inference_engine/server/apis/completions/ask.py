"""A body of text completions as what is asked of the model: one ask a prompt."""

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.served.ask import ANYTHING, Ask, RawPrompt
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.completions.schema import CompletionRequest
from proxy_inference_engine.server.apis.shared.fields import limit_wishes, sampling_wishes
from proxy_inference_engine.server.apis.shared.tools import make_output, name_output
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand


def make_asks(body: CompletionRequest, model: ServedModel, tenant: str, id_: str) -> list[Ask]:
    if body.suffix and body.echo and model.can_infill:
        raise InvalidRequest("'echo' is not possible with a suffix.", param="echo")
    if body.banned_strings or body.response_format is not None:
        output = make_output(body.response_format, body.banned_strings)
        demand = Demand(output, closes_objects=not body.open_objects, any_order=body.open_objects)
    else:
        demand = ANYTHING
    sampling, limits = sampling_wishes(body), limit_wishes(body, body.max_tokens)
    return [
        Ask(
            id=f"{id_}-{number}",
            tenant=tenant,
            prompt=RawPrompt(prompt, body.suffix or "", body.parse_special, body.add_special_tokens),
            sampling=sampling,
            limits=limits,
            demand=demand,
            num_choices=body.num_generated,
            num_top_logprobs=body.num_top_logprobs(body.logprobs),
            num_prompt_logprobs=body.logprobs if body.echo else None,
            name_param=_name_param,
            name_demand=_name_demand,
        )
        for number, prompt in enumerate(body.prompt)
    ]


_PARAMS = {"messages": "prompt", "top_logprobs": "logprobs"}


def _name_param(param: str) -> str:
    return _PARAMS.get(param, param)


def _name_demand(_error: InvalidDemand, demand: Demand) -> str:
    return name_output(demand.output)
