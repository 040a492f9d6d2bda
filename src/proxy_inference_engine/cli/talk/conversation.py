"""A conversation with a partner: what was said, how the next answer is to be. Knows no terminal."""

import json
import re
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy_inference_engine.cli.talk.partner import AnswerEnd, Partner, Saying
from proxy_inference_engine.errors import InvalidRequest, PieError, StartupError
from proxy_inference_engine.models.profile import profile
from proxy_inference_engine.output.events import TextDelta

_PENALTY = "repetition_penalty"
_PLACE = re.compile(r"Invalid value for 'messages[^']*': ")


@dataclass(slots=True)
class TerminalConversation:
    """Remembers a turn once it has an answer; one that was stopped early keeps what had come."""

    partner: Partner
    system: str | None = None
    format: dict[str, Any] | None = None  # what every answer has to look like
    settings: dict[str, Any] = field(default_factory=dict)  # fields of a chat completion
    images: list[dict[str, Any]] = field(default_factory=list)  # go with the next question
    messages: list[dict[str, Any]] = field(default_factory=list)
    last: AnswerEnd | None = None

    def clear(self) -> None:
        self.messages, self.images, self.last = [], [], None

    def ask(self, question: str) -> Generator[Saying, None, None]:
        """The answer as it comes. Closing the generator stops it. Raises PieError, and then nothing was said."""
        content: Any = [{"type": "text", "text": question}, *self.images] if self.images else question
        return self._answer([*self.messages, {"role": "user", "content": content}])

    def retry(self) -> Generator[Saying, None, None]:
        """Another answer to the last question. Raises StartupError where there is none."""
        questions = [place for place, message in enumerate(self.messages) if message["role"] == "user"]
        if not questions:
            raise StartupError("there is no question yet to answer again")
        return self._answer(self.messages[: questions[-1] + 1])

    def _answer(self, messages: list[dict[str, Any]]) -> Generator[Saying, None, None]:
        text = ""
        try:
            with closing(self.partner.ask(self.body(messages))) as sayings:
                for saying in sayings:
                    if isinstance(saying, TextDelta):
                        text += saying.text
                    elif isinstance(saying, AnswerEnd):
                        self.last = saying
                    yield saying
        except PieError as error:
            raise _plain(error) from None
        finally:
            self.images = []  # a model that takes none would refuse every question after this one
            if text:
                self.messages = [*messages, {"role": "assistant", "content": text}]

    def body(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """What is asked after these messages, as fields of a chat completion."""
        told = [] if self.system is None else [{"role": "system", "content": self.system}]
        body: dict[str, Any] = {"messages": [*told, *messages], **self.settings}
        if self.format is not None:
            body["response_format"] = self.format
        # People at a terminal have no penalty at hand, and some models repeat themselves without one.
        penalty = profile(self.partner.name).terminal_penalty
        if _PENALTY not in body and penalty > 1.0:
            body[_PENALTY] = penalty
        return body

    def save(self, path: Path) -> None:
        """The conversation as messages of a chat completion. Raises OSError; a file that is there is not replaced."""
        told = [] if self.system is None else [{"role": "system", "content": self.system}]
        document = {"model": self.partner.name, "messages": [*told, *self.messages]}
        with path.open("x", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False, indent=2)
            file.write("\n")

    def load(self, path: Path) -> None:
        """What `save` wrote, in place of this conversation. Raises StartupError and OSError."""
        try:
            messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
            turns = [{"role": str(each["role"]), "content": each["content"]} for each in messages]
        except (ValueError, KeyError, TypeError):
            raise StartupError(f"{path}: no conversation that was saved") from None
        self.clear()
        self.system = turns.pop(0)["content"] if turns and turns[0]["role"] == "system" else None
        self.messages = turns


def _plain(error: PieError) -> PieError:
    """No person wrote messages[0].content[1]: what is wrong with it is enough."""
    what = _PLACE.sub("", error.message)
    return error if what == error.message else InvalidRequest(what, code=error.code)
