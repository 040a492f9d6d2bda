"""POST /v1/completions: raw prompts, never through the chat template."""

from collections.abc import Callable
from functools import partial
from time import time

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.prompt.infill import find_markers, infill
from proxy_inference_engine.server.body import read_json
from proxy_inference_engine.server.convert.completions import (
    CompletionAnswer,
    CompletionFrames,
    EchoedPrompt,
    Shape,
    echoed_prompt,
)
from proxy_inference_engine.server.convert.head import Head
from proxy_inference_engine.server.convert.request import (
    check_ids,
    check_prompt,
    check_text,
    extra_work,
    make_limits,
    make_sampling,
    num_top_logprobs,
)
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Generation
from proxy_inference_engine.server.ids import new_id
from proxy_inference_engine.server.off_loop import off_loop
from proxy_inference_engine.server.record import record_of
from proxy_inference_engine.server.routes.answering import answer, stream
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.completions import CompletionRequest, Prompt
from proxy_inference_engine.server.services import Services, services_of
from proxy_inference_engine.types import Request


async def create_completion(http: HttpRequest) -> Response:
    services, record = services_of(http), record_of(http.scope)
    body = await read_json(http.scope, http.receive, partial(validate, CompletionRequest))
    services.check_model(body.model)
    services.drain.check()
    id_ = new_id("cmpl-")
    size = sum(map(len, body.prompt)) + len(body.suffix or "") + extra_work(body)
    requests = await off_loop(lambda: prepare(body, services, id_, record.tenant), size)
    echoes = await off_loop(lambda: _echoes(body, services, requests), size)

    tally = Tally([len(request.prompt_ids) for request in requests], body.num_generated, record)
    head = _head(id_, services, body)
    shape = Shape(body.n, echoes, body.logprobs is not None, body.include_usage, body.num_candidates)
    # Submitted last: from here on somebody always cancels it.
    generation = Generation(services.engine, requests, body.stop or (), services.metrics)
    if body.stream:
        return stream(services, generation, CompletionFrames(head, tally, shape))
    return await answer(http, services, generation, CompletionAnswer(head, tally, shape))


def prepare(body: CompletionRequest, services: Services, id_: str, tenant: str) -> list[Request]:
    """One proved request a prompt; every one is proved before any is submitted."""
    engine = services.engine
    sampling = make_sampling(body, services.defaults, engine.tokenizer, services.breakers)
    place = _placing(body, services)
    requests = []
    for number, prompt in enumerate(body.prompt):
        ids = place(_prompt_ids(prompt, services))
        check_prompt(ids, engine.context_tokens, "prompt", needs_answer=body.max_tokens > 0)
        requests.append(
            Request(
                id=f"{id_}-{number}",
                tenant=tenant,
                prompt_ids=ids,
                sampling=sampling,
                limits=make_limits(body, body.max_tokens, len(ids), engine.context_tokens, engine.tokenizer),
                num_choices=body.num_generated,
                num_top_logprobs=num_top_logprobs(body.logprobs, body),
                num_prompt_logprobs=body.logprobs if body.echo else None,
            )
        )
    return requests


def _prompt_ids(prompt: Prompt, services: Services) -> tuple[int, ...]:
    if isinstance(prompt, str):
        check_text(len(prompt), services.engine.tokenizer, services.engine.context_tokens, "prompt")
        return tuple(services.renderer.raw(prompt).ids)
    check_ids(prompt, services.engine.tokenizer, "prompt")
    return tuple(prompt)


def _placing(body: CompletionRequest, services: Services) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """What the ids of a prompt become: with a suffix, the model is to fill the gap between the two."""
    if not body.suffix:
        return lambda ids: ids
    tokenizer = services.engine.tokenizer
    markers = find_markers(tokenizer)
    if markers is None:
        raise InvalidRequest(
            "'suffix' is not supported by this model: it has no fill-in-the-middle.",
            param="suffix",
            code="unsupported_parameter",
        )
    if body.echo:
        raise InvalidRequest("'echo' is not possible with a suffix.", param="echo")
    suffix = tokenizer.encode(body.suffix)
    return lambda ids: infill(markers, ids, suffix, tokenizer.bos_id)


def _echoes(body: CompletionRequest, services: Services, requests: list[Request]) -> tuple[EchoedPrompt | None, ...]:
    if not body.echo:
        return (None,) * len(requests)
    return tuple(
        echoed_prompt(request.prompt_ids, prompt if isinstance(prompt, str) else None, services.engine.tokenizer)
        for request, prompt in zip(requests, body.prompt, strict=True)
    )


def _head(id_: str, services: Services, body: CompletionRequest) -> Head:
    return Head(
        id=id_,
        model=services.model_id,
        fingerprint=services.engine.info.fingerprint,
        created=int(time()),
        service_tier=None if body.service_tier is None else "default",
    )
