"""Tools and schemas that the cases of every API use, in the words of chat completions."""

from tests.golden.case import Json

SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
LOOSE: Json = {
    "type": "object",
    "properties": {
        "id": {"type": "array", "items": {"type": "integer", "multipleOf": 7}, "uniqueItems": True, "maxItems": 2}
    },
    "required": ["id"],
    "additionalProperties": False,
}
UNSAID: Json = {  # whether others may come
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "then": {"type": "object", "properties": {"n": {"enum": [1, 2]}}},
    },
    "required": ["city", "then"],
}
CONTRADICTORY: Json = {
    "type": "object",
    "properties": {"id": {"type": "integer", "enum": ["1", "2"]}},
    "required": ["id"],
}
IMPOSSIBLE: Json = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
RESERVED: Json = {"type": "object", "x-guidance": {}}
LARGE: Json = {"type": "object", "description": "x" * 300_000}
LARK = 'start: greeting " " NAME\ngreeting: "hello" | "good day"\nNAME: /[A-Z][a-z]{2,3}/'


def function(name: str, schema: Json | None = None, **fields: object) -> Json:
    parameters = {} if schema is None else {"parameters": schema}
    return {"type": "function", "function": {"name": name, **parameters, **fields}}


def custom(name: str, syntax: str = "", definition: str = "") -> Json:
    if not syntax:
        return {"type": "custom", "custom": {"name": name, "description": "Takes text."}}
    grammar = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": name, "format": grammar}}


def json_schema(schema: object, **fields: object) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **fields}}


def flat(tool: Json) -> Json:
    """As the Responses API writes it."""
    spec = dict(tool[tool["type"]])
    if "format" in spec:
        spec["format"] = {"type": "grammar", **spec["format"]["grammar"]}
    return {"type": tool["type"], **spec}


def anthropic(tool: Json) -> Json:
    """As Anthropic's API writes it."""
    spec = dict(tool["function"])
    return {"input_schema": spec.pop("parameters", {"type": "object"}), **spec}


def named(tool: Json) -> Json:
    kind = tool["type"]
    return {"type": kind, kind: {"name": tool[kind]["name"]}}


def allowed(mode: str, *tools: Json) -> Json:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(tool) for tool in tools]}}


def called(*calls: tuple[str, str, str]) -> list[Json]:
    """Of a history: id, name and arguments."""
    return [{"id": id_, "type": "function", "function": {"name": name, "arguments": text}} for id_, name, text in calls]


WEATHER = function("get_weather", SCHEMA, description="The weather in a city.")
TIME = function("get_time", {**SCHEMA, "properties": {**SCHEMA["properties"], "zone": {"const": "UTC"}}}, strict=True)
PING = function("ping")
SHELL = custom("shell", "regex", "ls( -[a-z]{1,3})?")
MATH = custom("math", "lark", 'start: NUM ("+" NUM)?\nNUM: /[0-9]{1,2}/')
NOTE = custom("note")
TOOLS = [WEATHER, TIME, PING, SHELL, MATH, NOTE]
