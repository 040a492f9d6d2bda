"""`truncation: auto`: the prompt that is left has the instructions and the newest whole turns, as many as fit."""

import re
from typing import Any

import openai
import pytest

from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, running
from tests.api.writing import Writer

CONTEXT_TOKENS, ANSWER_TOKENS = 1024, 100
NUM_TURNS = 12


def turn(number: int) -> list[Any]:
    call = {"call_id": f"c{number}", "name": "ping", "arguments": "{}"}
    return [
        {"role": "user", "content": f"question {number} " + "x" * 60},
        {"type": "function_call", **call},
        {"type": "function_call_output", "call_id": call["call_id"], "output": f"pong {number}"},
        {"role": "assistant", "content": f"answer {number}"},
    ]


@pytest.mark.parametrize("last", [{"role": "user", "content": "the last"}, None], ids=["asked", "result"])
def test_the_newest_whole_turns_are_left(last: dict[str, str] | None) -> None:
    """With `None` the conversation ends with the result of a call, as in the middle of an agent's loop."""
    writer = Writer(["Done."] * (NUM_TURNS + 1), max_tokens=CONTEXT_TOKENS)
    turns = [turn(number) for number in range(NUM_TURNS)]
    if last is None:
        turns[-1].pop()
    stay = {"role": "developer", "content": "Stay."}
    fields: dict[str, Any] = {"model": MODEL, "instructions": "Always.", "reasoning": {"effort": "none"}}

    def items(first: int) -> list[Any]:
        kept = [item for each in turns[first:] for item in each]
        return [stay, *kept, *([] if last is None else [last])]

    with running(writer) as live, live.openai() as client:
        answer = client.responses.create(**fields, input=items(0), truncation="auto", max_output_tokens=ANSWER_TOKENS)
        assert answer.output_text == "Done." and answer.usage is not None
        (prompt,) = writer.prompts
        questions = [int(number) for number in re.findall(r"question (\d+)", prompt)]
        first = questions[0]
        assert first > 0 and questions == list(range(first, NUM_TURNS)), "the oldest go, without a gap"
        results = [int(number) for number in re.findall(r"pong (\d+)", prompt)]
        assert results == questions and prompt.count("<tool_call>") == len(questions), "no call is without its result"
        assert "Always." in prompt and "Stay." in prompt and (last is None or "the last" in prompt)

        # Nothing else is changed, and nothing goes that would have fitted.
        counts = [
            client.responses.input_tokens.count(**fields, input=items(start)).input_tokens
            for start in (first, first - 1)
        ]
        assert counts[0] == answer.usage.input_tokens <= CONTEXT_TOKENS - ANSWER_TOKENS < counts[1]


def test_what_cannot_be_left_out_is_refused() -> None:
    with running(Writer(["Done."], max_tokens=CONTEXT_TOKENS)) as live, live.openai() as client:
        long: list[dict[str, Any]] = [{"input": "x" * 2000}, {"input": "x", "instructions": "y" * 2000}]
        for fields in long:
            with pytest.raises(openai.BadRequestError) as caught:
                client.responses.create(model=MODEL, truncation="auto", **fields)
            assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model=MODEL, input=[item for n in range(NUM_TURNS) for item in turn(n)])
        assert caught.value.code == "context_length_exceeded", "disabled by default"


def test_truncation_drops_the_oldest_whole_turns() -> None:
    turns: list[Any] = [{"role": "developer", "content": "Stay."}]
    for number in range(12):
        call = {"call_id": f"c{number}", "name": "ping", "arguments": "{}"}
        turns += [
            {"role": "user", "content": f"question {number} " + "x" * 60},
            {"type": "function_call", **call},
            {"type": "function_call_output", "call_id": call["call_id"], "output": "pong"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
    turns.append({"role": "user", "content": "last"})
    with running(FakeRunner(lanes=(Lane(2, 512), Lane(1, 1024)))) as live, live.openai() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model=MODEL, input=turns, instructions="Always.")
        assert caught.value.code == "context_length_exceeded"
        answer = client.responses.create(
            model=MODEL, input=turns, instructions="Always.", truncation="auto", max_output_tokens=100
        )
        assert answer.usage is not None and 600 < answer.usage.input_tokens <= 1024 - 100
        kept = [turns[0], *turns[-1 - 4 * 3 :]]
        counted = client.responses.input_tokens.count(model=MODEL, input=kept, instructions="Always.")
        assert counted.input_tokens <= answer.usage.input_tokens
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model=MODEL, input="x" * 2000, truncation="auto")
        assert caught.value.code == "context_length_exceeded"
