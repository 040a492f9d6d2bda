"""Bodies of llama.cpp's completions as what is asked of the model."""

from dataclasses import replace

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.served.ask import Ask, RawPrompt
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.llama_cpp.schema import InfillRequest, NativeFields, NativeRequest
from proxy_inference_engine.server.apis.shared.fields import limit_wishes, sampling_wishes
from proxy_inference_engine.server.apis.shared.tools import make_output, name_output
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand

_PARAMS = {"messages": "prompt", "top_logprobs": "n_probs", "suffix": "input_suffix"}
_RANDOM = -1  # the seed that is none


def completion_asks(body: NativeRequest, tenant: str, id_: str) -> list[Ask]:
    specials, bos = body.parse_special, body.add_special_tokens
    prompts = [RawPrompt(prompt, "", specials, bos) for prompt in body.prompt]
    return [_ask(body, prompt, tenant, f"{id_}-{number}") for number, prompt in enumerate(prompts)]


def infill_asks(body: InfillRequest, model: ServedModel, tenant: str, id_: str) -> list[Ask]:
    """What is beside the file comes before it; the gap goes on with what the client has of it."""
    if not model.can_infill:
        raise InvalidRequest(
            "This model has no fill-in-the-middle.", param="input_suffix", code="unsupported_parameter"
        )
    extra = "".join(f"{each.filename}\n{each.text}\n" for each in body.input_extra)
    # Without a suffix there would be no gap to the model either.
    prompt = RawPrompt(extra + body.input_prefix, body.input_suffix or "\n", begun=body.prompt)
    return [_ask(body, prompt, tenant, f"{id_}-0")]


def _ask(body: NativeFields, prompt: RawPrompt, tenant: str, id_: str) -> Ask:
    sampling = sampling_wishes(body)
    return Ask(
        id=id_,
        tenant=tenant,
        prompt=prompt,
        sampling=replace(sampling, seed=None) if sampling.seed == _RANDOM else sampling,
        limits=limit_wishes(body, body.max_tokens),
        demand=Demand(
            make_output(body.response_format, body.banned_strings),
            closes_objects=not body.open_objects,
            any_order=body.open_objects,
        ),
        num_top_logprobs=body.logprobs,
        name_param=lambda param: _PARAMS.get(param, param),
        name_demand=_name_demand,
    )


def _name_demand(_error: InvalidDemand, demand: Demand) -> str:
    return name_output(demand.output)
