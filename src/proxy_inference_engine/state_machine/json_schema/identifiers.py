"""Identifiers and anchors of a document: what a reference by name means, as a pointer into the document."""

from typing import Any
from urllib.parse import urldefrag, urljoin

from proxy_inference_engine.state_machine.json_schema.budget import CHARS_PER_STEP, StepBudget
from proxy_inference_engine.state_machine.json_schema.keywords import Address, Schema, SchemaPlace, own_id, pointer


class Identifiers:
    """The names of one document. A long base is read, and kept, again for each name that is relative to it."""

    def __init__(self, found: list[SchemaPlace], draft: int, budget: StepBudget) -> None:
        self.found = found
        self.draft = draft
        self._budget = budget
        self._bases = _bases(found, draft, budget)
        self._names: dict[str, str] = {}
        for schema, address in found:
            self._add(schema, address)

    def _add(self, schema: Schema, address: Address) -> None:
        names, base = self._names, self._bases[address]
        local = "#" + pointer(address)
        if isinstance(own := own_id(schema, self.draft), str):
            names.setdefault(_joined(self._bases[address[:-1]] if address else "", own, self._budget), local)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(keyword), str):
                self._budget.spend((len(base) + len(anchor)) // CHARS_PER_STEP)
                names.setdefault(base + "#" + anchor, local)
        if not address or base not in names:
            names.setdefault(base, local)

    def local(self, reference: str, address: Address) -> str:
        """A reference as a pointer, relative to the schema at an address; itself where nothing has such a name."""
        base = self._bases[next(address[:end] for end in range(len(address), -1, -1) if address[:end] in self._bases)]
        absolute = _joined(base, reference, self._budget) if reference != "#" else base
        url, fragment = urldefrag(absolute)
        for name in (absolute, absolute.removesuffix("#"), reference):
            if name in self._names and not fragment.startswith("/"):
                return self._names[name]
        if fragment.startswith("/") and url in self._names:
            return "#" + self._names[url].removeprefix("#") + fragment
        return reference

    def localised(self, root: Schema) -> Schema:
        """The document with every reference written as a pointer."""
        return self._localised(root, {id(schema): address for schema, address in self.found})

    def _localised(self, value: Any, addresses: dict[int, Address]) -> Any:
        if isinstance(value, list):
            return [self._localised(one, addresses) for one in value]
        if not isinstance(value, dict):
            return value
        copy = {key: self._localised(one, addresses) for key, one in value.items()}
        address = addresses.get(id(value))
        reference = value.get("$ref")
        if address is not None and isinstance(reference, str):
            copy["$ref"] = self.local(reference, address)
        return copy


def _joined(base: str, name: str, budget: StepBudget) -> str:
    budget.spend((len(base) + len(name)) // CHARS_PER_STEP)
    # urljoin knows nothing of URNs.
    return urldefrag(base).url + name if name.startswith("#") else urljoin(base, name)


def _bases(found: list[SchemaPlace], draft: int, budget: StepBudget) -> dict[Address, str]:
    """The base address of every schema: its own identifier, or that of the nearest schema around it."""
    bases: dict[Address, str] = {}
    for schema, address in sorted(found, key=lambda place: len(place.address)):
        above = next((bases[address[:end]] for end in range(len(address) - 1, -1, -1) if address[:end] in bases), "")
        own = own_id(schema, draft)
        is_base = isinstance(own, str) and not own.startswith("#")
        bases[address] = urldefrag(_joined(above, own, budget)).url if is_base else above
        for end in range(1, len(address)):
            bases.setdefault(address[:end], above)
    return bases
