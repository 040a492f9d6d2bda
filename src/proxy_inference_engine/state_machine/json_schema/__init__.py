"""JSON Schema as a grammar: what the library does not take is rewritten, soundly, or refused by name."""

from proxy_inference_engine.state_machine.json_schema.contradictions import loosened, reconciled
from proxy_inference_engine.state_machine.json_schema.errors import ImpossibleSchema, UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.grammar import (
    JsonGrammar,
    Spacing,
    closed_grammar,
    json_grammar,
    open_grammar,
)

__all__ = [
    "ImpossibleSchema",
    "JsonGrammar",
    "Spacing",
    "UnenforceableSchema",
    "closed_grammar",
    "json_grammar",
    "loosened",
    "open_grammar",
    "reconciled",
]
