"""Requests as spans of OpenTelemetry, by its conventions for HTTP and for generative AI. Nothing of what was said.

A request is a span of its own from the beginning, so that others can belong to it. All the rest is made from times that
are kept anyway, when an answer is over: while tokens come, nothing is done for them.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy_inference_engine import __version__
from proxy_inference_engine.output.events import Ended
from proxy_inference_engine.served.stream import Counts, Observer
from proxy_inference_engine.server.tracing import Headers
from proxy_inference_engine.types import Request

_PROVIDER = "proxy_inference_engine"
_MAX_CHOICES = 16  # of an answer that are shown one by one
_OPERATIONS = {"embed": "embeddings"}  # what else a model is asked for, by our name
_CONTEXT = (b"traceparent", b"tracestate")

_Values = Mapping[str, str | int | float | bool | Sequence[str]]


class OtelTracing:
    """Implements `Tracing`. `close` is the provider's, which sends what it still has."""

    def __init__(self, provider: TracerProvider, close: Callable[[], object]) -> None:
        self._close = close
        self._tracer = provider.get_tracer(_PROVIDER, __version__)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, headers: Headers) -> "RequestSpans":
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name in _CONTEXT}
        return RequestSpans(self._tracer, self._propagator.extract(carrier) if carrier else Context())

    def close(self) -> None:
        self._close()


class _Clock:
    """Moments of the monotonic clock as nanoseconds of the calendar."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def __call__(self, moment: float) -> int:
        return self._offset + int(moment * 1e9)


class RequestSpans:
    """Implements `Trace`: the request's own span, and those below it."""

    def __init__(self, tracer: Tracer, parent: Context, kind: SpanKind = SpanKind.SERVER) -> None:
        self._tracer = tracer
        self._clock = _Clock()
        self._span = tracer.start_span("request", parent, kind)
        self._context = set_span_in_context(self._span, parent)

    def watch(self, observer: Observer, model: str) -> "AnswerSpans":
        return AnswerSpans(self._tracer, self._context, self._clock, observer, model)

    def took(self, name: str, began: float, model: str = "", num_tokens: int = 0) -> None:
        values: dict[str, str | int] = {}
        operation = _OPERATIONS.get(name)
        if operation is not None:
            name, values = f"{operation} {model}", _asked(operation, model)
            values["gen_ai.usage.input_tokens"] = num_tokens
        span = self._tracer.start_span(name, self._context, attributes=values, start_time=self._clock(began))
        span.end()

    def turn(self) -> "RequestSpans":
        return RequestSpans(self._tracer, self._context, SpanKind.INTERNAL)

    def end(self, method: str, route: str, status: int, code: str | None, tenant: str) -> None:
        span = self._span
        span.update_name(f"{method} {route}")
        span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
        if tenant:
            span.set_attribute("user.id", tenant)
        if code is not None or status >= 500:
            span.set_attribute("error.type", code or str(status))
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()


class AnswerSpans:
    """Implements `AnswerTrace`: one answer of a model, and its times in the queue, in the prompt and in steps."""

    def __init__(self, tracer: Tracer, parent: Context, clock: _Clock, observer: Observer, model: str) -> None:
        self._tracer = tracer
        self._parent = parent
        self._clock = clock
        self._observer = observer
        self._model = model
        self._began = time.monotonic()
        self._values: dict[str, str | int | float | bool | Sequence[str]] = {}
        self._operation = "chat"
        self.observe_gap = observer.observe_gap

    def begin(self, requests: Sequence[Request], *, is_chat: bool) -> None:
        request = requests[0]
        self._operation = "chat" if is_chat else "text_completion"
        self._values = {
            **_asked(self._operation, self._model),
            "gen_ai.response.id": request.id,
            "gen_ai.request.temperature": request.sampling.temperature,
            "gen_ai.request.top_p": request.sampling.top_p,
            "gen_ai.request.top_k": request.sampling.top_k,
            "gen_ai.request.max_tokens": request.limits.max_tokens,
        }
        num_choices = sum(each.num_choices for each in requests)
        if num_choices > 1:
            self._values["gen_ai.request.choice.count"] = num_choices

    def observe_first(self, seconds: float) -> None:
        self._values["gen_ai.response.time_to_first_chunk"] = seconds
        self._observer.observe_first(seconds)

    def observe_end(self, tenant: str, counts: Counts, num_tokens: int) -> None:
        self._observer.observe_end(tenant, counts, num_tokens)
        now = time.monotonic()
        span = self._span(f"{self._operation} {self._model}", self._parent, self._began, self._values)
        span.set_attributes(_used(counts, num_tokens))
        if not counts.are_final:
            span.set_attribute("error.type", "incomplete")  # it failed, or nobody wanted it any more
        below = set_span_in_context(span, self._parent)
        self._span("prepare", below, self._began).end(self._clock(counts.began))
        for number, ended in enumerate(counts.ended[:_MAX_CHOICES]):
            self._show_choice(number, ended, below, counts.began)
        span.end(self._clock(now))

    def _show_choice(self, number: int, ended: Ended, parent: Context, began: float) -> None:
        timings = ended.timings
        parts = (("queue", timings.queued_ms), ("prefill", timings.prompt_ms), ("steps", timings.predicted_ms))
        for name, milliseconds in parts:
            values = {"pie.choice": number, **({"pie.tokens": ended.num_tokens} if name == "steps" else {})}
            span = self._span(name, parent, began, values)
            began += milliseconds / 1000
            span.end(self._clock(began))

    def _span(self, name: str, parent: Context, began: float, values: _Values | None = None) -> Span:
        return self._tracer.start_span(
            name, parent, SpanKind.INTERNAL, attributes=values, start_time=self._clock(began)
        )


def _asked(operation: str, model: str) -> dict[str, str | int]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDER,
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
    }


def _used(counts: Counts, num_tokens: int) -> dict[str, str | int | Sequence[str]]:
    return {
        "gen_ai.usage.input_tokens": counts.num_prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": counts.num_cached_tokens,
        "gen_ai.usage.output_tokens": num_tokens,
        "gen_ai.usage.reasoning.output_tokens": counts.num_reasoning_tokens,
        "gen_ai.response.finish_reasons": [ended.reason for ended in counts.ended],
    }
