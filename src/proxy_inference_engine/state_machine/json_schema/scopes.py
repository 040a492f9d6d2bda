"""References that depend on the way to them: $dynamicRef and $recursiveRef, as references to definitions.

What such a reference means is decided by the schemas with an identifier of their own that were entered on the way, the
outermost first. So every schema is copied for each way to it that matters, and in a copy the meaning is plain.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.identifiers import Identifiers
from proxy_inference_engine.state_machine.json_schema.keywords import Address, Schema, at, mapped, own_id, pointer

# The keyword for it that a draft has.
DYNAMIC = {2019: "$recursiveRef", 2020: "$dynamicRef"}
_ANCHORS = {2019: "$recursiveAnchor", 2020: "$dynamicAnchor"}
_NAMING = frozenset({"$defs", "definitions", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", *DYNAMIC.values()})
_UNNAMED = "#"  # the name of all anchors in a draft where they have none
_BROKEN = "#/"  # an entered schema without an anchor; whether those around it count is told differently

# Anchors by name, and the address of the outermost schema that has one. Hashable: it decides what is a copy.
Scope = tuple[tuple[str, Address], ...]


class InScope(NamedTuple):
    root: Schema
    addresses: dict[int, Address]  # where each copy stands in the client's document, by identity


def in_scope(root: Schema, identifiers: Identifiers, budget: StepBudget) -> InScope:
    """A document without references that depend on the way. Raises UnenforceableSchema where one leads nowhere."""
    return _Copies(root, identifiers, budget).whole()


class _Copies:
    def __init__(self, root: Schema, identifiers: Identifiers, budget: StepBudget) -> None:
        self._root = root
        self._identifiers = identifiers
        self._draft = identifiers.draft
        self._budget = budget
        self._addresses: dict[int, Address] = {}
        self._names: dict[tuple[Address, Scope], str] = {}
        self._pending: list[tuple[str, Schema, Address, Scope]] = []
        self._anchors: dict[Address, dict[str, Address]] = {}  # of every schema that can be entered
        for schema, address in identifiers.found:
            if not address or isinstance(own_id(schema, self._draft), str):
                self._anchors[address] = {}
        for schema, address in identifiers.found:
            self._note(schema, address)

    def _note(self, schema: Mapping[str, Any], address: Address) -> None:
        anchor = schema.get(_ANCHORS[self._draft])
        if isinstance(anchor, str):
            self._anchors[self._home(address)].setdefault(anchor, address)
        elif anchor is True and address in self._anchors:
            self._anchors[address][_UNNAMED] = address

    def _home(self, address: Address) -> Address:
        return next(address[:end] for end in range(len(address), -1, -1) if address[:end] in self._anchors)

    def whole(self) -> InScope:
        root = self._copied(self._root, (), self._entered((), ()))
        definitions: dict[str, Schema] = {}
        while self._pending:
            name, schema, address, scope = self._pending.pop()
            definitions[name] = self._copied(schema, address, scope)
        root["$defs"] = definitions
        return InScope(root, self._addresses)

    def _entered(self, address: Address, scope: Scope) -> Scope:
        """The scope inside of the schema that an address belongs to: what is around it counts before its own."""
        own = self._anchors[self._home(address)]
        self._budget.spend(1 + (len(own) + len(scope)) // 2)
        known = dict(scope)
        if self._draft == 2019 and known and not own:
            own = {_BROKEN: ()}
        return tuple(sorted({**own, **known}.items()))

    def _copied(self, schema: Schema, address: Address, scope: Scope) -> Any:
        self._budget.spend(1 + len(scope))
        if not isinstance(schema, dict):
            return schema
        if address in self._anchors:
            scope = self._entered(address, scope)
        kept = {keyword: one for keyword, one in schema.items() if keyword not in _NAMING and keyword != "$ref"}
        copy = mapped(kept, lambda below, one: self._copied(one, (*address, *below), scope))
        references = [{"$ref": name} for name in self._references(schema, address, scope)]
        if len(references) == 1:
            copy |= references[0]
        elif references:
            copy["allOf"] = [*copy.get("allOf", ()), *references]
        self._addresses[id(copy)] = address
        return copy

    def _references(self, schema: Mapping[str, Any], address: Address, scope: Scope) -> list[str]:
        found: list[str] = []
        if isinstance(reference := schema.get("$ref"), str):
            found.append(self._definition(self._target(reference, address, "$ref"), scope))
        keyword = DYNAMIC[self._draft]
        if isinstance(reference := schema.get(keyword), str):
            target = self._target(reference, address, keyword)
            if keyword == "$recursiveRef":
                found.append(self._definition(self._recursive(target, address, scope), scope))
            else:
                found.append(self._definition(self._dynamic(reference, target, scope), scope))
        return found

    def _dynamic(self, reference: str, target: Address, scope: Scope) -> Address:
        """The outermost anchor of the name, where the name is that of an anchor at all."""
        name = urldefrag(reference).fragment
        schema = at(self._root, target)
        is_anchor = isinstance(schema, dict) and schema.get("$dynamicAnchor") == name
        return dict(scope).get(name, target) if is_anchor else target

    def _recursive(self, target: Address, address: Address, scope: Scope) -> Address:
        if not self._anchors.get(target):
            return target
        if _BROKEN in dict(scope):
            reason = "What is meant depends on schemas around one that has no $recursiveAnchor."
            raise UnenforceableSchema(pointer((*address, "$recursiveRef")), "$recursiveRef", reason)
        return dict(scope)[_UNNAMED]

    def _definition(self, target: Address, scope: Scope) -> str:
        """A reference to the copy of what stands at an address, entered from a scope."""
        scope = self._entered(target, scope)
        name = self._names.get((target, scope))
        if name is None:
            name = self._names[target, scope] = f"s{len(self._names)}"
            self._pending.append((name, at(self._root, target), target, scope))
        return f"#/$defs/{name}"

    def _target(self, reference: str, address: Address, keyword: str) -> Address:
        local = self._identifiers.local(reference, address)
        target = tuple(unquote(part).replace("~1", "/").replace("~0", "~") for part in local.split("/")[1:])
        if (
            not local.startswith("#")
            or not isinstance(at(self._root, target), dict | bool)
            or (target == () and local != "#")
        ):
            reason = f"The reference {reference!r} leads out of the schema."
            raise UnenforceableSchema(pointer((*address, keyword)), keyword, reason)
        return target
