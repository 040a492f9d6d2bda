"""Compiling is bounded: what is bad, impossible, huge or hostile is refused, and soon."""

import contextlib
import threading
import time
from typing import Any

import pytest

from proxy_inference_engine.errors import RateLimited, Unavailable
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.state_machine.compilation import GrammarLimits, InvalidGrammar
from proxy_inference_engine.state_machine.compiler import Compiler
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand, JsonSchema, ListedText, ToolChoice
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.state_machine.matcher import GrammarFailure
from proxy_inference_engine.state_machine.sandbox.turns import Allowance, SandboxTurns, TurnLimits
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from tests.polling import HANG_S, wait_until
from tests.unit.state_machine.families import Family
from tests.unit.state_machine.hostile_grammars import LARGE, ROOM, SLOW
from tests.unit.state_machine.test_hostile import held
from tests.unit.state_machine.vocabularies import PieceTokenizer, start

VOCABULARY = GrammarVocabulary(PieceTokenizer(pieces=["ab", "\n\n"]), [])
FAMILY = Family("chatml", has_tokens=True)


def test_a_compiled_grammar_is_walked_by_copies() -> None:
    matcher = Compiler(VOCABULARY).compile('start: "ab" | "cd"')
    one, two = matcher.deep_copy(), matcher.deep_copy()
    assert one.consume_tokens(list(b"ab")) and one.is_stopped()
    assert two.consume_tokens(list(b"cd")) and two.is_stopped()
    assert not matcher.is_stopped()


@pytest.mark.parametrize(
    "grammar",
    [
        "",
        "start: x",
        'begin: "a"',
        "start: /(/",
        "start: /a(?=b)/",
        "start: %json {",
        'start: %json {"type": "nothing"}',
        "start: <nowhere>",
        "start: <[99999]>",
        "start: @nothing",
        "start: /[^\\s\\S]/",
        "start: T\nT: /a/ & /b/",
        'start: "a" T\nT: /a/ & /b/',
        "start: a\na: b\nb: a",
        'start: "a"{1000000}',
    ],
)
def test_bad_and_impossible_grammars(grammar: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        Compiler(VOCABULARY).compile(grammar)
    message = str(caught.value)
    assert message and "\n" not in message and len(message) <= 300


def test_a_grammar_that_is_too_long() -> None:
    with pytest.raises(InvalidGrammar, match="characters"):
        Compiler(VOCABULARY, GrammarLimits(max_chars=10)).compile('start: "abcdefghij"')


def test_fuel_and_size_are_bounded() -> None:
    hard = "start: T\nT: /(?s:.*)[a-z]{300}(?s:.*)/ & ~/(?s:.*)[0-9a-f]{300}(?s:.*)/ & /(?s:.){0,900}/"
    with pytest.raises(InvalidGrammar):
        Compiler(VOCABULARY, GrammarLimits(initial_lexer_fuel=10)).compile(hard)
    rows = " | ".join(f'"{number}"' for number in range(2000))
    with pytest.raises(InvalidGrammar):
        Compiler(VOCABULARY, GrammarLimits(max_grammar_size=100)).compile(f"start: ({rows}) ({rows})")


_THOUSAND = [f"{number:04}" for number in range(1000)]
_LONG = "start: " + " | ".join(f'"{number:07}"' for number in range(1000))  # too long to be compiled where it is asked


def test_a_thread_that_cannot_start_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(VOCABULARY)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no thread"):
        patch.setattr(threading.Thread, "start", _refuse)
        compiler.compile(_LONG)
    assert not compiler.compile(_LONG).is_stopped()


def _refuse(_: threading.Thread) -> None:
    raise RuntimeError("no thread")


# What is not plainly harmless


def test_what_is_harmless_needs_no_other_process() -> None:
    compiler = Compiler(VOCABULARY)
    for grammar in ('start: "ab"', _LONG, 'start: %json {"type": "object"}'):
        assert not compiler.compile(grammar).is_stopped()
        assert compiler.num_bytes(grammar) == 0
    assert compiler.sandbox.pid is None


def test_a_real_model_s_process_starts_before_it_is_needed() -> None:
    """That of a vocabulary as small as those of tests does not: it would be started hundreds of times."""
    small, real = (Compiler(GrammarVocabulary(PieceTokenizer(pieces=each), [])) for each in ((), _THOUSAND))
    for compiler in (small, real):
        compiler.warm()
    wait_until(lambda: real.sandbox.pid)
    assert small.sandbox.pid is None
    real.close()


def test_what_is_not_is_tried_there_first_and_compiled_here_too() -> None:
    compiler = Compiler(VOCABULARY)
    matcher = compiler.compile("start: /a{3}/")
    assert matcher.consume_tokens(list(b"aaa")) and matcher.is_stopped()
    assert compiler.sandbox.pid is not None
    assert compiler.num_bytes("start: /a{3}/") > 0
    compiler.close()


def test_what_was_tried_once_is_not_tried_again() -> None:
    compiler = Compiler(VOCABULARY)
    compiler.compile("start: /a{3}/")
    with pytest.raises(InvalidGrammar) as first:
        compiler.compile("start: /[^\\s\\S]/")
    compiler.close()  # nothing could be tried any more
    assert not compiler.compile("start: /a{3}/").is_stopped()
    with pytest.raises(InvalidGrammar) as second:
        compiler.compile("start: /[^\\s\\S]/")
    assert str(first.value) == str(second.value)
    with pytest.raises(Unavailable):
        compiler.compile("start: /a{4}/")
    assert not compiler.compile('start: "ab"').is_stopped()


def test_time_is_bounded_and_what_took_too_long_blocks_nothing() -> None:
    compiler = Compiler(VOCABULARY, GrammarLimits(max_seconds=0.5, max_bytes=ROOM))
    with pytest.raises(InvalidGrammar, match="too long to compile"):
        compiler.compile(SLOW)
    assert not compiler.compile("start: /a{3}/").is_stopped()
    with pytest.raises(InvalidGrammar, match="too long to compile"):
        compiler.compile(SLOW)
    compiler.close()


def test_memory_is_bounded() -> None:
    """Before, it took what there was, and then the whole server ended."""
    compiler = Compiler(VOCABULARY, GrammarLimits(max_seconds=HANG_S, max_bytes=24 << 20))
    with pytest.raises(InvalidGrammar):
        compiler.compile(LARGE)
    assert not compiler.compile("start: /a{3}/").is_stopped()
    compiler.close()


@pytest.mark.parametrize("depth", [200, 1_900, 100_000])
@pytest.mark.parametrize("brackets", ["()", "[]"])
def test_what_leads_deep_is_compiled_on_a_deep_stack_or_refused(depth: int, brackets: str) -> None:
    """Here as in the sandbox: a stack that is too small for it would end the server."""
    compiler = Compiler(VOCABULARY)
    with contextlib.suppress(InvalidGrammar):
        compiler.compile("start: " + brackets[0] * depth + '"a"' + brackets[1] * depth)
    assert not compiler.compile("start: /a{3}/").is_stopped()
    compiler.close()


def test_a_neighbour_compiles_while_a_hopeless_one_runs() -> None:
    compiler = Compiler(VOCABULARY, GrammarLimits(max_seconds=HANG_S))
    held(compiler)
    errors: list[Exception] = []

    def work() -> None:
        try:
            compiler.compile(SLOW, "a")
        except (Unavailable, InvalidGrammar) as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until(lambda: compiler.turns.is_taken)
    for grammar in ('start: "ab"', _LONG, 'start: %json {"type": "string"}', "start: /b{7}/"):
        assert not compiler.compile(grammar, "b").is_stopped()
    assert thread.is_alive(), "it is still at it"
    compiler.close()
    thread.join(HANG_S)
    assert errors and not compiler.turns.is_taken


def test_a_flood_is_told_to_come_again() -> None:
    compiler = Compiler(VOCABULARY)
    compiler.turns = SandboxTurns(TurnLimits(max_seconds=0.01))
    with compiler.turns.turn("a"), pytest.raises(Unavailable, match="try again") as caught:
        compiler.compile("start: /a{3}/", "b")
    assert caught.value.retry_after_s
    assert not compiler.compile("start: /a{3}/", "b").is_stopped()
    compiler.close()


HOSTILE = [
    "(a{1000}){1000}",
    "((a{100}){100}){100}",
    "a{9999}" * 200,
    "(a|b){9000}" * 100,
    "(.*a){30}.{300}",
    "(x+x+)+y",
    "((a|b)*a(a|b){12}){5}",
    "(\\w+\\s?){1000}",
    "[^a]{0,9999}a" * 20,
    "(" * 2000 + "a" + ")" * 2000,
    "|".join(["a" * number for number in range(300)]),
]


@pytest.mark.parametrize("regex", HOSTILE, ids=lambda regex: regex[:30])
def test_hostile_regexes_are_refused_or_walked_in_bounded_time(regex: str) -> None:
    _assert_bounded(Demand(output=TextGrammar("regex", regex)))


@pytest.mark.parametrize("regex", HOSTILE[:6], ids=lambda regex: regex[:30])
def test_hostile_patterns_in_schemas(regex: str) -> None:
    _assert_bounded(Demand(output=JsonSchema({"type": "string", "pattern": f"^({regex})$"}, is_strict=False)))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 100_000},
        {"type": "string", "minLength": 50_000, "maxLength": 100_000},
        {"type": "string", "pattern": "^[a-z]+$", "maxLength": 100_000},
        {"type": "array", "items": {"type": "string", "maxLength": 1000}, "maxItems": 100_000},
        {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 10},
    ],
    ids=str,
)
def test_large_bounds(schema: dict[str, Any]) -> None:
    _assert_bounded(Demand(output=JsonSchema(schema, is_strict=False)))


@pytest.mark.parametrize(
    "definition",
    [
        "start: T\nT: U{100}\nU: V{100}\nV: /a{100}/",
        "start: a\na: b b\nb: c c\nc: d d\nd: e e\ne: f f\nf: " + '"x"{9000}',
        'start: start start | "a"',
        'start: ("a" | "a" "a"){3000}',
        "start: " + " ".join(f"r{number}" for number in range(3000)),
    ],
    ids=lambda text: text[:30],
)
def test_hostile_lark(definition: str) -> None:
    _assert_bounded(Demand(output=TextGrammar("lark", definition)))


@pytest.mark.parametrize(
    "choices",
    [("x" * 900_000, "y"), tuple(f"{number:06}" for number in range(50_000)), ("a",) * 1000],
    ids=["long", "many", "equal"],
)
def test_long_lists_of_choices(choices: tuple[str, ...]) -> None:
    _assert_bounded(Demand(output=ListedText(choices)))


def _assert_bounded(demand: Demand) -> None:
    """Refused or built; if built, its first steps never take long."""
    began = time.process_time()
    try:
        matcher = start(FAMILY.builder, demand)
    except InvalidDemand as error:
        assert len(error.message) < 600
        assert time.process_time() - began < HANG_S
        return
    assert time.process_time() - began < HANG_S
    for _ in range(4):
        began = time.process_time()
        mask = matcher.mask()
        matcher.forced()
        assert time.process_time() - began < 10.0, "a step stalls every other stream"
        if mask is None or matcher.is_complete or not mask[:256].any():
            break
        matcher.accept(int(mask[:256].argmax()))


@pytest.mark.parametrize(
    "definition",
    [
        "start: /x+/{2,3}",
        "start: /x+/ start",
        "start: /x+/ /x+/ /x+/",
        'start: %json {"type": "integer"} /x+/{2,3}',
        "start: T T\nT: /(ab)+/",
    ],
)
@pytest.mark.parametrize("is_tool", [True, False])
def test_lark_that_forces_without_end(definition: str, is_tool: bool) -> None:
    """A greedy lexeme swallows what the next one needs, so the same letter is forced for ever: no step may hang."""
    grammar = TextGrammar("lark", definition)
    tool = Tool("f", kind=ToolKind.CUSTOM, grammar=grammar)
    demand = Demand(tools=(tool,), tool_choice=ToolChoice("required")) if is_tool else Demand(output=grammar)
    builder = MachineBuilder(FAMILY.format, FAMILY.tokenizer)
    is_done = threading.Event()

    def work() -> None:
        try:
            matcher = start(builder, demand)
            for _ in range(80):
                forced, mask = matcher.forced(), matcher.mask()
                if matcher.is_complete or mask is None or not mask[:256].any():
                    break
                matcher.accept(forced[0] if forced else int(mask[:256].argmax()))
        except (InvalidDemand, GrammarFailure):
            pass
        is_done.set()

    threading.Thread(target=work, daemon=True).start()
    assert is_done.wait(HANG_S), "it hangs"


def test_a_tenant_that_used_up_its_time_waits_and_nobody_else() -> None:
    compiler = Compiler(VOCABULARY, allowance=Allowance(max_seconds=1e-9, share=1e-9))
    compiler.compile("start: /a+b/", "a")
    with pytest.raises(RateLimited):
        compiler.compile("start: /a+c/", "a")
    compiler.compile("start: /a+c/", "b")
    compiler.compile('start: "ab"', "a")  # what is harmless is no burden
    compiler.close()
