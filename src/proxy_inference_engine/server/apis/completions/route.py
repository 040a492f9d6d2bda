"""POST /v1/completions: raw prompts, never through the chat template."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.stream import AnswerStream
from proxy_inference_engine.server.apis.completions.ask import make_asks
from proxy_inference_engine.server.apis.completions.schema import CompletionRequest
from proxy_inference_engine.server.apis.completions.writer import (
    CompletionFrames,
    CompletionShape,
    CompletionWhole,
    EchoedPrompt,
    echoed_prompt,
)
from proxy_inference_engine.server.apis.shared.chunks import AnswerHead
from proxy_inference_engine.server.apis.shared.route import ignored_headers, receive, relaxed_headers
from proxy_inference_engine.server.http.wire import new_id


async def create_completion(http: HttpRequest) -> Response:
    exchange = await receive(http, CompletionRequest)
    body, model, id_ = exchange.body, exchange.model, new_id("cmpl-")
    with await exchange.answer(*make_asks(body, model, exchange.tenant, id_)) as stream:
        echoes = await exchange.off_loop(lambda: _echoes(body, model, stream))
        head = AnswerHead.of(id_, model, None if body.service_tier is None else exchange.rank.tier)
        shape = CompletionShape(
            num_choices=body.n,
            echoes=echoes,
            has_logprobs=body.logprobs is not None,
            include_usage=body.include_usage,
            num_candidates=body.num_candidates,
            tells_timings=body.timings_per_token,
            tells_progress=body.return_progress,
        )
        headers = {**relaxed_headers(stream.relaxed), **ignored_headers(body.ignored)}
        if body.stream:
            return exchange.stream(stream, CompletionFrames(head, stream.counts, shape), headers)
        return await exchange.whole(stream, CompletionWhole(head, stream.counts, shape), headers)


def _echoes(body: CompletionRequest, model: ServedModel, stream: AnswerStream) -> tuple[EchoedPrompt | None, ...]:
    if not body.echo:
        return (None,) * len(body.prompt)
    return tuple(
        echoed_prompt(request.prompt_ids, prompt if isinstance(prompt, str) else None, model.answerer.tokenizer)
        for request, prompt in zip(stream.requests, body.prompt, strict=True)
    )
