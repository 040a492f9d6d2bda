"""The work every server is given: one stream, 16 streams, conversations. Each method is one repetition."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report.samples import percentile
from benchmarks.servers.client import Answer, Target
from benchmarks.work.prompts import Prompts

NUM_STREAMS = 16
NUM_CONVERSATIONS = 8
_NUM_TOKENS = 128
_SHORT_PROMPT_TOKENS = 24
_COLD_PROMPT_TOKENS = 500
_SYSTEM_TOKENS = 1200
_QUESTION_TOKENS = 24
_ANSWER_TOKENS = 32
_GREEDY = {"temperature": 0.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """How often each workload runs in one round, and how long the conversations are."""

    decode: int = 5
    cold: int = 7
    wide: int = 3
    chat: int = 1
    num_turns: int = 5


QUICK = Plan(decode=2, cold=3, wide=1, chat=1, num_turns=3)


@dataclass(frozen=True, slots=True)
class Workloads:
    """Asks one server. `seed` is the same for every server of a round and different in every round."""

    target: Target
    prompts: Prompts
    seed: str
    num_turns: int

    async def warm_up(self) -> None:
        """What a server does once (faulting memory in, compiling) is not measured."""
        await self._complete("warm", 8)
        await asyncio.gather(*(self._complete(f"warm {number}", 16) for number in range(NUM_STREAMS)))

    async def decode(self, repeat: str) -> dict[str, float]:
        answer = await self._complete(f"decode {repeat}", _NUM_TOKENS)
        return {
            "decode": answer.tokens_per_s,
            "decode_gap_p50": percentile(answer.gaps_s, 0.5),
            "decode_gap_p99": percentile(answer.gaps_s, 0.99),
        }

    async def cold(self, repeat: str) -> dict[str, float]:
        answer = await self._complete(f"cold {repeat}", 4, num_prompt_tokens=_COLD_PROMPT_TOKENS)
        return {"cold_ttft": answer.ttft_s}

    async def wide(self, repeat: str) -> dict[str, float]:
        prompts = [f"wide {repeat} {number}" for number in range(NUM_STREAMS)]
        began = time.perf_counter()
        answers = await asyncio.gather(*(self._complete(prompt, _NUM_TOKENS) for prompt in prompts))
        ended = max(answer.times_s[-1] for answer in answers)
        first = [answer.ttft_s for answer in answers]
        gaps = [gap for answer in answers for gap in answer.gaps_s]
        return {
            "wide": sum(answer.num_tokens for answer in answers) / (ended - began),
            "wide_ttft_p50": percentile(first, 0.5),
            "wide_ttft_p99": percentile(first, 0.99),
            "wide_gap_p50": percentile(gaps, 0.5),
            "wide_gap_p99": percentile(gaps, 0.99),
        }

    async def chat(self, repeat: str) -> dict[str, float]:
        """Every conversation has a client of its own, which asks again as soon as it has its answer."""
        conversations = self._conversations(f"chat {repeat}")

        async def talk(conversation: Conversation) -> list[Answer]:
            return [await conversation.turn(self.target) for _ in range(self.num_turns)]

        answers = await asyncio.gather(*(talk(conversation) for conversation in conversations))
        return _first_tokens("chat", [answer for talked in answers for answer in talked])

    async def turns(self, repeat: str) -> dict[str, float]:
        """One request at a time, conversation after conversation, turn after turn."""
        conversations = self._conversations(f"turns {repeat}")
        answers = [
            await conversation.turn(self.target) for _ in range(self.num_turns) for conversation in conversations
        ]
        return _first_tokens("turns", answers)

    async def _complete(self, name: str, num_tokens: int, *, num_prompt_tokens: int = _SHORT_PROMPT_TOKENS) -> Answer:
        prompt = self.prompts.text(f"{self.seed} {name}", num_prompt_tokens)
        return await self.target.stream("/v1/completions", {"prompt": prompt, "max_tokens": num_tokens, **_GREEDY})

    def _conversations(self, name: str) -> list["Conversation"]:
        system = self.prompts.text(f"{self.seed} {name} system", _SYSTEM_TOKENS)
        return [
            Conversation(
                [{"role": "system", "content": system}],
                [
                    self.prompts.text(f"{self.seed} {name} {number} {turn}", _QUESTION_TOKENS)
                    for turn in range(self.num_turns)
                ],
            )
            for number in range(NUM_CONVERSATIONS)
        ]


@dataclass(slots=True)
class Conversation:
    """Grows by a question and the server's own answer every turn."""

    messages: list[dict[str, str]]
    questions: list[str]

    async def turn(self, target: Target) -> Answer:
        self.messages.append({"role": "user", "content": self.questions.pop(0)})
        body = {"messages": self.messages, "max_tokens": _ANSWER_TOKENS, **_GREEDY}
        answer = await target.stream("/v1/chat/completions", body)
        self.messages.append({"role": "assistant", "content": answer.text})
        return answer


def _first_tokens(name: str, answers: Sequence[Answer]) -> dict[str, float]:
    first = [answer.ttft_s for answer in answers]
    return {
        f"{name}_ttft_p50": percentile(first, 0.5),
        f"{name}_ttft_p99": percentile(first, 0.99),
        f"{name}_ttft_mean": statistics.fmean(first),
    }
