"""Where the rewriting of a schema stands. Knows no keyword."""

from dataclasses import dataclass

from proxy_inference_engine.state_machine.json_schema.keywords import KINDS, Kinds, Schema


@dataclass(frozen=True, slots=True)
class Spot:
    """The client's schema that is being rewritten, how deep it stands, which kinds of values can be there, whether
    references in it are opened, and the keyword of it that another schema stands for."""

    owner: Schema
    depth: int = 0
    kinds: Kinds = KINDS
    is_opened: bool = False
    lowered: str = ""

    def inside(self) -> "Spot":
        """The place of a subschema that concerns another value."""
        return Spot(self.owner, self.depth + 1, lowered=self.lowered)

    def beside(self, kinds: Kinds) -> "Spot":
        """The place of a subschema that concerns the same value."""
        return Spot(self.owner, self.depth + 1, kinds, self.is_opened, self.lowered)
