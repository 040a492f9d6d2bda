"""Events as llama.cpp's server writes its own completions: pieces with `content`, and a last one that says it all."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy_inference_engine.output.events import Ended, Event, PromptRead, TextDelta, TokenLogprob, TopLogprob
from proxy_inference_engine.served.stream import Counts, Step
from proxy_inference_engine.server.apis.shared.chunks import (
    LEAST_CHARS,
    finite,
    prompt_progress,
    running_timings,
    timings_body,
)
from proxy_inference_engine.server.http.errors import WireShape
from proxy_inference_engine.server.http.wire import dumps
from proxy_inference_engine.types import Request

SHAPE = WireShape(end="")  # its streams end with the last piece

_STOPS = {"stop": "eos", "length": "limit"}


@dataclass(frozen=True, slots=True)
class NativeShape:
    """What the client asked to see."""

    model: str
    requests: Sequence[Request]
    prompts: Sequence[str]
    has_logprobs: bool
    fields: Sequence[str] = ()  # only these; none: all
    settings: dict[str, Any] = field(default_factory=dict)
    tells_timings: bool = False
    tells_progress: bool = False


class _Text:
    """What one prompt was answered."""

    def __init__(self, index: int, shape: NativeShape) -> None:
        self._index = index
        self._shape = shape
        self.num_chars = 0
        self._pieces: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def feed(self, event: Event) -> dict[str, Any] | None:
        """A piece on its way; the answer keeps it too."""
        if not isinstance(event, TextDelta):
            return None
        entries = [_entry(each) for each in event.logprobs] if self._shape.has_logprobs else []
        self._pieces.append(event.text)
        self._logprobs += entries
        self.num_chars += len(event.text) + LEAST_CHARS * sum(1 + len(each.top) for each in event.logprobs)
        piece = {"index": self._index, "content": event.text, "tokens": [], "stop": False, "id_slot": -1}
        return {**piece, "completion_probabilities": entries} if entries else piece

    def end(self, ended: Ended, counts: Counts, *, is_whole: bool) -> dict[str, Any]:
        shape, request = self._shape, self._shape.requests[self._index]
        text = "".join(self._pieces)
        answer: dict[str, Any] = {
            "index": self._index,
            "content": text if is_whole else "",
            "tokens": [],
            "id_slot": -1,
            "stop": True,
            "model": shape.model,
            "tokens_predicted": ended.num_tokens,
            "tokens_evaluated": len(request.prompt_ids),
            "generation_settings": shape.settings,
            "prompt": shape.prompts[self._index],
            "has_new_line": "\n" in text,
            "truncated": False,
            "stop_type": "word" if ended.stop_str is not None else _STOPS[ended.reason],
            "stopping_word": ended.stop_str or "",
            "tokens_cached": len(request.prompt_ids) + ended.num_tokens - 1,
            "timings": {
                **timings_body(counts),
                "cache_n": counts.num_cached_tokens,
                "prompt_n": max(0, len(request.prompt_ids) - counts.num_cached_tokens),
                "predicted_n": ended.num_tokens,
            },
        }
        if shape.has_logprobs and is_whole:
            answer["completion_probabilities"] = self._logprobs
        return answer if not shape.fields else _chosen(answer, shape.fields)


class NativeFrames:
    """One frame a piece."""

    def __init__(self, shape: NativeShape, counts: Counts) -> None:
        self._texts = [_Text(index, shape) for index in range(len(shape.requests))]
        self._shape = shape
        self._counts = counts

    def feed(self, step: Step) -> str:
        return "".join(self._frame(index, event) for index, event in step)

    def _frame(self, index: int, event: Event) -> str:
        text, shape = self._texts[index], self._shape
        if isinstance(event, Ended):
            said: dict[str, Any] | None = text.end(event, self._counts, is_whole=False)
        elif isinstance(event, PromptRead) and shape.tells_progress:
            said = {"index": index, "content": "", "stop": False, **prompt_progress(self._counts)}
        else:
            said = text.feed(event)
            said = {**said, **running_timings(self._counts)} if said is not None and shape.tells_timings else said
        return "" if said is None else f"data: {dumps(said)}\n\n"

    def finish(self) -> str:
        return ""


class NativeWhole:
    """The answer to one prompt, or a list of answers."""

    def __init__(self, shape: NativeShape, counts: Counts) -> None:
        self._texts = [_Text(index, shape) for index in range(len(shape.requests))]
        self._ends: list[Ended | None] = [None] * len(self._texts)
        self._counts = counts

    @property
    def num_chars(self) -> int:
        return sum(text.num_chars for text in self._texts)

    def feed(self, step: Step) -> str:
        for index, event in step:
            if isinstance(event, Ended):
                self._ends[index] = event
            else:
                self._texts[index].feed(event)
        return ""

    def finish(self) -> str:
        return dumps(self.body())

    def body(self) -> Any:
        ends = [ended for ended in self._ends if ended is not None]
        pairs = zip(self._texts, ends, strict=True)
        answers = [text.end(ended, self._counts, is_whole=True) for text, ended in pairs]
        return answers[0] if len(answers) == 1 else answers


def _entry(entry: TokenLogprob) -> dict[str, Any]:
    return {**_token(entry), "top_logprobs": [_token(top) for top in entry.top]}


def _token(entry: TokenLogprob | TopLogprob) -> dict[str, Any]:
    return {
        "id": entry.token_id,
        "token": entry.token,
        "bytes": list(entry.bytes),
        "logprob": finite(entry.logprob),
    }


def _chosen(answer: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Fields by name, those of an object inside after a slash."""
    chosen: dict[str, Any] = {}
    for name in names:
        value: Any = answer
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            chosen[name.rsplit("/", 1)[-1]] = value
    return chosen
