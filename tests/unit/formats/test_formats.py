import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.formats import FORMATS, Format, by_name, detect
from proxy_inference_engine.interaction import Interaction, Role

ALTERNATING = Format("strict", template="", must_alternate=True)


def turns(*pairs: tuple[str, str]) -> list[Interaction]:
    return [Interaction.of(role, text) for role, text in pairs]


def pairs(interactions: list[Interaction]) -> list[tuple[str, str]]:
    return [(turn.role.value, turn.text) for turn in interactions]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ '<|im_start|>' + role }}", "chatml"),
        ("[INST] {{ messages }}", "plain"),
        ("", "plain"),
        (None, "plain"),
    ],
)
def test_family_is_known_from_the_template(template: str | None, name: str) -> None:
    assert detect(template).name == name


def test_family_can_be_named() -> None:
    assert [by_name(each.name) for each in FORMATS] == list(FORMATS)
    with pytest.raises(StartupError, match="'chatmi'; known: chatml, plain"):
        by_name("chatmi")


def test_every_fallback_template_gives_its_own_family_away() -> None:
    for each in FORMATS:
        assert detect(each.template) is each


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
        ([("user", "1"), ("user", "2")], [("user", "1"), ("user", "2")]),
    ],
)
def test_instructions_become_one_leading_system_turn(
    given: list[tuple[str, str]], prepared: list[tuple[str, str]]
) -> None:
    for each in FORMATS:
        assert pairs(each.prepare(turns(*given))) == prepared


def test_same_role_turns_are_merged_only_where_roles_must_alternate() -> None:
    given = turns(("user", "1"), ("user", "2"), ("assistant", "3"), ("assistant", "4"), ("tool", "5"), ("tool", "6"))
    expected = [("user", "1\n\n2"), ("assistant", "3\n\n4"), ("tool", "5"), ("tool", "6")]
    assert pairs(ALTERNATING.prepare(given)) == expected
    assert by_name("chatml").prepare(given) == given


def test_preparing_leaves_its_input_alone() -> None:
    given = turns(("developer", "a"), ("user", "1"), ("user", "2"))
    before = [turn.to_json() for turn in given]
    ALTERNATING.prepare(given)
    assert [turn.to_json() for turn in given] == before
    assert given[0].role is Role.DEVELOPER
