"""JSON Schema as a grammar: what the library does not take is rewritten, soundly, or refused by name."""

from proxy_inference_engine.state_machine.json_schema.closing import closed_grammar, open_grammar
from proxy_inference_engine.state_machine.json_schema.contradictions import reconciled
from proxy_inference_engine.state_machine.json_schema.document import admits_other_keys
from proxy_inference_engine.state_machine.json_schema.errors import ImpossibleSchema, UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.rewriter import json_grammar
from proxy_inference_engine.state_machine.json_schema.text import JsonGrammar, Spacing

__all__ = [
    "ImpossibleSchema",
    "JsonGrammar",
    "Spacing",
    "UnenforceableSchema",
    "admits_other_keys",
    "closed_grammar",
    "json_grammar",
    "open_grammar",
    "reconciled",
]
