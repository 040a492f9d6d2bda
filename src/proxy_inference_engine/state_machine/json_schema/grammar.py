"""A client's JSON Schema as a grammar of llguidance: as it is written, closed, or to the letter.

Knows how long the schema may be, and what becomes of it; rewriting it is the rewriter's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import CHARS_PER_STEP, OutOfSteps, StepBudget
from proxy_inference_engine.state_machine.json_schema.closed_objects import closed
from proxy_inference_engine.state_machine.json_schema.document import Document
from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.kept_objects import with_kept
from proxy_inference_engine.state_machine.json_schema.keywords import BRANCHING, Schema, children, kinds_of
from proxy_inference_engine.state_machine.json_schema.orders import in_any_order
from proxy_inference_engine.state_machine.json_schema.plain import without_touched_ends
from proxy_inference_engine.state_machine.json_schema.rewriter import TOO_MUCH, Rewriter
from proxy_inference_engine.state_machine.json_schema.shaper import Shaper, without_marks
from proxy_inference_engine.state_machine.shapes import Shape

# Without \u: the library would take a named property for an unnamed one when its name is written with such escapes.
ESCAPES = 'nrbtf\\"'
MAX_CHARS = 1 << 20
MAX_SHAPINGS = 4  # rounds of finding out which keys a watch can keep


@dataclass(frozen=True, slots=True)
class Spacing:
    """What is written between items and after keys; no other white space exists."""

    item: str = ","
    key: str = ":"


COMPACT = Spacing()


@dataclass(frozen=True, slots=True)
class JsonGrammar:
    """A schema that is ready for llguidance, what of the client's does not bind, and what a watch has to see to."""

    schema: Mapping[str, Any]
    relaxed: tuple[str, ...]
    shape: Shape | None = None

    @property
    def lark(self) -> str:
        """The text that stands for this schema in a Lark rule."""
        return "%json " + json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))

    @property
    def admits_other_keys(self) -> bool:
        """Whether an object of it may have keys that the schema does not name."""
        stack: list[Schema] = [self.schema]
        while stack:
            one = stack.pop()
            if one is True or one == {}:
                return True
            if not isinstance(one, dict) or "enum" in one or "const" in one:
                continue
            stack += [below for _, below in children(one)]
            kinds = kinds_of(one) if "type" in one or not one.keys() & BRANCHING else frozenset()
            is_open = "object" in kinds and one.get("additionalProperties") is not False
            if is_open or one.get("patternProperties") or ("array" in kinds and "items" not in one):
                return True
        return False


def json_grammar(
    schema: Any,
    *,
    is_strict: bool = True,
    spacing: Spacing = COMPACT,
    budget: StepBudget | None = None,
    any_order: bool = False,
    is_watched: bool = False,
) -> JsonGrammar:
    """Rewrite a schema; raises UnenforceableSchema where it is malformed, impossible or, if strict, not enforceable.

    Watched: a watch stands beside the grammar, and what the grammar's `shape` says is for the watch to enforce.
    `budget` is for all that is written with it; each pass has its own as well.
    """
    if not isinstance(schema, dict | bool):
        raise UnenforceableSchema("", "", "The schema must be an object.")
    num_chars = _check_text(schema)
    rewriter, shape = None, None
    unwatched: set[str] | None = set() if is_watched else None
    try:
        StepBudget(whole=budget).spend(num_chars // CHARS_PER_STEP)
        while True:
            rewriter = Rewriter(Document(schema, StepBudget(whole=budget)), is_strict, unwatched)
            rewritten = rewriter.result()
            if rewriter.has_bounds:
                rewritten = without_touched_ends(rewritten, StepBudget(whole=budget))
            if unwatched is None:
                break
            shaped = _shaped(rewritten, budget, keeps=any_order, is_marked=rewriter.is_marked)
            if not shaped.unplaced:
                rewritten, shape = shaped.schema, shaped.shape
                break
            # Written in another way, another array may be the one that cannot be watched; then none is.
            unwatched = None if unwatched else shaped.unplaced
        if any_order:
            rewritten = in_any_order(rewritten, is_watched=is_watched)
    except RecursionError:
        raise UnenforceableSchema("", "", "The schema is nested too deeply.") from None
    except OutOfSteps:
        path, keyword = ("", "") if rewriter is None else rewriter.place
        raise UnenforceableSchema(path, keyword, TOO_MUCH) from None
    _check_size(rewritten)
    return JsonGrammar({"x-guidance": _options_of(spacing), **rewritten}, tuple(rewriter.relaxed), shape)


class _Shaped(NamedTuple):
    """A schema as the library takes it, what a watch has to see to, and paths of uniqueItems that it cannot."""

    schema: dict[str, Any]
    shape: Shape | None
    unplaced: set[str]


def _shaped(rewritten: dict[str, Any], budget: StepBudget | None, *, keeps: bool, is_marked: bool) -> _Shaped:
    """`keeps`: the watch may keep keys too, so that they come in any order. `is_marked`: it has items to keep apart."""
    unkept: frozenset[int] = frozenset()
    for num_left in reversed(range(MAX_SHAPINGS)):
        marked, kept = with_kept(rewritten, unkept) if keeps and num_left else (rewritten, frozenset())
        if not (kept or is_marked):
            return _Shaped(rewritten, None, set())
        shaper = Shaper(marked, StepBudget(whole=budget))
        shape = shaper.shape()
        unkept |= shaper.unkept | (kept - shaper.kept)
        if kept.isdisjoint(unkept):
            return _Shaped(without_marks(marked), shape, shaper.unplaced)
    raise AssertionError("in the last round nothing is kept")


def closed_grammar(
    schema: Any,
    *,
    is_strict: bool = True,
    spacing: Spacing = COMPACT,
    budget: StepBudget | None = None,
    is_watched: bool = False,
) -> JsonGrammar:
    """Does what `json_grammar` does with objects closed, unless that alone costs the schema something it asks for."""
    write = partial(json_grammar, is_strict=is_strict, spacing=spacing, budget=budget, is_watched=is_watched)
    if not _leaves_open(schema):
        return write(schema)
    try:
        Document(schema, StepBudget(whole=budget))  # refuses what is malformed
        narrower = write(closed(schema, budget))
    except (UnenforceableSchema, OutOfSteps, RecursionError):
        return write(schema)
    if not narrower.relaxed:
        return narrower
    as_written = write(schema)
    return narrower if set(narrower.relaxed) <= set(as_written.relaxed) else as_written


def open_grammar(
    schema: Any,
    *,
    is_strict: bool = True,
    spacing: Spacing = COMPACT,
    budget: StepBudget | None = None,
    is_watched: bool = False,
) -> JsonGrammar:
    """Does what `json_grammar` does, to the letter: objects are as written, and their properties have no order."""
    return json_grammar(
        schema, is_strict=is_strict, spacing=spacing, budget=budget, any_order=True, is_watched=is_watched
    )


def _leaves_open(value: Any) -> bool:
    """Whether an object of a schema lists its properties, and may not say whether others may come."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, Mapping):
            if "properties" in one and "additionalProperties" not in one:
                return True
            stack += one.values()
        elif isinstance(one, list | tuple):
            stack += one
    return False


def _options_of(spacing: Spacing) -> dict[str, Any]:
    """The library's options: no white space but this."""
    return {
        "whitespace_flexible": False,
        "item_separator": spacing.item,
        "key_separator": spacing.key,
        "json_allowed_escapes": ESCAPES,
    }


def _check_text(schema: Any) -> int:
    """Refuse what is too long, or no JSON in UTF-8: half a surrogate pair, numbers without end, endless nesting.

    How long it is.
    """
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        raise UnenforceableSchema("", "", "The schema cannot be written as JSON.") from None
    if len(text) > MAX_CHARS:
        raise UnenforceableSchema("", "", f"The schema has more than {MAX_CHARS} characters.")
    return len(text)


def _check_size(schema: Any) -> None:
    """Refuse what would be too long as text. Parts of it are shared: written out, a small schema can be gigabytes."""
    left = MAX_CHARS
    stack = [schema]
    while stack and left >= 0:
        one = stack.pop()
        left -= 2
        if isinstance(one, str):
            left -= len(one)
        elif isinstance(one, list):
            stack += one
        elif isinstance(one, dict):
            left -= sum(map(len, one))
            stack += one.values()
    if left < 0:
        raise UnenforceableSchema("", "", TOO_MUCH)
