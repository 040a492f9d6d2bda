"""OpenAPI 3.0's `nullable`, as one more type; for documents that declare no draft."""

from collections.abc import Mapping
from typing import Any

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.keywords import Schema, mapped


def _is_nullable(schema: Mapping[str, Any]) -> bool:
    """As OpenAPI 3.0.3 has it, nullable says something beside a type alone; an enum has to list null too."""
    return schema.get("nullable") is True and isinstance(schema.get("type"), str) and schema["type"] != "null"


def with_nulls(schema: Schema, budget: StepBudget) -> Schema:
    """What is nullable has null as one more type; every subschema stays at the place where it was."""
    if not isinstance(schema, dict):
        return schema
    budget.spend()
    result = mapped(schema, lambda _, one: with_nulls(one, budget))
    components = result.get("components")
    if isinstance(components, dict) and isinstance(components.get("schemas"), dict):
        named = {name: with_nulls(one, budget) for name, one in components["schemas"].items()}
        result["components"] = {**components, "schemas": named}
    if _is_nullable(result):
        result["type"] = [result["type"], "null"]
    return result
