"""Chat bodies through the real engine, many at once, proved and read back exactly as the server does, without HTTP.

Knows where schemas for long runs come from, and what makes an answer valid; the tests say which answers they want.
"""

import gzip
import json
import os
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.output.answer import Answer
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.runners.base import Lane, Runner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.chat.ask import Conversation, make_ask
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from tests.unit.state_machine.json_schema.test_cases import CASES

EIGHT = (Lane(8, 2048),)
SAMPLE = os.environ.get("PIE_SCHEMA_SAMPLE", "")
Schema = dict[str, Any]


@dataclass(slots=True)
class Reply:
    """What one body got: a refusal, or an answer and the keywords that did not bind it."""

    refusal: str | None = None
    answer: Answer = field(default_factory=Answer)
    relaxed: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        assert self.answer.ended is not None, "no end"
        return self.answer.ended.reason

    @property
    def num_tokens(self) -> int:
        assert self.answer.ended is not None, "no end"
        return self.answer.ended.num_tokens


class _Asked(NamedTuple):
    reply: Reply
    pipeline: Pipeline


class Desk:
    """Takes many chat bodies at once; the engine has as many of them running as its runner has slots."""

    def __init__(self, runner: Runner, config: Config | None = None) -> None:
        self._engine = StepEngine(runner, max_cache_bytes=128 << 20)
        self._model = ServedModel.of(Worker(self._engine), config or Config())

    def ask(self, bodies: Sequence[dict[str, Any]]) -> list[Reply]:
        asked: dict[str, _Asked] = {}
        replies = [self._submit(body, asked) for body in bodies]
        while self._engine.has_work:
            for request_id, _, output in self._engine.step():
                reply, pipeline = asked[request_id]
                for event in pipeline.feed(output):
                    reply.answer.add(event)
        self._engine.check()
        return replies

    def _submit(self, body: dict[str, Any], asked: dict[str, _Asked]) -> Reply:
        model = self._model
        try:
            conversation = Conversation(validate(ChatRequest, {"model": "default", **body}))
            prepared = model.prepare(make_ask(conversation, model, "test", f"ask-{len(asked)}"))
        except InvalidRequest as error:
            return Reply(refusal=error.message)
        reply = Reply(relaxed=prepared.relaxed)
        pipeline = Pipeline(model.answerer.tokenizer, stop=prepared.stop, labels=prepared.labels)
        asked[prepared.request.id] = _Asked(reply, pipeline)
        self._engine.add(prepared.request)
        return reply


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def is_valid(instance: Any, schema: Schema) -> bool | None:
    """None where the validator itself gives up: it knows no regular expressions but Python's."""
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(validator(schema).is_valid(instance))
        except re.error:
            return None


def json_of(text: str) -> Any:
    """Exactly one JSON value, on one line as the grammar spaces it."""
    assert "\n" not in text and text == text.strip(), text
    return json.loads(text)


def pool(count: int, *, max_chars: int = 100_000, only_objects: bool = False) -> list[Schema]:
    """Schemas for a long run, always the same: from the sample where there is one, else from our own tables."""
    schemas = [line["schema"] for line in _lines(Path(SAMPLE))] if SAMPLE else [case.schema for case in CASES]
    wanted = [
        schema
        for schema in schemas
        if isinstance(schema, dict)
        and len(json.dumps(schema)) <= max_chars
        and (not only_objects or schema.get("type") == "object")
    ]
    return random.Random(3).sample(wanted, min(count, len(wanted)))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return map(json.loads, data.splitlines())


def shares(counts: Counter[str]) -> str:
    """Of everything asked, how much ended in which way."""
    total = counts.total()
    return ", ".join(f"{name} {count} ({count / total:.0%})" for name, count in sorted(counts.items()))
