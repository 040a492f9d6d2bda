"""Python functions as tools: the schema from signature and docstring, the call with arguments of the right types."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import to_json

from proxy_inference_engine.python.result import UntitledSchema

Function = Callable[..., Any]
ToolLike = Function | Mapping[str, Any]  # a function, or a tool as the chat API has it, which nobody here calls

_FIELD = "p_"  # before a parameter's name: a field may not be called as Pydantic calls something of its own
_SECTION = re.compile(r"^\s*(?:args|arguments|parameters|params)\s*:?\s*$", re.IGNORECASE)
_GOOGLE = re.compile(r"^\s+\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?\s*:\s*(?P<text>.*)$")
_REST = re.compile(r"^\s*:param\s+(?:[\w\[\], |.]+\s+)?(?P<name>\w+)\s*:\s*(?P<text>.*)$")
_ENDINGS = re.compile(
    r"^\s*(?:(?:returns?|raises|yields?|examples?|notes?)\s*:?\s*$|:(?:return|raise|rtype)s?\b)", re.I
)


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that a model may call."""

    name: str
    function: Function
    spec: dict[str, Any]  # as the chat API has it
    arguments: type[BaseModel]

    @classmethod
    def of(cls, function: Function) -> "FunctionTool":
        """Raises TypeError for a function whose parameters have no types, or cannot be named."""
        if not inspect.isroutine(function):
            raise TypeError(f"{function!r} is no function: a tool is one, or a method, or a mapping")
        name = function.__name__
        about, notes = read_docstring(inspect.getdoc(function) or "")
        model = _arguments(name, function, notes)
        schema = model.model_json_schema(schema_generator=UntitledSchema)
        schema.pop("title", None)
        spec = {"name": name, "description": about, "parameters": schema}
        return cls(name, function, {"type": "function", "function": spec}, model)

    def call(self, arguments: str) -> Any:
        """What the function returns; of an asynchronous one that is a coroutine. Raises what it raises."""
        try:
            given = self.arguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            raise ValueError(f"the model's call of {self.name} is not what its signature wants: {error}") from None
        names = {field: info.alias or field for field, info in self.arguments.model_fields.items()}
        return self.function(**{names[field]: getattr(given, field) for field in given.model_fields_set})


def as_text(result: Any) -> str:
    """What the model is told a function returned: text as it is, anything else as JSON."""
    return result if isinstance(result, str) else to_json(result, fallback=str).decode()


def tool_specs(tools: "list[FunctionTool | Mapping[str, Any]]") -> list[dict[str, Any]]:
    return [tool.spec if isinstance(tool, FunctionTool) else dict(tool) for tool in tools]


def _arguments(name: str, function: Function, notes: Mapping[str, str]) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{name}: a tool's parameters have names, {str(parameter)!r} has none a model could give")
        if parameter.name not in hints:
            raise TypeError(f"{name}: the parameter {parameter.name!r} needs a type, or a model cannot know what it is")
        default = ... if parameter.default is parameter.empty else parameter.default
        hint, about = hints[parameter.name], notes.get(parameter.name)
        if about is not None:
            hint = Annotated[hint, Field(description=about)]
        fields[_FIELD + parameter.name] = (hint, Field(default, alias=parameter.name))
    return create_model(name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a function does, and what is said of each parameter, in Google's style or as `:param name:`."""
    about: list[str] = []
    notes: dict[str, str] = {}
    current, indent = "", -1  # the parameter that is being told of; the indentation of a section's entries
    is_section = is_over = False
    for line in text.splitlines():
        if _SECTION.match(line) or _ENDINGS.match(line):
            current, indent, is_over = "", -1, True
            is_section = _SECTION.match(line) is not None
            continue
        entry = _REST.match(line) or (_GOOGLE.match(line) if is_section else None)
        depth = len(line) - len(line.lstrip())
        if entry is not None and (indent < 0 or depth <= indent):
            current, is_over = entry["name"], True
            indent = depth
            notes[current] = entry["text"].strip()
        elif current:
            notes[current] = f"{notes[current]} {line.strip()}".strip()
        elif not is_over:
            about.append(line)
    return "\n".join(about).strip(), notes
