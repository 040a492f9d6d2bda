"""`Engine` and `AsyncEngine` over the fake model: the same served model, without HTTP, blocking and not."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import proxy_inference_engine
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.output.events import CallStarted, Ended, TextDelta
from proxy_inference_engine.python.answer import IncompleteAnswer
from proxy_inference_engine.python.async_engine import AsyncEngine
from proxy_inference_engine.python.engine import Engine
from proxy_inference_engine.python.local_model import LocalModel
from proxy_inference_engine.python.options import ChatOptions
from proxy_inference_engine.runners.base import Runner
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from tests.api.writing import Writer, call


class Verdict(BaseModel):
    is_good: bool
    grade: Literal["a", "b"]


def model_over(runner: Runner) -> LocalModel:
    worker = Worker(StepEngine(runner, max_cache_bytes=1 << 20))
    worker.start()
    return LocalModel(ServedModel.of(worker, Config()))


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine.over(model_over(FakeRunner())) as engine:
        yield engine


def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing {where}"


async def look_later(where: str) -> dict[str, str]:
    """Look somewhere, slowly."""
    await asyncio.sleep(0)
    return {"found": where}


TURNS = (call("look", where="here"), "There is nothing.")


def test_an_answer_and_the_same_as_a_stream(engine: Engine) -> None:
    answer = engine.chat("hello", temperature=0, max_tokens=20, ignore_eos=True)
    assert len(answer.text) == 20 and str(answer) == answer.text
    assert (answer.finish_reason, answer.parsed, answer.calls) == ("length", None, ())
    assert answer.counts.num_tokens == 20 and answer.counts.num_prompt_tokens > 5
    assert answer.messages == (
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": answer.text},
    )
    stream = engine.stream([{"role": "user", "content": "hello"}], temperature=0, max_tokens=20, ignore_eos=True)
    pieces = list(stream)
    assert "".join(pieces) == answer.text and len(pieces) > 5
    assert stream.answer.counts.num_cached_tokens > 0
    further = engine.chat([*answer.messages, {"role": "user", "content": "more"}], max_tokens=2)
    assert len(further.messages) == 4


def test_a_stream_that_is_left_stops_the_engine(engine: Engine) -> None:
    stream = iter(engine.stream("hello", ignore_eos=True))
    assert next(stream)
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    with pytest.raises(RuntimeError, match="read the stream to its end"):
        _ = engine.stream("hello").answer
    events = engine.stream("hello", max_tokens=3, ignore_eos=True).events()
    assert [type(event) for event in events if isinstance(event, TextDelta | Ended)][-1] is Ended


def test_a_pydantic_model_in_and_out(engine: Engine) -> None:
    answer = engine.chat("well?", response_format=Verdict)
    assert isinstance(answer.parsed, Verdict) and answer.parsed.grade in ("a", "b")
    assert engine.chat("well?", response_format=Literal["x", "y"]).parsed in ("x", "y")
    assert engine.chat("well?", response_format={"enum": [1, 2]}).parsed in (1, 2)
    choice = engine.chat("well?", response_format={"type": "choice", "choices": ["yes", "no"]})
    assert choice.parsed in ("yes", "no") and choice.parsed == choice.text


def test_an_answer_that_was_cut_off_says_so(engine: Engine) -> None:
    with pytest.raises(IncompleteAnswer, match="cut off after 3 tokens") as caught:
        engine.chat("well?", response_format=Verdict, max_tokens=3)
    assert caught.value.answer.text == '{"i'


def test_what_the_api_refuses_is_refused_by_name(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="'temperature'"):
        engine.chat("hello", temperature=9)
    with pytest.raises(InvalidRequest, match="'stream'"):
        engine.chat("hello", stream=True)  # type: ignore[call-overload]  # that is the point
    with pytest.raises(InvalidRequest, match=r"role"):
        engine.chat([{"role": "nobody", "content": "hello"}])
    with pytest.raises(StartupError, match="context"):
        Engine(context=1)
    with pytest.raises(StartupError, match="engine vllm needs url"):
        Engine("bundled", engine="vllm")
    with pytest.raises(StartupError, match="url needs engine vllm"):
        Engine("bundled", url="http://127.0.0.1:1")
    with pytest.raises(StartupError, match="colour"):
        Engine(colour="red")


def test_functions_are_called_and_answered() -> None:
    writer = Writer(TURNS)
    threads = []

    def look(where: str) -> str:
        """Look somewhere."""
        threads.append(threading.current_thread())
        return f"nothing {where}"

    with Engine.over(model_over(writer)) as engine:
        stream = engine.stream("What is here?", tools=[look])
        kinds = [type(event) for event in stream.events() if isinstance(event, CallStarted | Ended)]
        answer = stream.answer
    assert kinds == [CallStarted, Ended, Ended]
    assert answer.text == "There is nothing." and answer.calls == ()
    assert [message["role"] for message in answer.messages] == ["user", "assistant", "tool", "assistant"]
    assert answer.messages[2]["content"] == "nothing here" and "nothing here" in writer.prompts[-1]
    assert threads == [threading.current_thread()], "as if the program had called it itself"
    assert answer.counts.num_prompt_tokens > len(writer.prompts[-1])


def test_an_asynchronous_function_in_both_engines() -> None:
    texts = (call("look_later", where="here"), "Found.")
    with Engine.over(model_over(Writer(texts))) as engine:
        answer = engine.chat("What is here?", tools=[look_later])
    assert (answer.text, answer.messages[2]["content"]) == ("Found.", '{"found":"here"}')

    async def ask() -> tuple[Any, list[str]]:
        async with AsyncEngine.over(model_over(Writer(texts))) as engine:
            whole = await engine.chat("What is here?", tools=[look_later])
            return whole, [piece async for piece in engine.stream("What is here?", tools=[look_later, look])]

    whole, pieces = asyncio.run(ask())
    assert (whole.text, whole.messages[2]["content"], "".join(pieces)) == ("Found.", '{"found":"here"}', "Found.")


def test_tools_that_are_no_functions_are_the_programs_to_answer() -> None:
    spec = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with Engine.over(model_over(Writer(TURNS))) as engine:
        answer = engine.chat("What is here?", tools=[spec])
        assert (answer.finish_reason, answer.text) == ("tool_calls", "")
        (made,) = answer.calls
        assert (made.name, made.arguments) == ("look", '{"where": "here"}')
        result = {"role": "tool", "tool_call_id": made.id, "content": "nothing"}
        assert engine.chat([*answer.messages, result], tools=[spec]).text == "There is nothing."


def test_a_model_that_never_stops_calling() -> None:
    with (
        Engine.over(model_over(Writer([TURNS[0]] * 3))) as engine,
        pytest.raises(InvalidRequest, match="max_rounds"),
    ):
        engine.chat("What is here?", tools=[look], max_rounds=1)


def test_an_error_of_a_function_is_the_programs_own() -> None:
    def look(where: str) -> str:
        """Look somewhere."""
        raise KeyError(where)

    with Engine.over(model_over(Writer(TURNS))) as engine, pytest.raises(KeyError, match="here"):
        engine.chat("What is here?", tools=[look])


def test_embeddings(engine: Engine) -> None:
    vector = engine.embed("hello")
    assert len(vector) == 32 and abs(sum(number * number for number in vector) - 1) < 1e-5
    both = engine.embed(["hello", "again"], dimensions=4)
    assert [len(each) for each in both] == [4, 4]
    assert engine.embed([]) == []
    with pytest.raises(InvalidRequest, match="dimensions"):
        engine.embed("hello", dimensions=1000)


def test_any_thread_may_ask(engine: Engine) -> None:
    def ask(number: int) -> str:
        return engine.chat(f"number {number}", temperature=0, max_tokens=10, ignore_eos=True).text

    alone = [ask(number) for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, range(6))) == alone


def test_a_closed_engine_says_so(engine: Engine) -> None:
    engine.close()
    engine.close()
    with pytest.raises(StartupError, match="closed"):
        engine.chat("hello")


async def test_the_asynchronous_engine() -> None:
    async with AsyncEngine.over(model_over(FakeRunner())) as engine:
        answers = await asyncio.gather(*(engine.chat(f"{n}", max_tokens=5, ignore_eos=True) for n in range(4)))
        assert all(len(answer.text) == 5 for answer in answers)
        assert (await engine.chat("well?", response_format=Verdict)).parsed.grade in ("a", "b")
        assert len(await engine.embed(["a", "b"])) == 2 and len(await engine.embed("a")) == 32
        assert (engine.name, engine.context_tokens) == ("fake", 8192)
    with pytest.raises(StartupError, match="load"):
        await engine.chat("hello")


ENDING = """
from tests.unit.python.test_engine import FakeRunner, Engine, model_over
engine = Engine.over(model_over(FakeRunner(end_bias=-100.0)))
pieces = iter(engine.stream("go on"))
print(len(next(pieces)) > 0)
"""


def test_a_program_may_end_in_the_middle_of_an_answer() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


# Of the chat API: what is a parameter of its own here, and what only means something over HTTP.
OTHERS = {
    *("messages", "response_format", "tools", "model", "stream", "stream_options", "store", "n", "best_of"),
    *("timings_per_token", "return_progress", "forced_tokens", "prewarm", "cache_control"),
    *("user", "safety_identifier", "metadata", "client_metadata", "service_tier", "verbosity"),
    *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("audio", "function_call", "functions", "modalities", "moderation", "web_search_options"),
}


def test_the_options_are_those_of_the_api() -> None:
    assert set(ChatOptions.__annotations__) - {"tools", "max_rounds"} == set(ChatRequest.model_fields) - OTHERS


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, proxy_inference_engine; print(len({'numpy', 'pydantic', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert proxy_inference_engine.Engine is Engine and proxy_inference_engine.AsyncEngine is AsyncEngine
    assert not hasattr(proxy_inference_engine, "Motor")
