"""What a conversation on the terminal remembers, forgets, asks for and keeps."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from proxy_inference_engine.errors import ContextLengthExceeded, EngineFailure, InvalidRequest, StartupError
from proxy_inference_engine.output.events import TextDelta
from proxy_inference_engine.runners.base import Lane, Row
from tests.unit.cli.talk.conversations import answer, fake_conversation


def test_a_conversation_remembers_its_turns() -> None:
    with fake_conversation() as conversation:
        first = answer(conversation, "hello")
        second = answer(conversation, "and now?")
        assert conversation.messages == [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": first},
            {"role": "user", "content": "and now?"},
            {"role": "assistant", "content": second},
        ]
        assert conversation.last is not None and conversation.last.counts.num_cached_tokens > 0
        conversation.clear()
        assert not conversation.messages and not conversation.last


def test_leaving_an_answer_keeps_what_came_and_frees_the_engine() -> None:
    with fake_conversation(end_bias=-100.0) as conversation:
        with closing(conversation.ask("hello")) as sayings:
            first = next(saying.text for saying in sayings if isinstance(saying, TextDelta))
        assert [message["content"] for message in conversation.messages] == ["hello", first]
        # The one slot is free again, or this would wait for ever.
        with closing(conversation.ask("again")) as sayings:
            assert next(sayings)


def test_a_full_context_is_refused_and_forgotten() -> None:
    with fake_conversation(lanes=(Lane(1, 64),)) as conversation:
        with pytest.raises(ContextLengthExceeded, match="64 tokens"):
            answer(conversation, "x" * 100)
        assert conversation.messages == []


def test_a_failing_engine_is_an_error() -> None:
    def fail(rows: Sequence[Row]) -> None:
        raise RuntimeError("no forward")

    with fake_conversation(on_forward=fail) as conversation:
        with pytest.raises(EngineFailure):
            answer(conversation, "hello")
        assert conversation.messages == []


def test_another_answer_takes_the_place_of_the_last() -> None:
    with fake_conversation() as conversation:
        with pytest.raises(StartupError, match="no question yet"):
            conversation.retry()
        first = answer(conversation, "hello")
        conversation.settings["max_tokens"] = 3
        again = "".join(saying.text for saying in conversation.retry() if isinstance(saying, TextDelta))
        assert again == first[:3]
        assert [message["content"] for message in conversation.messages] == ["hello", again]


def test_a_schema_and_what_the_model_is_told() -> None:
    schema = {"enum": ["yes", "no"]}
    with fake_conversation() as conversation:
        conversation.format = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        conversation.system = "Be brief."
        assert json.loads(answer(conversation, "well?")) in ("yes", "no")
        assert conversation.messages[0]["role"] == "user"


def test_a_refused_setting_is_named() -> None:
    with fake_conversation(temperature=7) as conversation, pytest.raises(InvalidRequest, match="'temperature'"):
        answer(conversation, "hello")


def test_it_is_saved_and_taken_up_again(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    with fake_conversation() as conversation:
        conversation.system = "Be brief."
        answer(conversation, "hello")
        kept = list(conversation.messages)
        conversation.save(path)
        with pytest.raises(FileExistsError):
            conversation.save(path)
        conversation.clear()
        conversation.system = None
        conversation.load(path)
        assert conversation.messages == kept
        assert conversation.body([])["messages"] == [{"role": "system", "content": "Be brief."}]
        path.write_text("[1]")
        with pytest.raises(StartupError, match=r"talk\.json"):
            conversation.load(path)


@pytest.mark.parametrize(("name", "penalty"), [("other", None), ("smollm2-135m-instruct", 1.1)])
def test_a_terminal_has_a_penalty_of_its_own(name: str, penalty: float | None) -> None:
    """Some models repeat themselves without one, and people have none at hand."""
    with fake_conversation(name=name) as conversation:
        assert conversation.body([]).get("repetition_penalty") == penalty
        conversation.settings["repetition_penalty"] = 1.5
        assert conversation.body([])["repetition_penalty"] == 1.5


def test_an_image_goes_with_one_question_even_if_it_is_refused() -> None:
    with fake_conversation() as conversation:
        conversation.images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
        with pytest.raises(InvalidRequest, match=r"^this model takes no images"):
            answer(conversation, "what is it?")
        assert answer(conversation, "and this?")
