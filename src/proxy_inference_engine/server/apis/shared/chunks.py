"""Parts of answers that several APIs write alike: the head, chunks, usage."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan
from time import monotonic, time
from typing import Any

from proxy_inference_engine.output.events import Ended, TokenLogprob, TopLogprob
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.stream import Counts
from proxy_inference_engine.server.http.wire import JsonItems, LongList, dumps

LEAST_CHARS = 35  # of one in JSON, in whichever way
_LEAST = -9999.0  # JSON has no -inf; the format's own word for "very unlikely"
_repr = float.__repr__
# What an entry ends with, by `_forced`.
_FORCED: tuple[dict[str, bool], ...] = ({}, {"forced": False}, {"forced": True})
_FORCED_TEXTS = ("}", ',"forced":false}', ',"forced":true}')


def finite(logprob: float) -> float:
    return logprob if logprob > _LEAST else _LEAST


def _forced(entry: TokenLogprob) -> int:
    """Whether it was: nobody asked, no, yes."""
    return 0 if entry.is_forced is None else 1 + entry.is_forced


class _Names:
    """What is the same about a token wherever it stands: numbered, and written once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, bytes], int] = {}
        self.tokens: list[tuple[str, bytes]] = []
        self.heads: list[str] = []
        self.tails: list[str] = []

    def number(self, entry: TokenLogprob | TopLogprob) -> int:
        key = entry.token, entry.bytes
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.tokens)
            self.tokens.append(key)
            self.heads.append(f'{{"token":{dumps(entry.token)},"logprob":')
            self.tails.append(f',"bytes":{dumps(list(entry.bytes))}')
        return number

    def text(self, numbers: Sequence[int], values: Sequence[float], forced: int) -> str:
        """A token and its alternatives, in JSON."""
        heads, tails = self.heads, self.tails
        first, *top = (
            heads[number] + _repr(value) + tails[number] for number, value in zip(numbers, values, strict=True)
        )
        return f'{first},"top_logprobs":[{"},".join(top)}{"}" if top else ""}]{_FORCED_TEXTS[forced]}'


class ChatTexts:
    """The entries of one choice as chat has them, written as they come and not kept."""

    def __init__(self) -> None:
        self._names = _Names()

    def json(self, entries: Sequence[TokenLogprob]) -> str:
        return f"[{','.join(map(self._text, entries))}]"

    def _text(self, entry: TokenLogprob) -> str:
        both: tuple[TokenLogprob | TopLogprob, ...] = (entry, *entry.top)
        return self._names.text(
            list(map(self._names.number, both)), [finite(each.logprob) for each in both], _forced(entry)
        )


class ChatLogprobs(LongList):
    """The list of one choice as chat and responses have it. It grows at its end."""

    def __init__(self) -> None:
        self._names = _Names()
        # Of each token and then of its alternatives; where each token's begin.
        self._numbers = array("I")
        self._values = array("d")
        self._starts = array("Q", (0,))
        self._forced = bytearray()

    @property
    def num_logprobs(self) -> int:
        return len(self._numbers)

    def extend(self, entries: Sequence[TokenLogprob]) -> None:
        number = self._names.number
        for entry in entries:
            self._numbers.append(number(entry))
            self._values.append(finite(entry.logprob))
            for top in entry.top:
                self._numbers.append(number(top))
                self._values.append(finite(top.logprob))
            self._starts.append(len(self._numbers))
            self._forced.append(_forced(entry))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def item(self, number: int) -> dict[str, Any]:
        first, *top = map(self._object, range(self._starts[number], self._starts[number + 1]))
        return {**first, "top_logprobs": top, **_FORCED[self._forced[number]]}

    def pieces(self) -> Iterator[str]:
        for start in range(0, len(self), self.at_once):
            end = min(start + self.at_once, len(self))
            yield ("," if start else "") + ",".join(map(self._text, range(start, end)))

    def _object(self, place: int) -> dict[str, Any]:
        token, piece = self._names.tokens[self._numbers[place]]
        return {"token": token, "logprob": self._values[place], "bytes": list(piece)}

    def _text(self, number: int) -> str:
        part = slice(self._starts[number], self._starts[number + 1])
        return self._names.text(self._numbers[part], self._values[part], self._forced[number])


class TextLogprobs:
    """The lists of one choice of a text completion, piece by piece: offsets go on where the last piece ended."""

    def __init__(self) -> None:
        self._offset = 0

    def prompt(self, pieces: Sequence[tuple[bytes, bool]], entries: Sequence[TokenLogprob | None]) -> dict[str, Any]:
        """`pieces` are the prompt's tokens: bytes, and whether they are part of the text. The first has no entry."""
        lists = _empty_lists()
        for (piece, is_text), entry in zip(pieces, entries, strict=True):
            self._add(lists, piece, is_text, entry)
        return lists

    def text(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        lists = _empty_lists()
        for entry in entries:
            self._add(lists, entry.bytes, True, entry)
        return lists

    def _add(self, lists: dict[str, list[Any]], piece: bytes, is_text: bool, entry: TokenLogprob | None) -> None:
        lists["tokens"].append(_name(piece))
        lists["text_offset"].append(self._offset)
        lists["token_logprobs"].append(None if entry is None else finite(entry.logprob))
        lists["top_logprobs"].append(None if entry is None else _top(entry))
        if is_text:
            self._offset += sum((byte & 0xC0) != 0x80 for byte in piece)  # characters that begin in it


class TextColumns:
    """The whole lists of one choice of a text completion, which grow by those of its pieces."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._tokens: list[str] = []
        self._values = array("d")  # nan: none
        self._offsets = array("Q")
        self._top_names: list[str] = []
        self._top_values = array("d")
        self._top_starts = array("Q", (0,))

    @property
    def num_logprobs(self) -> int:
        return len(self._values) + len(self._top_values)

    def extend(self, lists: dict[str, Any]) -> None:
        same = self._names.setdefault
        self._tokens += [same(name, name) for name in lists["tokens"]]
        self._values.extend(nan if value is None else value for value in lists["token_logprobs"])
        self._offsets.extend(lists["text_offset"])
        for top in lists["top_logprobs"]:
            self._top_names += [same(name, name) for name in top or ()]
            self._top_values.extend((top or {}).values())
            self._top_starts.append(len(self._top_values))

    def wire(self) -> dict[str, Any]:
        """The columns as they are in JSON."""
        num = len(self._tokens)
        return {
            "tokens": JsonItems(num, self._tokens.__getitem__),
            "token_logprobs": JsonItems(num, self._value),
            "top_logprobs": JsonItems(num, self._top),
            "text_offset": JsonItems(num, self._offsets.__getitem__),
        }

    def _value(self, number: int) -> float | None:
        value = self._values[number]
        return None if isnan(value) else value

    def _top(self, number: int) -> dict[str, float] | None:
        if isnan(self._values[number]):
            return None
        part = slice(self._top_starts[number], self._top_starts[number + 1])
        return dict(zip(self._top_names[part], self._top_values[part], strict=True))


def _empty_lists() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def _top(entry: TokenLogprob) -> dict[str, float]:
    """The likeliest tokens, and the chosen one even when it is not among them."""
    top = {_name(other.bytes): finite(other.logprob) for other in reversed(entry.top)}
    return {**top, _name(entry.bytes): finite(entry.logprob)}


def _name(piece: bytes) -> str:
    """A token as a key: half characters keep their bytes apart, as OpenAI writes them."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The constant part of every chunk and answer of one request."""

    id: str
    model: str
    fingerprint: str
    created: int
    service_tier: str | None = None
    metadata: dict[str, str] | None = None

    @classmethod
    def of(
        cls, id_: str, model: ServedModel, service_tier: str | None, metadata: dict[str, str] | None = None
    ) -> "AnswerHead":
        """The head of an answer that begins now."""
        return cls(id_, model.id, model.answerer.info.fingerprint, int(time()), service_tier, metadata)

    def fields(self, kind: str) -> dict[str, Any]:
        fields = {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }
        return fields if self.service_tier is None else {**fields, "service_tier": self.service_tier}


Told = Callable[[], dict[str, Any]]


class ChunkWriter:
    """Frames with everything but the choice serialised once. `told` is what every chunk says beside its choice."""

    def __init__(self, head: AnswerHead, kind: str, include_usage: bool, told: Told | None = None) -> None:
        self._told = told
        self._start = f'data: {dumps(head.fields(kind))[:-1]},"choices":['
        self._end = '],"usage":null}\n\n' if include_usage else "]}\n\n"
        self._usage_field = ',"usage":null' if include_usage else ""

    def chunk(self, choice: str) -> str:
        if self._told is not None:
            return self.telling_chunk(choice, self._told())
        return f"{self._start}{choice}{self._end}"

    def around(self, before: str, after: str) -> tuple[str, str]:
        """What stands before and after what changes in a choice, of chunks that tell nothing else."""
        return f"{self._start}{before}", f"{after}{self._end}"

    def telling_chunk(self, choice: str, told: dict[str, Any]) -> str:
        """A chunk that has more fields beside its choices."""
        return f"{self._start}{choice}],{dumps(told)[1:-1]}{self._usage_field}}}\n\n"

    def last_chunk(self, choice: str, timings: dict[str, float]) -> str:
        """The chunk in which the last choice ends."""
        return f'{self._start}{choice}],"timings":{dumps(timings)}{self._usage_field}}}\n\n'

    def usage_chunk(self, usage: dict[str, Any]) -> str:
        return f'{self._start}],"usage":{dumps(usage)}}}\n\n'


def ending(ended: Ended) -> dict[str, str]:
    """How a choice ended; a stop string is named, the client's as well as the model family's."""
    reason: dict[str, str] = {"finish_reason": ended.reason}
    return reason if ended.stop_str is None else {**reason, "stop_str": ended.stop_str}


def usage_body(counts: Counts) -> dict[str, Any]:
    return {
        "prompt_tokens": counts.num_prompt_tokens,
        "completion_tokens": counts.num_tokens,
        "total_tokens": counts.num_prompt_tokens + counts.num_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.num_cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": counts.num_reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": counts.num_accepted,
            "rejected_prediction_tokens": counts.num_rejected,
        },
    }


def timings_body(counts: Counts) -> dict[str, float]:
    num_computed = counts.num_prompt_tokens - counts.num_cached_tokens
    return {
        "prompt_ms": round(counts.prompt_ms, 3),
        "prompt_per_second": _rate(num_computed, counts.prompt_ms),
        "predicted_ms": round(counts.predicted_ms, 3),
        "predicted_per_second": _rate(counts.num_tokens, counts.predicted_ms),
    }


def running_timings(counts: Counts) -> dict[str, Any]:
    """The timings of an answer while its tokens come, by this side's clock."""
    now = monotonic()
    read_at = now if counts.read_at is None else counts.read_at
    num_tokens, num_computed = counts.num_so_far(), counts.num_prompt_tokens - counts.num_cached_tokens
    prompt_ms, predicted_ms = (read_at - counts.began) * 1000, (now - read_at) * 1000
    timings = {
        "cache_n": counts.num_cached_tokens,
        "prompt_n": num_computed,
        "prompt_ms": round(prompt_ms, 3),
        "prompt_per_second": _rate(num_computed, prompt_ms),
        "predicted_n": num_tokens,
        "predicted_ms": round(predicted_ms, 3),
        "predicted_per_second": _rate(num_tokens, predicted_ms),
    }
    return {"timings": timings}


def prompt_progress(counts: Counts) -> dict[str, Any]:
    """How far the prompt is: all of it."""
    read_at = counts.began if counts.read_at is None else counts.read_at
    progress = {
        "total": counts.num_prompt_tokens,
        "cache": counts.num_cached_tokens,
        "processed": counts.num_prompt_tokens,
        "time_ms": round((read_at - counts.began) * 1000),
    }
    return {"prompt_progress": progress}


def _rate(num_tokens: int, ms: float) -> float:
    return round(num_tokens * 1000 / ms, 3) if ms > 0 else 0.0
