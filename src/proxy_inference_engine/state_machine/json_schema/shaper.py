"""What a watch has to know of a rewritten schema, place by place: the arrays whose items differ, the keys it keeps.

A place is described by one schema or by several of which one holds, and a watch cannot tell which: what it keeps has to
follow from all of them. Where it does not, the place is named, and the schema is written in another way.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from proxy_inference_engine.state_machine.json_schema.bounds import is_counted
from proxy_inference_engine.state_machine.json_schema.budget import OutOfSteps, StepBudget
from proxy_inference_engine.state_machine.json_schema.free_order import names_of
from proxy_inference_engine.state_machine.json_schema.item_texts import DIFFERENT, Together, Unwatchable, texts_of
from proxy_inference_engine.state_machine.json_schema.kept_objects import KEPT
from proxy_inference_engine.state_machine.json_schema.keywords import OF_ARRAYS, Schema, children, kinds_of, mapped
from proxy_inference_engine.state_machine.json_schema.result import DEFINITIONS
from proxy_inference_engine.state_machine.shapes import (
    MANY,
    MAX_OBJECTS,
    ArrayShape,
    ItemTexts,
    ObjectShape,
    Shape,
    num_objects,
    num_texts,
    written_key,
)

# Stands among paths for: how many properties there are cannot be counted, as some would have to come twice.
UNCOUNTED = "minProperties"
MAX_CASES = 32
MAX_PLACES = 2_000

# Groups of schemas that hold together, of which one holds.
Cases = tuple[Together, ...]

_ANYTHING: Mapping[str, Any] = {}  # one, as it is known by its identity


class _TooMany(Exception):
    """A schema has more cases, or more places, than are looked at."""


class Shaper:
    """Makes the shape of one rewritten document."""

    def __init__(self, document: Mapping[str, Any], budget: StepBudget) -> None:
        self.unplaced: set[str] = set()  # paths of uniqueItems that cannot be watched, and UNCOUNTED
        self.kept: set[int] = set()  # numbers of objects whose keys are kept
        self.unkept: set[int] = set()  # and of those whose keys cannot be, here or there
        self._definitions: Mapping[str, Any] = document.get("$defs", {})
        self._root = document
        self._budget = budget
        self._shapes: dict[tuple[tuple[int, ...], ...], Shape] = {}
        self._pending: list[tuple[Shape, Cases]] = []

    def shape(self) -> Shape | None:
        """The root's; None where there is nothing to watch, or it would take too long to find out."""
        try:
            root = self._at([self._root])
            while self._pending:
                shape, cases = self._pending.pop()
                self._fill(shape, cases)
        except OutOfSteps:
            self._budget = StepBudget()
            self._give_up([self._root])
            return None
        if root is None or root not in _telling(list(self._shapes.values())):
            return None
        root.keeps_keys = bool(self.kept)
        return root

    def _at(self, schemas: list[Schema]) -> Shape | None:
        """The shape of a place that each of some schemas may describe."""
        try:
            found = (case for schema in schemas for case in self._cases(schema, 0))
            cases = tuple({tuple(map(id, case)): case for case in found}.values())
            if len(cases) > MAX_CASES or len(self._shapes) > MAX_PLACES:
                raise _TooMany
        except _TooMany:
            self._give_up(schemas)
            return None
        key = tuple(tuple(map(id, case)) for case in cases)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape()
            self._pending.append((shape, cases))
        return shape

    def _cases(self, schema: Schema, depth: int) -> list[Together]:
        self._budget.spend()
        if not isinstance(schema, Mapping):
            return [(_ANYTHING,)] if schema else []
        if depth > MAX_CASES or ("$ref" in schema and not schema.keys() <= {"$ref", "$defs"}):
            raise _TooMany
        if "$ref" in schema:
            return self._cases(self._definitions[schema["$ref"].removeprefix(DEFINITIONS)], depth + 1)
        cases: list[Together] = [()] if schema.keys() <= {"allOf", "anyOf", "$defs"} else [(schema,)]
        for part in schema.get("allOf", ()):
            cases = self._product(cases, self._cases(part, depth + 1))
        if "anyOf" in schema:
            options = [case for option in schema["anyOf"] for case in self._cases(option, depth + 1)]
            cases = self._product(cases, options)
        return cases

    @staticmethod
    def _product(left: list[Together], right: list[Together]) -> list[Together]:
        if len(left) * len(right) > MAX_CASES * 4:
            raise _TooMany
        return [(*one, *other) for one in left for other in right]

    def _give_up(self, schemas: list[Schema]) -> None:
        """Nothing below can be watched."""
        stack, seen = list(schemas), set[int]()
        while stack:
            self._budget.spend()
            one = stack.pop()
            if not isinstance(one, Mapping) or id(one) in seen:
                continue
            seen.add(id(one))
            if DIFFERENT in one:
                self.unplaced.add(one[DIFFERENT])
            if KEPT in one:
                self.unkept.add(one[KEPT].number)
            if is_counted(one):
                self.unplaced.add(UNCOUNTED)
            if "$ref" in one:
                stack.append(self._definitions[one["$ref"].removeprefix(DEFINITIONS)])
            stack += [below for _, below in children(one)]

    def _fill(self, shape: Shape, cases: Cases) -> None:
        objects = [case for case in cases if _has_kind(case, "object")]
        arrays = [case for case in cases if _has_kind(case, "array")]
        shape.object = self._object(objects) if objects else None
        shape.array = self._array(arrays) if arrays else None

    # Objects

    def _object(self, cases: list[Together]) -> ObjectShape:
        names = dict.fromkeys(name for case in cases for part in case for name in _names(part))
        self._budget.spend(len(names) * len(cases))
        told = [[(_named(part), _rest(part)) for part in case] for case in cases]
        result = ObjectShape(
            {
                written_key(name): self._at([_all(named.get(name, rest) for named, rest in case) for case in told])
                for name in names
            },
            self._at([_all(rest for _, rest in case) for case in told]),
        )
        if any(is_counted(part) and _are_few(part, case) for case in cases for part in case):
            self.unplaced.add(UNCOUNTED)
        self._keep(result, cases)
        return result

    def _keep(self, shape: ObjectShape, cases: list[Together]) -> None:
        """Note what a watch keeps of an object, where that follows from every case."""
        found = [{part[KEPT] for part in case if KEPT in part} for case in cases]
        clashes = any(KEPT in one and _do_clash(one, other) for case in cases for one in case for other in case)
        kept = found[0]
        closed = [one for one in kept if one.is_closed]
        if any(one != kept for one in found) or (closed and len(kept) > 1) or clashes:
            self.unkept |= {one.number for one in set().union(*found)}
            return
        self.kept |= {one.number for one in kept}
        shape.needed = frozenset(written_key(name) for one in kept for name in one.needed)
        for one in closed:
            shape.only, shape.is_endless = frozenset(map(written_key, one.certain)), one.is_endless

    # Arrays

    def _array(self, cases: list[Together]) -> ArrayShape:
        num_places = max((len(part.get("prefixItems", ())) for case in cases for part in case), default=0)
        places = [_item(case, index) for case in cases for index in (*range(num_places), None)]
        result = ArrayShape(self._at(places))
        paths = {part[DIFFERENT] for case in cases for part in case if DIFFERENT in part}
        if paths:
            try:
                result.texts, result.parts = self._different([_once(case) for case in cases if not _is_free(case)])
            except (Unwatchable, _TooMany):
                self.unplaced |= paths
        return result

    def _different(self, cases: list[Together]) -> tuple[Mapping[str, ItemTexts], Mapping[bytes, Any] | None]:
        """The texts of items that differ, and the parts by which objects among them do.

        What may come has to depend on nothing but what was there: not on the place, nor on which case it is. Where an
        array is free, its items differ too, and there are always others.
        """
        binding = [case for case in cases if any(DIFFERENT in part for part in case)]
        first, item = binding[0], _item(binding[0], None)
        if any("prefixItems" in part for case in cases for part in case):
            raise Unwatchable
        if any(not _are_alike(_unmarked(case), _unmarked(first)) for case in binding) or any(
            _item(case, None) != item for case in cases
        ):
            raise Unwatchable
        least = max((part.get("minItems", 0) for part in first), default=0)
        items = self._cases(item, 0)
        objects = [case for case in items if _is_any_object(case)]
        parts = self._parts(objects) if objects else {}
        least = 0 if objects and min(num_objects(parts), MAX_OBJECTS) >= least else least
        texts = texts_of(items, least, self._budget, frozenset({"object"} if objects else ()))
        is_endless = num_texts(texts) >= MANY or (bool(parts) and num_objects(parts) >= MANY)
        if len(binding) < len(cases) and not is_endless:
            raise Unwatchable
        return texts, parts if objects else None

    def _parts(self, cases: list[Together]) -> dict[bytes, Mapping[str, ItemTexts]]:
        """The properties that tell objects apart, with texts where objects surely have them, whatever else they have.

        Without texts: those that may be missing, or are one thing here and another there.
        """
        needed = frozenset.intersection(*(frozenset(name for part in case for name in _needed(part)) for case in cases))
        parts: dict[bytes, Mapping[str, ItemTexts]] = {}
        for name in dict.fromkeys(name for part in cases[0] for name in _names(part)):
            self._budget.spend(len(cases))
            schemas = [_all(_named(part).get(name, _rest(part)) for part in case) for case in cases]
            with suppress(Unwatchable):
                if name in needed and all(one == schemas[0] for one in schemas):
                    parts[written_key(name)] = texts_of(self._cases(schemas[0], 0), 1, self._budget)
                else:
                    self._check_texts(schemas)
                    parts[written_key(name)] = {}
        # Where these are few, nothing else may tell objects apart.
        if num_objects(parts) < MANY and not all(_has_only(part, parts) for case in cases for part in case):
            raise Unwatchable
        return parts

    def _check_texts(self, schemas: list[Schema]) -> None:
        """That equal values have equal texts."""
        for case in (case for schema in schemas for case in self._cases(schema, 0)):
            if not frozenset.intersection(*map(kinds_of, case)) <= {"string", "boolean", "null"}:
                texts_of([case], 0, self._budget)


def _do_clash(kept: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether another part may say something of the properties that are kept of one."""
    if other is kept:
        return False
    names = {*kept[KEPT].needed, *kept[KEPT].certain}
    if KEPT in other:
        return not names.isdisjoint({*other[KEPT].needed, *other[KEPT].certain})
    is_closing = "patternProperties" in other or other.get("additionalProperties") is False
    return is_closing or not names.isdisjoint(_names(other))


def _are_few(part: Mapping[str, Any], case: Together) -> bool:
    """Whether other parts may leave an object too few names for what one part counts."""
    others = (one for one in case if one is not part)
    return any("patternProperties" in one or one.get("additionalProperties") is False for one in others)


def _is_free(case: Together) -> bool:
    """Whether a case says nothing of what is in an array."""
    return all(part.keys().isdisjoint(OF_ARRAYS | {DIFFERENT, "enum", "const"}) for part in case)


def _once(case: Together) -> Together:
    return tuple(part for index, part in enumerate(case) if part not in case[:index])


def _unmarked(case: Together) -> Together:
    return tuple({key: one for key, one in part.items() if key != DIFFERENT} for part in case)


def _are_alike(case: Together, other: Together) -> bool:
    """Whether two cases say the same."""
    return len(case) == len(other) and all(part in other for part in case)


def _is_any_object(case: Together) -> bool:
    """Whether a case says what objects may be, and does not list them."""
    return _has_kind(case, "object") and all(part.keys().isdisjoint({"enum", "const"}) for part in case)


def _has_only(part: Mapping[str, Any], parts: Mapping[bytes, Any]) -> bool:
    is_closed = part.get("additionalProperties") is False
    return is_closed and all(parts.get(written_key(name)) for name in _names(part))


def _needed(part: Mapping[str, Any]) -> Iterator[str]:
    yield from part.get("required", ())
    if KEPT in part:
        yield from part[KEPT].needed


def _names(part: Mapping[str, Any]) -> Iterator[str]:
    yield from part.get("properties", ())
    for pattern in part.get("patternProperties", ()):
        yield from names_of(pattern)


def _named(part: Mapping[str, Any]) -> dict[str, Schema]:
    """What a part says of the keys that it names."""
    patterns: Mapping[str, Schema] = part.get("patternProperties", {})
    listed = {name: one for pattern, one in patterns.items() for name in names_of(pattern)}
    return {**listed, **part.get("properties", {})}


def _rest(part: Mapping[str, Any]) -> Schema:
    """What a part says of keys that it does not name."""
    patterns = [one for pattern, one in part.get("patternProperties", {}).items() if not names_of(pattern)]
    others = part.get("additionalProperties", True)
    return {"anyOf": [*patterns, others]} if patterns else others


def _all(schemas: Iterator[Schema]) -> Schema:
    """One schema for several that hold together."""
    parts = list(schemas)
    if any(part is False for part in parts):
        return False
    parts = [part for part in parts if part is not True and part != {}]
    return parts[0] if len(parts) == 1 else {"allOf": parts} if parts else True


def _item(case: Together, index: int | None) -> Schema:
    """What stands at a place of an array; None: at all places after those that are listed."""
    found = []
    for part in case:
        prefix = part.get("prefixItems", ())
        found.append(prefix[index] if index is not None and index < len(prefix) else part.get("items", True))
    return _all(iter(found))


def _has_kind(case: Together, kind: str) -> bool:
    return all(kind in kinds_of(part) for part in case)


def _telling(shapes: list[Shape]) -> set[Shape]:
    """Shapes that have something to watch, in them or below; in all others what is below is let go."""
    above: dict[int, list[Shape]] = {}
    found: set[Shape] = set()
    for shape in shapes:
        for below in _below(shape):
            above.setdefault(id(below), []).append(shape)
    stack = [shape for shape in shapes if _tells(shape)]
    while stack:
        shape = stack.pop()
        if shape not in found:
            found.add(shape)
            stack += above.get(id(shape), ())
    for shape in shapes:
        _prune(shape, found)
    return found


def _tells(shape: Shape) -> bool:
    is_kept = shape.object is not None and shape.object.is_kept
    return is_kept or (shape.array is not None and shape.array.texts is not None)


def _below(shape: Shape) -> Iterator[Shape | None]:
    if shape.object is not None:
        yield from shape.object.names.values()
        yield shape.object.others
    if shape.array is not None:
        yield shape.array.item


def _prune(shape: Shape, kept: set[Shape]) -> None:
    def only(one: Shape | None) -> Shape | None:
        return one if one in kept else None

    if shape.object is not None:
        shape.object.names = {key: only(one) for key, one in shape.object.names.items()}
        shape.object.others = only(shape.object.others)
    if shape.array is not None:
        shape.array.item = only(shape.array.item)


def without_marks(schema: Schema) -> Any:
    """A copy as the library takes it."""
    if not isinstance(schema, Mapping):
        return schema
    copy = mapped(schema, lambda _, one: without_marks(one))
    for mark in (DIFFERENT, KEPT):
        copy.pop(mark, None)
    if "allOf" in copy:
        copy["allOf"] = [part for part in copy["allOf"] if part != {}]
        if copy.keys() == {"allOf"} and len(copy["allOf"]) <= 1:
            return copy["allOf"][0] if copy["allOf"] else {}
        if not copy["allOf"]:
            del copy["allOf"]
    return copy
