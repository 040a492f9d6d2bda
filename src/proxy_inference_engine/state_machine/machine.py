"""Builds the machine of a request, once, off the engine thread: its grammar for the mask, its labels for the parser."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import llguidance

from proxy_inference_engine.formats import Format
from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.formats.syntax import CallSyntax, Thinking
from proxy_inference_engine.interaction import TextGrammar, Tool
from proxy_inference_engine.runners.base import Tokenizer
from proxy_inference_engine.state_machine.arguments import ArgumentGrammar
from proxy_inference_engine.state_machine.compilation import GrammarLimits, InvalidGrammar
from proxy_inference_engine.state_machine.compiler import Compiler
from proxy_inference_engine.state_machine.demand import (
    Demand,
    InvalidDemand,
    JsonObject,
    JsonSchema,
    ListedText,
    SchemaProblem,
    TextWithout,
)
from proxy_inference_engine.state_machine.json_schema import (
    Spacing,
    UnenforceableSchema,
    closed_grammar,
    json_grammar,
    loosened,
    open_grammar,
)
from proxy_inference_engine.state_machine.json_schema.budget import MAX_TOGETHER, StepBudget
from proxy_inference_engine.state_machine.keys import JSON_KEYS, START, KeySpelling, KeyTokens, Leads
from proxy_inference_engine.state_machine.matcher import RootMatcher, Route, Tracker
from proxy_inference_engine.state_machine.root import (
    Root,
    RootBodies,
    RootRule,
    build_root,
    key_of,
    rest_rule,
    root_rule,
)
from proxy_inference_engine.state_machine.sizes import check_patterns
from proxy_inference_engine.state_machine.texts import choice_rule, text_rule, without_rule
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary, Lark
from proxy_inference_engine.state_machine.watch import ValueGuard
from proxy_inference_engine.types import Constraint

T = TypeVar("T")

COMPACT = Spacing(",", ":")
SPACED = Spacing(", ", ": ")  # what most text has: small models write better so
_MAX_MACHINES = 1000
_MAX_BYTES = 64 << 20
# What a compiled grammar takes, roughly: measured over 900 schemas of all sizes, 250 KB on average.
_BYTES_PER_MACHINE, _BYTES_PER_CHAR = 100_000, 32


@dataclass(frozen=True, slots=True)
class Machine:
    """What a demand was built into: it holds the engine to the demand, and tells the parser what to expect."""

    labels: Labels
    constraint: Constraint | None = None  # None: nothing binds
    relaxed: tuple[str, ...] = ()  # "path:keyword" of every schema keyword that does not bind


@dataclass(frozen=True, slots=True)
class RootConstraint:
    """Implements `types.Constraint`."""

    grammar: str | None  # the text that `compiled` was compiled from
    compiled: llguidance.LLMatcher | None
    route: Route | None
    vocabulary: GrammarVocabulary
    budget: "RootBudget | None" = None
    guard: ValueGuard | None = None  # None: the grammar says all there is to say

    @property
    def min_reasoning_tokens(self) -> int:
        return 0 if self.route is None else self.route.min_reasoning_tokens

    def start(self) -> RootMatcher:
        grammar = None if self.compiled is None else self.compiled.deep_copy()
        tracker = None if self.route is None else Tracker(self.route, self.vocabulary)
        watch = None if self.guard is None else self.guard.start()
        return RootMatcher(grammar, tracker, self.vocabulary.num_tokens, watch)


class _Grammar(NamedTuple):
    """The grammar of a root, as text and compiled, with what the grammar itself cannot say."""

    text: str
    compiled: llguidance.LLMatcher
    guard: ValueGuard | None


@dataclass(frozen=True, slots=True)
class RootBudget:
    """Implements `types.ReasoningBudget`."""

    rest: str
    route: Route
    vocabulary: GrammarVocabulary

    def start(self) -> RootMatcher:
        return RootMatcher(None, Tracker(self.route, self.vocabulary), self.vocabulary.num_tokens)


def choose_spacing(configured: str | None, *, spaces_json: bool) -> Spacing:
    """What the configuration says, or else the model's profile."""
    is_spaced = spaces_json if configured is None else configured == "spaced"
    return SPACED if is_spaced else COMPACT


class LruCache(Generic[T]):
    """Bounded by entries and by their sizes together. Safe to use from several threads.

    An entry belongs to whoever put it there, and is everybody's to get. Of the owner whose entries are the largest
    together, the one used longest ago goes: so nobody's flood takes away what others have.
    """

    def __init__(self, max_entries: int, max_size: int) -> None:
        self._max_entries = max_entries
        self._max_size = max_size
        self._entries: OrderedDict[str, tuple[T, int, str]] = OrderedDict()
        self._sizes: Counter[str] = Counter()  # by owner
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> T | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: str, value: T, size: int, owner: str = "") -> None:
        with self._lock:
            self._drop(key)
            self._entries[key] = (value, size, owner)
            self._sizes[owner] += size
            while len(self._entries) > self._max_entries or (
                self._sizes.total() > self._max_size and len(self._entries) > 1
            ):
                largest = max(self._sizes, key=lambda one: self._sizes[one])
                # The new one stays, also where it is all that its owner has.
                old = (name for name, (_, _, owned) in self._entries.items() if owned == largest and name != key)
                self._drop(next(old, None) or next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        _, size, owner = self._entries.pop(key, (None, 0, ""))
        self._sizes[owner] -= size
        self._sizes += Counter()  # without owners who have nothing


class MachineBuilder:
    """One per model. Safe to use from several threads. With `tracks_states`, matchers always know their state.

    Without `watches`, the grammar has to say everything: nobody walks it here.
    """

    def __init__(
        self,
        format: Format,
        tokenizer: Tokenizer,
        *,
        spacing: Spacing = COMPACT,
        tracks_states: bool = False,
        watches: bool = True,
        limits: GrammarLimits | None = None,
    ) -> None:
        self._format = format
        self.spacing = spacing
        self._syntax, self._thinking = _syntax(format), _thinking(format)
        self._tracks_states = tracks_states
        self._watches = watches
        self.vocabulary = GrammarVocabulary(tokenizer, format.tokens)
        self._compiler = Compiler(self.vocabulary, limits)
        self._key_tokens: dict[KeySpelling, KeyTokens] = {}
        self._machines: LruCache[Machine] = LruCache(_MAX_MACHINES, _MAX_BYTES)

    def warm(self) -> None:
        """Make now what the first grammar would wait for."""
        _ = self.vocabulary.ll
        self._compiler.warm()
        self._tokens_of(JSON_KEYS)

    def close(self) -> None:
        """End the process that clients' grammars are tried in; it ends by itself when nobody has the builder."""
        self._compiler.close()

    def build(self, demand: Demand, tenant: str = "") -> Machine:
        """Raises InvalidDemand; Unavailable when too many grammars are being compiled. Tenants take turns.

        May take seconds: not to be called on an event loop.
        """
        key = key_of(demand)
        if (machine := self._machines.get(key)) is None:
            machine = self._build(demand, tenant)
            self._machines.put(key, machine, self._num_bytes(key, machine.constraint), tenant)
        return machine

    def find(self, demand: Demand) -> Machine | None:
        """The machine, where it was built before and is still kept."""
        try:
            return self._machines.get(key_of(demand))
        except InvalidDemand:
            return None

    def _num_bytes(self, key: str, constraint: Constraint | None) -> int:
        """What a machine takes, roughly."""
        least = _BYTES_PER_MACHINE + _BYTES_PER_CHAR * len(key)
        if not isinstance(constraint, RootConstraint) or constraint.grammar is None:
            return least
        return max(least, self._compiler.num_bytes(constraint.grammar))

    def _build(self, demand: Demand, tenant: str) -> Machine:
        root = build_root(demand, can_reason=self._thinking is not None, can_repeat=self._syntax.can_repeat)
        relaxed: list[str] = []
        try:
            grammar = None if root.is_free else self._compile(root, relaxed, tenant)
        except InvalidGrammar as error:
            return self._build_looser(root, demand, str(error), tenant)
        route = self._route(root, demand)
        constraint = None
        if grammar is not None or route is not None:
            text, compiled, guard = grammar or (None, None, None)
            budget = self._budget(root, demand, route)
            constraint = RootConstraint(text, compiled, route, self.vocabulary, budget, guard)
        return Machine(self._labels(root), constraint, tuple(relaxed))

    def _budget(self, root: Root, demand: Demand, route: Route | None) -> RootBudget | None:
        if route is None or root.reasoning is None or demand.max_reasoning_tokens is None:
            return None
        return RootBudget(self._write(root, [], {}, rest_rule), route, self.vocabulary)

    def _compile(self, root: Root, relaxed: list[str], tenant: str) -> _Grammar:
        leads: Leads = {}
        text = self._write(root, relaxed, leads, root_rule)
        return _Grammar(text, self._compiler.compile(text, tenant), self._guard(leads))

    def _write(self, root: Root, relaxed: list[str], leads: Leads, rule: RootRule) -> str:
        lark = Lark(self.vocabulary)
        budget = StepBudget(MAX_TOGETHER)
        structured = None if root.structured is None else self._structured(lark, root, relaxed, leads, budget)
        syntax = self._syntax_of(root)
        arguments = ArgumentGrammar(lark, syntax, relaxed, root.closes_objects, self._watches, leads, budget)
        bodies = RootBodies(structured, arguments.write)
        return lark.finish(rule(lark, replace(self._format, calls=syntax), root, bodies))

    def _guard(self, leads: Leads) -> ValueGuard | None:
        return ValueGuard(leads, {spelling: self._tokens_of(spelling) for spelling in leads}) if leads else None

    def _tokens_of(self, spelling: KeySpelling) -> KeyTokens:
        if spelling not in self._key_tokens:
            self._key_tokens[spelling] = KeyTokens(self.vocabulary.tokenizer, spelling)
        return self._key_tokens[spelling]

    def _structured(self, lark: Lark, root: Root, relaxed: list[str], leads: Leads, budget: StepBudget) -> str:
        assert root.structured is not None
        match root.structured.format:
            case TextGrammar() as grammar:
                return text_rule(lark, grammar)
            case ListedText(choices):
                return choice_rule(lark, choices)
            case TextWithout(strings):
                return without_rule(lark, strings)
            case JsonObject():
                written = json_grammar({"type": "object"}, spacing=self.spacing)
            case JsonSchema(schema, is_strict):
                check_patterns(schema)
                write = closed_grammar if root.closes_objects else open_grammar if root.any_order else json_grammar
                try:
                    written = write(
                        schema, is_strict=is_strict, spacing=self.spacing, budget=budget, is_watched=self._watches
                    )
                except UnenforceableSchema as error:
                    where = f"{error.path or '/'}: {error.keyword}" if error.keyword else error.path or "/"
                    place = SchemaProblem(error.path or "/", error.keyword, error.reason)
                    message = f"the schema cannot be enforced ({where}): {error.reason}"
                    raise InvalidDemand(message, "output", place=place) from None
                relaxed += written.relaxed
        if written.shape is not None or written.admits_other_keys:
            leads.setdefault(JSON_KEYS, {}).update(dict.fromkeys(self._structure_leads(root), written.shape))
        return lark.rule(written.lark)

    def _structure_leads(self, root: Root) -> Iterator[str]:
        """What can stand before a structure, from where the answer or its reasoning ends."""
        format = self._format
        if root.is_raw:
            yield START
        elif format.channels is not None:
            yield format.channels.answer + format.channels.message
        else:
            lead = "" if root.is_begun else format.lead.removeprefix(format.answer_start)
            if root.reasoning is None or not root.reasoning.is_open:
                yield START + lead
            if root.reasoning is not None and format.thinking is not None:
                yield format.thinking.closing + format.thinking.gap + lead

    def _build_looser(self, root: Root, demand: Demand, reason: str, tenant: str) -> Machine:
        """A machine without what the library cannot compile, where the client allows that, or raises InvalidDemand."""
        tools, relaxed = list(demand.tools), []
        for tool, index in zip(root.calls.tools, root.calls.indexes, strict=True) if root.calls else ():
            problem = self._problem(tool, index, root, tenant)
            if problem is not None and (tool.is_strict or tool.parameters in (None, loosened(tool.parameters))):
                raise InvalidDemand(f"tool {tool.name!r} cannot be enforced: {problem}", "tool", index)
            if problem is not None:
                tools[index] = replace(tool, parameters=loosened(tool.parameters))
                relaxed.append(f"{tool.name}/:*")
        output = demand.output
        if isinstance(output, JsonSchema) and not output.is_strict and not relaxed:
            output = JsonSchema(loosened(output.schema), is_strict=True)
            relaxed.append("/:*")
        if not relaxed:
            subject = "the tools together" if root.structured is None else "the format"
            raise InvalidDemand(
                f"{subject} cannot be enforced: {reason}", "tool" if root.structured is None else "output"
            )
        machine = self._build(replace(demand, tools=tuple(tools), output=output), tenant)
        return replace(machine, relaxed=(*relaxed, *machine.relaxed))

    def _problem(self, tool: Tool, index: int, root: Root, tenant: str) -> str | None:
        """Why the arguments of a tool do not compile by themselves."""
        lark = Lark(self.vocabulary)
        arguments = ArgumentGrammar(lark, self._syntax, [], root.closes_objects, self._watches)
        try:
            self._compiler.compile(lark.finish(arguments.write(tool, index)), tenant)
        except InvalidGrammar as error:
            return str(error)
        return None

    def _syntax_of(self, root: Root) -> CallSyntax:
        """Beside a structure no call may open with what JSON opens with too."""
        syntax = self._syntax
        if root.structured is None or not syntax.is_at_start or not syntax.optional_begin:
            return syntax
        begin = syntax.optional_begin
        return replace(syntax, opening=begin, begin=begin, optional_begin="", is_at_start=False)

    def _labels(self, root: Root) -> Labels:
        format = self._format
        calls = root.calls
        return Labels(
            thinking=format.thinking if root.reasoning is not None else None,
            starts_in_reasoning=root.reasoning is not None and root.reasoning.is_open,
            calls=self._syntax_of(root) if calls is not None and format.channels is None else None,
            is_call_at_start=root.structured is not None,
            channels=format.channels,
            leads=() if root.is_raw else format.leads(root.reasoning is not None),
            trails=() if root.is_raw else format.trails,
            start="" if root.is_raw or root.is_begun else format.answer_start,
            tools={tool.name: tool for tool in calls.tools} if calls is not None else {},
            tokens={token_id: text for text, token_id in self.vocabulary.markers.items()},
        )

    def _route(self, root: Root, demand: Demand) -> Route | None:
        has_limits = demand.min_reasoning_tokens > 0 or demand.max_reasoning_tokens is not None
        if not self._tracks_states and not (has_limits and root.reasoning is not None):
            return None
        thinking = self._thinking if root.reasoning is not None else None
        calls = self._syntax_of(root) if root.calls is not None else None
        is_structured = root.structured is not None
        return Route(
            answer="structured" if is_structured else "text",
            starts_in_reasoning=root.reasoning is not None and root.reasoning.is_open,
            opening=None if thinking is None else thinking.opening,
            closing=None if thinking is None else thinking.closing,
            call_opening=None if calls is None else calls.opening,
            call_preamble="" if calls is None else calls.optional_begin,
            is_call_at_start=self._format.channels is None and (is_structured or self._syntax.is_at_start),
            is_call_in_reasoning=calls is not None and not calls.is_at_start,
            starts_in_call=root.reasoning is None and root.text is None and not is_structured,
            min_reasoning_tokens=demand.min_reasoning_tokens,
            max_reasoning_tokens=demand.max_reasoning_tokens,
        )


def _syntax(format: Format) -> CallSyntax:
    if format.calls is not None:
        return format.calls
    assert format.channels is not None, "a family has calls or channels"
    opening = format.channels.channel + format.channels.call
    return CallSyntax(opening, opening, format.channels.call_suffix + format.channels.message, "", can_repeat=False)


def _thinking(format: Format) -> Thinking | None:
    channels = format.channels
    if channels is None:
        return format.thinking
    return Thinking(channels.channel + channels.reasoning + channels.message, channels.end)
