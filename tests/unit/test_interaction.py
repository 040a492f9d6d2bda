import copy
import dataclasses
import json
import pickle

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Content, ContentType, Interaction, Role, ToolCall, ToolKind


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("system", Role.SYSTEM),
        ("developer", Role.DEVELOPER),
        ("user", Role.USER),
        ("assistant", Role.ASSISTANT),
        ("agent", Role.ASSISTANT),
        ("tool", Role.TOOL),
        ("function", Role.TOOL),
    ],
)
def test_role_is_read_as_clients_write_it(name: str, role: Role) -> None:
    assert Role.parse(name) is role


@pytest.mark.parametrize("name", ["", "User", "root", "x" * 10_000])
def test_unknown_role_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown role") as caught:
        Role.parse(name)
    assert caught.value.param == "role"
    assert len(caught.value.message) < 200


def test_a_turn_knows_its_calls_and_its_images() -> None:
    call, image = ToolCall("1", "f", "{}"), Content(ContentType.IMAGE, data={"param": "messages[0]"})
    turn = Interaction(Role.ASSISTANT, (Content.of("a"), image, Content.of("b")), {"tool_calls": [call]})
    assert (turn.calls, turn.images, turn.text) == ((call,), [image], "a\nb")
    plain = Interaction.of("user", "a", tool_calls=None)
    assert (plain.calls, plain.images) == ((), [])


def test_equality_and_hash_go_by_id() -> None:
    one = Interaction.of("user", "hello")
    same = Interaction(Role.ASSISTANT, (), id=one.id)
    other = Interaction.of("user", "hello")
    assert one == same and hash(one) == hash(same)
    assert one != other and len({one, same, other}) == 2
    assert one != "hello"


def test_ids_are_long_and_all_different() -> None:
    ids = {Interaction.of("user", "").id for _ in range(1000)}
    assert len(ids) == 1000
    assert min(map(len, ids)) >= 32


def test_metadata_reads_as_attributes() -> None:
    turn = Interaction.of("tool", "sunny", name="weather", tool_call_id="call_1", content="ignored")
    assert turn.name == "weather" and turn.tool_call_id == "call_1"
    assert turn.text == "sunny" and turn.metadata["content"] == "ignored"


def test_what_is_missing_reads_as_none() -> None:
    turn = Interaction.of("user", "x", name="bob")
    assert turn.tool_calls is None and turn.colour is None and turn.name == "bob"
    with pytest.raises(AttributeError):
        _ = turn._private
    with pytest.raises(AttributeError):
        _ = object.__new__(Interaction).metadata


def test_text_joins_the_text_parts_only() -> None:
    image = Content(ContentType.IMAGE, data={"url": "data:"})
    turn = Interaction(Role.USER, (Content.of("a"), image, Content.of("b")))
    assert turn.text == "a\nb"
    assert Interaction(Role.USER, ()).text == ""


@pytest.mark.parametrize("kind", list(ContentType))
def test_json_round_trip_keeps_everything(kind: ContentType) -> None:
    part = Content.of("hé\n") if kind is ContentType.TEXT else Content(kind, data={"url": "x", "n": [1]})
    turn = Interaction(Role.DEVELOPER, (part, Content.of("end")), metadata={"name": "bob"})
    back = Interaction.from_json(json.loads(json.dumps(turn.to_json())))
    assert back == turn
    assert (back.role, back.content, back.created_at) == (turn.role, turn.content, turn.created_at)
    assert dict(back.metadata) == {"name": "bob"}


def test_calls_survive_json() -> None:
    calls = (ToolCall("1", "f", '{"a": 1}'), ToolCall("2", "shell", "ls -l", ToolKind.CUSTOM))
    turn = Interaction.of("assistant", "Wait.", tool_calls=calls, reasoning_content="Hm.")
    for given in (turn, Interaction.of("assistant", "", tool_calls=list(calls))):
        back = Interaction.from_json(json.loads(json.dumps(given.to_json())))
        assert back.calls == calls and back.tool_calls == calls
        assert back.reasoning_content == given.reasoning_content
    empty = Interaction.of("assistant", "", tool_calls=())
    assert Interaction.from_json(json.loads(json.dumps(empty.to_json()))).calls == ()


@pytest.mark.parametrize(
    "calls", [5, ["x"], [{}], [{"id": "1", "name": "f", "arguments": "{}"}], [{"id": "1", "kind": "function"}]]
)
def test_broken_calls_are_refused(calls: object) -> None:
    value = Interaction.of("user", "x").to_json() | {"metadata": {"tool_calls": calls}}
    with pytest.raises(InvalidRequest):
        Interaction.from_json(value)


@pytest.mark.parametrize(
    "change",
    [{"role": "root"}, {"role": None}, {"content": 5}, {"content": [{"type": "smell"}]}, {"created_at": "soon"}],
)
def test_broken_json_is_refused(change: dict[str, object]) -> None:
    value = Interaction.of("user", "x").to_json() | change
    with pytest.raises(InvalidRequest):
        Interaction.from_json(value)


def test_missing_fields_are_refused() -> None:
    for key in ("id", "role", "content", "created_at"):
        value = Interaction.of("user", "x").to_json()
        del value[key]
        with pytest.raises(InvalidRequest):
            Interaction.from_json(value)


def test_copies_are_equal() -> None:
    turn = Interaction.of("user", "x", name="bob")
    assert copy.deepcopy(turn).name == copy.copy(turn).name == "bob"
    assert pickle.loads(pickle.dumps(turn)) == turn
    assert dataclasses.replace(turn, role=Role.SYSTEM).name == "bob"
