"""Grammar texts to llguidance matchers. What is not plainly harmless has to come out of the sandbox first."""

import hashlib
import json
import queue
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache, partial
from typing import Any, NamedTuple

import llguidance

from proxy_inference_engine.state_machine.compilation import GrammarLimits, InvalidGrammar, compile_grammar
from proxy_inference_engine.state_machine.json_schema.formats import PATTERNS
from proxy_inference_engine.state_machine.json_schema.free_order import MAX_PATTERNS, names_of
from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS, divisor_of
from proxy_inference_engine.state_machine.sandbox.inside import STACK_BYTES
from proxy_inference_engine.state_machine.sandbox.process import GrammarSandbox
from proxy_inference_engine.state_machine.sandbox.turns import Allowance, CompileTime, SandboxTurns
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary

MAX_CHARS = 64 << 10
_MAX_LINE = 16 << 10  # of a rule without JSON
_MAX_SCHEMAS = 1_500
_MAX_PROPERTIES = 120  # of one object: the library compares each with each
_MAX_OPTIONAL = 240  # of all alternatives for one value: it follows them all at once
_MAX_ALTERNATIVES = 32  # multiplied along allOf, as the library does
_MAX_COUNT = 100_000  # it counts without writing out, so that this is little
_MAX_REMAINDERS = 120  # of all divisors together
_MAX_DIGITS = 1_500  # of all bounds of numbers together: a range is written out digit by digit
_MAX_FORMATS = 60
_MAX_NAMES = 400  # as patterns, which it compares as well, more slowly
_MAX_DEPTH = 24
_MAX_DEFINITIONS = 200

_JSON_RULE = re.compile(r"(?:r\d+|start): %json (?=\{)")
# What the machine's own rules are made of: strings, tokens, names of rules, signs, and regexes of any text around plain
# characters. No other regex, no other grammar, no large count.
_PLAIN_RULE = re.compile(
    r"""(?:start|[rT]\d+)(?:\[suffix="(?:\\.|[^"\\])*"\])?:
    (?:\s|"(?:\\.|[^"\\])*"|<\[\d+\]>|[rT]\d+|[|&~()?*]|\{0,\d{1,2}\}
    |/(?:\(\?s:\.(?:[*+]|\{\d{1,4},\d{0,4}\})\)
        |\\[^a-zA-Z0-9]|\\[nrt]|[a-zA-Z0-9_<>=:;,!@%`\ ]|[^\x00-\x7F]){0,100}/)*""",
    re.VERBOSE,
)
_KNOWN = frozenset(
    [
        *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "prefixItems"),
        *("allOf", "anyOf", "$ref", "$defs", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "minLength", "maxLength", "minItems", "maxItems", "format", "x-guidance"),
    ]
)
_OUR_FORMATS = frozenset(PATTERNS.values())
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def is_harmless(grammar: str) -> bool:
    """Whether it is certain. `grammar` is what `Lark.finish` makes, or the text of Lark rules."""
    if len(grammar) > MAX_CHARS:
        return False
    if grammar.startswith("{"):
        try:
            grammars = json.loads(grammar)["grammars"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        if len(grammars) != 1:
            return False
        grammar = grammars[0]["lark_grammar"]
    return all(map(_is_harmless_rule, grammar.split("\n")))


def _is_harmless_rule(line: str) -> bool:
    head = _JSON_RULE.match(line)
    if head is None:
        return len(line) <= _MAX_LINE and _PLAIN_RULE.fullmatch(line) is not None
    try:
        return _Measure().is_harmless(json.loads(line[head.end() :]))
    except (ValueError, RecursionError):
        return False


class _Measure:
    """Adds up over one schema, as the rewriter left it."""

    def __init__(self) -> None:
        self._num_schemas = self._num_remainders = self._num_digits = self._num_formats = self._num_names = 0
        self._definitions: Mapping[str, Any] = {}

    def is_harmless(self, schema: Any) -> bool:
        self._definitions = schema.get("$defs", {})
        return len(self._definitions) <= _MAX_DEFINITIONS and self._take(schema, 0)

    def _take(self, schema: Any, depth: int) -> bool:
        if not isinstance(schema, dict):
            return True
        self._num_schemas += 1
        return (
            depth <= _MAX_DEPTH
            and self._num_schemas <= _MAX_SCHEMAS
            and schema.keys() - _plain_patterns(schema) <= _KNOWN
            and self._are_few(schema)
            and _are_small(schema)
            and sum(map(self._num_properties, schema.get("anyOf", ()))) <= _MAX_OPTIONAL
            and all(self._take(one, depth + 1) for one in _below(schema))
        )

    def _num_properties(self, option: Any) -> int:
        if isinstance(option, dict) and "$ref" in option:
            option = self._definitions.get(option["$ref"].removeprefix(DEFINITIONS))
        if not isinstance(option, dict):
            return 0
        return len(option.get("properties", ())) + len(option.get("patternProperties", ()))

    def _are_few(self, schema: Mapping[str, Any]) -> bool:
        if "multipleOf" in schema:
            self._num_remainders += divisor_of(schema["multipleOf"]).digits
        self._num_digits += sum(len(str(schema[key])) for key in _BOUNDS if key in schema)
        self._num_formats += _has_format(schema)
        self._num_names += sum(len(names_of(pattern)) or 1 for pattern in schema.get("patternProperties", ()))
        return (
            self._num_names <= _MAX_NAMES
            and self._num_remainders <= _MAX_REMAINDERS
            and self._num_digits <= _MAX_DIGITS
            and self._num_formats <= _MAX_FORMATS
        )


def _plain_patterns(schema: Mapping[str, Any]) -> set[str]:
    """Keywords whose patterns are ours: those of formats, and few that list names."""
    names = schema.get("patternProperties", {})
    are_plain = len(names) <= MAX_PATTERNS and all(map(names_of, names))
    is_ours = schema.get("pattern") in _OUR_FORMATS
    return {key for key, is_plain in (("pattern", is_ours), ("patternProperties", are_plain)) if is_plain}


def _has_format(schema: Mapping[str, Any]) -> bool:
    """The library's own, or one of ours, which is a pattern by now."""
    return "format" in schema or schema.get("pattern") in _OUR_FORMATS


def _are_small(schema: Mapping[str, Any]) -> bool:
    return (
        len(schema.get("properties", ())) <= _MAX_PROPERTIES
        and all(schema.get(key, 0) <= _MAX_COUNT for key in _COUNTS)
        and (not _has_format(schema) or schema.keys().isdisjoint(("minLength", "maxLength")))
        and _num_alternatives(schema, 0) <= _MAX_ALTERNATIVES
    )


def _below(schema: Mapping[str, Any]) -> list[Any]:
    found = [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for key in ("prefixItems", "allOf", "anyOf"):
        found += schema.get(key, ())
    for key in ("properties", "patternProperties", "$defs"):
        found += schema.get(key, {}).values()
    return found


def _num_alternatives(schema: Any, depth: int) -> int:
    """How many alternatives a schema has. A reference is not opened: beside other parts it counts as many."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return 1
    result = sum(_num_alternatives(option, depth + 1) for option in schema.get("anyOf", ())) or 1
    parts = schema.get("allOf", ())
    for part in parts:
        is_open = len(parts) > 1 and isinstance(part, dict) and "$ref" in part
        result *= _MAX_ALTERNATIVES if is_open else _num_alternatives(part, depth + 1)
        if result > _MAX_ALTERNATIVES:
            break
    return result


_MAX_FINDINGS = 4_096
_REFUSED_S = 300.0  # not for ever: what took too long may have been the machine's doing


class Finding(NamedTuple):
    """`error` None: it compiles in so many seconds."""

    error: str | None
    seconds: float


class Findings:
    """The most recent ones. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[Finding, float]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, grammar: str) -> Finding | None:
        key = _key(grammar)
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            finding, at = found
            if finding.error is not None and time.monotonic() - at > _REFUSED_S:
                del self._kept[key]
                return None
            self._kept.move_to_end(key)
            return finding

    def put(self, grammar: str, finding: Finding) -> None:
        with self._lock:
            self._kept[_key(grammar)] = (finding, time.monotonic())
            while len(self._kept) > _MAX_FINDINGS:
                self._kept.popitem(last=False)


def _key(grammar: str) -> bytes:
    """What a grammar is known by: not the text itself, which may be a megabyte."""
    return hashlib.sha256(grammar.encode()).digest()


_INLINE_CHARS = 4000  # nothing in so few leads deep, and waking another thread would take a good part of the time
_MIN_REAL_TOKENS = 1_000  # no model's vocabulary is as small; those of tests start their process when they need it
_NUM_PLACES = 2
_BYTES_PER_SECOND = 128 << 20  # remainders, states of a lexer: what takes long to compile is larger than its text


class _Job(NamedTuple):
    work: Callable[[], llguidance.LLMatcher]
    outcome: "Future[llguidance.LLMatcher]"


class _Workshop:
    """A thread of its own: llguidance follows references by recursion, deeper than most stacks are.

    Always the same one, since each new thread's memory would be fresh and slow. It ends with whoever owns this.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._finalizer = weakref.finalize(self, self._jobs.put, None)

    def run(self, work: Callable[[], llguidance.LLMatcher]) -> llguidance.LLMatcher:
        job = _Job(work, Future())
        self._put(job)
        return job.outcome.result()

    def close(self) -> None:
        """End the thread when it has done what it was given. Another one starts should there be more."""
        with self._lock:
            thread = self._thread
            self._finalizer()
            self._begin()
        if thread is not None:
            thread.join()

    def _put(self, job: _Job) -> None:
        with self._lock:
            if self._thread is None:
                before = threading.stack_size(STACK_BYTES)
                try:
                    thread = threading.Thread(target=_work, args=(self._jobs,), name="grammar", daemon=True)
                    thread.start()
                finally:
                    threading.stack_size(before)
                self._thread = thread
            self._jobs.put(job)


def _work(jobs: "queue.SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        try:
            job.outcome.set_result(job.work())
        except BaseException as error:
            job.outcome.set_exception(error)
        del job  # or the last one's owner would never be gone


class _Place(NamedTuple):
    """Where what is not harmless is tried, and then compiled."""

    sandbox: GrammarSandbox
    workshop: _Workshop


class Compiler:
    """One per model. A tenant's cold grammars are compiled one after the other, so that a flood of them takes one core
    at most: the harmless ones of all among themselves, the others in turns. There are two places for those, and a
    tenant has one at a time, so that nobody waits for what one other asks for."""

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        limits: GrammarLimits | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._limits = limits or GrammarLimits()
        self._lock = threading.Lock()
        self._workshop = _Workshop()
        self._findings = Findings()
        self.turns = SandboxTurns(num_places=_NUM_PLACES)
        self._time = CompileTime(allowance)
        lexicon = cache(lambda: vocabulary.lexicon.pack())
        self._places = [_Place(GrammarSandbox(lexicon, self._limits), _Workshop()) for _ in range(_NUM_PLACES)]

    @property
    def sandbox(self) -> GrammarSandbox:
        """The one that is always used first."""
        return self._places[0].sandbox

    def warm(self) -> None:
        """Start the sandbox of a real model before it is needed; does not wait for it."""
        if self._vocabulary.num_tokens >= _MIN_REAL_TOKENS:
            self.sandbox.start()

    def close(self) -> None:
        """End the processes and the threads. Only what is harmless is compiled from then on."""
        for place in self._places:
            place.sandbox.close()
            place.workshop.close()
        self._workshop.close()

    def compile(self, grammar: str, tenant: str = "") -> llguidance.LLMatcher:
        """A matcher at the start; `deep_copy` it to walk. Raises InvalidGrammar; Unavailable under a flood, RateLimited
        where the tenant has used up its time."""
        if len(grammar) > self._limits.max_chars:
            raise InvalidGrammar(f"the grammar has {len(grammar)} characters, at most {self._limits.max_chars} can be")
        work = partial(compile_grammar, self._vocabulary.ll, grammar, self._limits)
        if is_harmless(grammar):
            with self._lock:
                return work() if len(grammar) <= _INLINE_CHARS else self._workshop.run(work)
        _check(self._findings.get(grammar))
        self._time.check(tenant)
        with self.turns.turn(tenant) as number, self._time.spent_by(tenant):
            place = self._places[number]
            _check(self._findings.get(grammar) or self._judge(grammar, place.sandbox))
            return place.workshop.run(work)  # on a stack as deep as the sandbox has

    def num_bytes(self, grammar: str) -> int:
        """What a grammar takes that was compiled, by the time that took; 0 where that was next to none."""
        finding = self._findings.get(grammar)
        return 0 if finding is None else int(finding.seconds * _BYTES_PER_SECOND)

    def _judge(self, grammar: str, sandbox: GrammarSandbox) -> Finding:
        try:
            finding = Finding(None, sandbox.check(grammar))
        except InvalidGrammar as error:
            finding = Finding(str(error), 0.0)
        self._findings.put(grammar, finding)
        return finding


def _check(finding: Finding | None) -> None:
    if finding is not None and finding.error is not None:
        raise InvalidGrammar(finding.error)
