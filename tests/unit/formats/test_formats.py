import pytest

from proxy_inference_engine.formats import FORMATS, Format, by_name
from proxy_inference_engine.interaction import Interaction, Role, ToolCall

ALTERNATING = Format("strict", template="", must_alternate=True)


def turns(*pairs: tuple[str, str]) -> list[Interaction]:
    return [Interaction.of(role, text) for role, text in pairs]


def pairs(interactions: list[Interaction]) -> list[tuple[str, str]]:
    return [(turn.role.value, turn.text) for turn in interactions]


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        ([("user", "hi")], [("user", "hi")]),
        ([("system", "a"), ("user", "hi")], [("system", "a"), ("user", "hi")]),
        ([("developer", "a"), ("user", "hi")], [("system", "a"), ("user", "hi")]),
        (
            [("system", "a"), ("developer", "b"), ("user", "hi"), ("system", "c")],
            [("system", "a\n\nb\n\nc"), ("user", "hi")],
        ),
        ([("system", " \n"), ("system", "b")], [("system", "b")]),
    ],
)
def test_instructions_become_one_leading_system_turn(
    given: list[tuple[str, str]], prepared: list[tuple[str, str]]
) -> None:
    for each in FORMATS:
        if each.has_system_role:
            assert pairs(each.prepare(turns(*given))) == prepared


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        ([("user", "hi")], [("user", "hi")]),
        ([("system", "a"), ("user", "hi")], [("user", "a\n\nhi")]),
        ([("user", "hi"), ("assistant", "ho"), ("developer", "a")], [("user", "a\n\nhi"), ("assistant", "ho")]),
        ([("system", "a"), ("system", "b"), ("user", "hi"), ("user", "ho")], [("user", "a\n\nb\n\nhi\n\nho")]),
        ([("system", "a"), ("assistant", "ho")], [("user", "a"), ("assistant", "ho")]),
        ([("system", "a")], [("user", "a")]),
    ],
)
def test_without_a_system_role_instructions_lead_the_first_user_turn(
    given: list[tuple[str, str]], prepared: list[tuple[str, str]]
) -> None:
    assert pairs(by_name("gemma3").prepare(turns(*given))) == prepared


def test_same_role_turns_are_merged_only_where_roles_must_alternate() -> None:
    given = turns(("user", "1"), ("user", "2"), ("assistant", "3"), ("assistant", "4"), ("tool", "5"), ("tool", "6"))
    expected = [("user", "1\n\n2"), ("assistant", "3\n\n4"), ("tool", "5"), ("tool", "6")]
    assert pairs(ALTERNATING.prepare(given)) == expected
    assert by_name("chatml").prepare(given) == given


def test_a_turn_with_calls_is_not_merged_with_its_neighbours() -> None:
    calls = (ToolCall("1", "f", "{}"),)
    given = [*turns(("assistant", "a"), ("assistant", "b")), Interaction.of("assistant", "c", tool_calls=calls)]
    prepared = ALTERNATING.prepare(given)
    # The user has the first turn where roles alternate.
    assert pairs(prepared) == [("user", ""), ("assistant", "a\n\nb"), ("assistant", "c")]
    assert prepared[2].metadata["tool_calls"] == calls


def test_preparing_leaves_its_input_alone() -> None:
    given = turns(("developer", "a"), ("user", "1"), ("user", "2"))
    before = [turn.to_json() for turn in given]
    ALTERNATING.prepare(given)
    assert [turn.to_json() for turn in given] == before
    assert given[0].role is Role.DEVELOPER
