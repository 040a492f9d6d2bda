"""Compiling is bounded: what is bad, impossible, huge or hostile is refused, and soon; the cache has its bounds."""

import threading
import time
from typing import Any

import pytest

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.state_machine.compiler import Compiler, GrammarLimits, InvalidGrammar, LruCache
from proxy_inference_engine.state_machine.demand import Choice, Demand, InvalidDemand, JsonSchema, ToolChoice
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.state_machine.matcher import GrammarFailure
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from tests.unit.state_machine.families import Family
from tests.unit.state_machine.vocabularies import PieceTokenizer, start

VOCABULARY = GrammarVocabulary(PieceTokenizer(pieces=["ab", "\n\n"]), [])
FAMILY = Family("chatml", has_tokens=True)
_HANG_S = 20.0  # far above what any of these takes, far below a hang


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


_LONG = "start: " + " | ".join(f'"{number:07}"' for number in range(1000))  # too long to be compiled where it is asked


def test_time_is_bounded_and_what_took_too_long_blocks_nothing() -> None:
    compiler = Compiler(VOCABULARY, GrammarLimits(max_seconds=0.0))
    with pytest.raises(InvalidGrammar, match="too long to compile"):
        compiler.compile(_LONG)
    assert not compiler.compile('start: "ab"').is_stopped()


def test_a_thread_that_cannot_start_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(VOCABULARY)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no thread"):
        patch.setattr(threading.Thread, "start", _refuse)
        compiler.compile(_LONG)
    assert not compiler.compile(_LONG).is_stopped()


def _refuse(_: threading.Thread) -> None:
    raise RuntimeError("no thread")


def test_a_flood_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy_inference_engine.state_machine.compiler._PATIENCE_S", 0.01)
    compiler = Compiler(VOCABULARY)
    with compiler._lock, pytest.raises(Unavailable, match="try again"):
        compiler.compile('start: "ab"')
    assert not compiler.compile('start: "ab"').is_stopped()


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
    _assert_bounded(Demand(output=Choice(choices)))


def _assert_bounded(demand: Demand) -> None:
    """Refused or built; if built, its first steps never take long."""
    began = time.process_time()
    try:
        matcher = start(FAMILY.builder, demand)
    except InvalidDemand as error:
        assert len(error.message) < 600
        assert time.process_time() - began < _HANG_S
        return
    assert time.process_time() - began < _HANG_S
    for _ in range(4):
        began = time.process_time()
        mask = matcher.mask()
        matcher.forced()
        assert time.process_time() - began < 1.0, "a step stalls every other stream"
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
    assert is_done.wait(_HANG_S), "it hangs"


# The cache


def test_the_least_recently_used_goes_first() -> None:
    cache: LruCache[int] = LruCache(max_entries=2, max_size=100)
    cache.put("a", 1, 1)
    cache.put("b", 2, 1)
    assert cache.get("a") == 1
    cache.put("c", 3, 1)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)


def test_sizes_are_bounded_together() -> None:
    cache: LruCache[str] = LruCache(max_entries=100, max_size=10)
    for name in "abcdef":
        cache.put(name, name, 3)
    assert [cache.get(name) for name in "abcdef"] == [None, None, None, "d", "e", "f"]


def test_replacing_an_entry_counts_it_once() -> None:
    cache: LruCache[int] = LruCache(max_entries=100, max_size=10)
    for value in range(50):
        cache.put("a", value, 4)
    cache.put("b", 1, 4)
    assert (cache.get("a"), cache.get("b")) == (49, 1)


def test_an_entry_over_the_bound_stays_alone() -> None:
    cache: LruCache[int] = LruCache(max_entries=100, max_size=10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 50)
    assert (cache.get("a"), cache.get("b")) == (None, 2)
    cache.put("c", 3, 4)
    assert (cache.get("b"), cache.get("c")) == (None, 3)


def test_threads_keep_the_books_straight() -> None:
    cache: LruCache[int] = LruCache(max_entries=8, max_size=40)

    def work(first: int) -> None:
        for number in range(2000):
            key = str((first * number) % 23)
            cache.put(key, number, 1 + number % 7)
            cache.get(key)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < len(cache) <= 8
    for number in range(8):
        cache.put(f"last{number}", number, 1)
    assert [cache.get(f"last{number}") for number in range(8)] == list(range(8))
