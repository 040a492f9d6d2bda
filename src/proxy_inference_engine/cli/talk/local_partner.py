"""A model loaded into this process by the command itself."""

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

from proxy_inference_engine.cli.progress import ProgressLine
from proxy_inference_engine.cli.shelf.inventory import inventory
from proxy_inference_engine.cli.talk.partner import AnswerEnd, Saying
from proxy_inference_engine.config import Config
from proxy_inference_engine.python.answer import IncompleteAnswer
from proxy_inference_engine.python.engine import Engine
from proxy_inference_engine.python.local_model import fetch


class LocalPartner:
    """A model loaded by this command, which one sequence at a time is enough for."""

    place = "in this process"

    def __init__(self, engine: Engine, config: Config) -> None:
        self._engine = engine
        self._config = config

    @classmethod
    def load(cls, config: Config) -> "LocalPartner":
        """Downloads and loads the model, which a person can watch. Raises StartupError."""
        config = config.model_copy(update={"slots": 1})
        return cls(_load(config), config)

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def context_tokens(self) -> int:
        return self._engine.context_tokens

    def names(self) -> list[str]:
        return [item.name for item in inventory(self._config)]

    def choose(self, name: str) -> None:
        config = self._config.model_copy(update={"model": name})
        with ProgressLine() as line:
            fetch(config, line)  # what is not there is noticed while the other model still is
        self._engine.close()
        try:
            self._engine = _load(config)
        except BaseException:
            self._engine = _load(self._config)
            raise
        self._config = config

    def ask(self, body: Mapping[str, Any]) -> Generator[Saying, None, None]:
        stream = self._engine.stream(**body)
        with closing(stream.events()) as events:
            yield from events
        try:
            answer = stream.answer
        except IncompleteAnswer as incomplete:
            answer = incomplete.answer
        yield AnswerEnd(answer.finish_reason, answer.counts, answer.ignored)

    def progress(self) -> str:
        return ""

    def close(self) -> None:
        self._engine.close()


def _load(config: Config) -> Engine:
    with ProgressLine() as line:
        fetch(config, line)
    with closing(ProgressLine()) as line:
        # Of use to people only: nothing where the output goes elsewhere.
        return Engine.of(config, line if line.is_terminal else None)
