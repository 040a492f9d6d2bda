"""A conversation over the fake model, in this process, as `pie chat` has it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from proxy_inference_engine.cli.talk.conversation import TerminalConversation
from proxy_inference_engine.cli.talk.local_partner import LocalPartner
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.output.events import TextDelta
from proxy_inference_engine.python.engine import Engine
from proxy_inference_engine.python.local_model import LocalModel
from proxy_inference_engine.runners.base import Lane, Row, Runner
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel


def engine_over(runner: Runner, name: str | None = None) -> Engine:
    worker = Worker(StepEngine(runner, max_cache_bytes=1 << 20))
    worker.start()
    return Engine.over(LocalModel(ServedModel.of(worker, Config(), name=name)))


@contextmanager
def fake_conversation(
    *,
    end_bias: float = 4.0,
    on_forward: Callable[[Sequence[Row]], None] | None = None,
    lanes: Sequence[Lane] = (Lane(1, 4096),),
    name: str | None = None,
    **settings: Any,
) -> Iterator[TerminalConversation]:
    engine = engine_over(FakeRunner(lanes=lanes, end_bias=end_bias, on_forward=on_forward), name)
    with closing(LocalPartner(engine, Config())) as partner:
        # Greedy, and never empty: an empty answer is no turn.
        yield TerminalConversation(partner, settings={"temperature": 0, "min_tokens": 2, **settings})


def answer(conversation: TerminalConversation, question: str) -> str:
    return "".join(saying.text for saying in conversation.ask(question) if isinstance(saying, TextDelta))
