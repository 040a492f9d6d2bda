"""Structured answers of one server, timed from the request to the last byte: one object, eight at once, tool calls.

Each method is one repetition. Answers are not streamed; each is checked against its schema when the time is taken.
"""

import asyncio
import contextlib
import http.client
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import jsonschema

from benchmarks.servers.client import RequestFailed, Target
from benchmarks.structured.schemas import ASKED, Case
from benchmarks.work.prompts import Prompts

NUM_STREAMS = 8
_NOTE_TOKENS = 32
_MAX_TOKENS = 600  # never reached by an answer that keeps to its schema
_TIMEOUT_SECONDS = 300

Kind = Literal["object", "call"]


@dataclass(frozen=True, slots=True)
class Written:
    """One answer."""

    began_s: float
    ended_s: float
    num_tokens: int
    num_prompt_tokens: int
    writing_s: float  # after the prompt, as the server tells; 0 where it does not
    num_chars: int  # of its JSON without spaces: what servers can be compared by
    error: str | None  # why it is not valid for its schema

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s


@dataclass(slots=True)
class Tally:
    """How many answers were as they had to be; what was wrong with the last that was not."""

    num_answers: int = 0
    num_valid: int = 0
    error: str | None = None

    def count(self, written: Written) -> None:
        self.num_answers += 1
        self.num_valid += written.error is None
        self.error = written.error or self.error


@dataclass(frozen=True, slots=True)
class Objects:
    """Asks one server. `seed` is the same for every server of a round and different in every round."""

    target: Target
    prompts: Prompts
    seed: str
    pool: ThreadPoolExecutor
    tally: Tally

    async def warm_up(self) -> None:
        """Every schema once as each kind, so that grammars are compiled, then all streams."""
        for kind in ("object", "call"):
            for case in ASKED:
                with contextlib.suppress(RequestFailed):  # it fails again where it is measured, and is reported there
                    await self._ask(kind, case, "warm")
        with contextlib.suppress(RequestFailed):
            await self.together("warm")

    async def objects(self, repeat: str) -> dict[str, float]:
        return await self._in_turn("object", repeat)

    async def calls(self, repeat: str) -> dict[str, float]:
        return await self._in_turn("call", repeat)

    async def together(self, repeat: str) -> dict[str, float]:
        """Streams start at the same moment, each with a prompt of its own."""
        cases = [ASKED[number % len(ASKED)] for number in range(NUM_STREAMS)]
        answers = await asyncio.gather(
            *(self._ask("object", case, f"together {repeat} {number}") for number, case in enumerate(cases))
        )
        seconds = max(answer.ended_s for answer in answers) - min(answer.began_s for answer in answers)
        return {
            "together_objects_per_s": NUM_STREAMS / seconds,
            "together_tokens_per_s": sum(answer.num_tokens for answer in answers) / seconds,
            "together_tokens": sum(answer.num_tokens for answer in answers) / NUM_STREAMS,
        }

    async def _in_turn(self, kind: Kind, repeat: str) -> dict[str, float]:
        """One of each schema, one after the other; the figures without a schema's name are means over all."""
        answers = {case.name: await self._ask(kind, case, repeat) for case in ASKED}
        figures = {f"{kind} {name}": answer.seconds for name, answer in answers.items()}
        figures |= {f"{kind}_tokens {name}": float(answer.num_tokens) for name, answer in answers.items()}
        sums = {
            kind: sum(answer.seconds for answer in answers.values()),
            f"{kind}_tokens": sum(answer.num_tokens for answer in answers.values()),
            f"{kind}_chars": sum(answer.num_chars for answer in answers.values()),
            f"{kind}_prompt_tokens": sum(answer.num_prompt_tokens for answer in answers.values()),
        }
        figures |= {key: value / len(answers) for key, value in sums.items()}
        writing_s = sum(answer.writing_s for answer in answers.values())
        figures[f"{kind}_token"] = writing_s / sums[f"{kind}_tokens"]
        return figures | {f"{kind}_tokens_per_s": sums[f"{kind}_tokens"] / sums[kind]}

    async def _ask(self, kind: Kind, case: Case, name: str) -> Written:
        note = self.prompts.text(f"{self.seed} {name} {case.name}", _NOTE_TOKENS)  # the same for both kinds
        body = {
            "model": self.target.model,
            "messages": [{"role": "user", "content": f"{note}\n\n{case.task}"}],
            "max_tokens": _MAX_TOKENS,
            "temperature": 0.0,
            **_demand(kind, case),
            **self.target.fields,
        }
        loop = asyncio.get_running_loop()
        written = await loop.run_in_executor(self.pool, _write, self.target.port, body, case)
        self.tally.count(written)
        return written


@contextlib.contextmanager
def objects_of(target: Target, prompts: Prompts, seed: str, tally: Tally) -> Iterator[Objects]:
    """Something that asks one server, with a thread for every stream, since a thread waits for each answer."""
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        yield Objects(target, prompts, seed, pool, tally)


def _demand(kind: Kind, case: Case) -> dict[str, Any]:
    if kind == "object":
        schema = {"name": case.name, "strict": True, "schema": case.schema}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    function = {"name": case.name, "description": case.task, "strict": True, "parameters": case.schema}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }


def _write(port: int, body: Mapping[str, object], case: Case) -> Written:
    """One request on a connection of its own."""
    payload = json.dumps(body).encode()
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/v1/chat/completions", payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
    except (OSError, http.client.HTTPException) as failure:
        raise RequestFailed(f"{type(failure).__name__}: {failure}") from None
    finally:
        connection.close()
    ended = time.perf_counter()
    if response.status != 200:
        raise RequestFailed(f"status {response.status}: {data[:300]!r}")
    answer = json.loads(data)
    text = _text(answer["choices"][0]["message"])
    value, error = _checked(text, case.schema)
    num_chars = len(text if error else json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    usage, writing_s = answer["usage"], answer.get("timings", {}).get("predicted_ms", 0.0) / 1000
    return Written(began, ended, usage["completion_tokens"], usage["prompt_tokens"], writing_s, num_chars, error)


def _text(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or ()
    if len(calls) > 1:
        raise RequestFailed(f"{len(calls)} calls where one was wanted")
    return str(calls[0]["function"]["arguments"]) if calls else message.get("content") or ""


def _checked(text: str, schema: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The value, and why it is not valid."""
    try:
        value = json.loads(text)
        jsonschema.validate(value, schema)
    except ValueError as error:
        return None, f"not JSON: {error}"
    except jsonschema.ValidationError as error:
        return None, str(error.message)[:200]
    return value, None
