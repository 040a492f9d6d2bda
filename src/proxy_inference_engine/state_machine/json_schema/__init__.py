"""JSON Schema as a grammar: what the library does not take is rewritten, soundly, or refused by name."""

from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.grammar import JsonGrammar, Spacing, json_grammar

__all__ = ["JsonGrammar", "Spacing", "UnenforceableSchema", "json_grammar"]
