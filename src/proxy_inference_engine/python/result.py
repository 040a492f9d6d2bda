"""What an answer has to look like, from a Python type, and the answer as a value of that type."""

import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

T = TypeVar("T")
_FORMATS = ("text", "json_object", "json_schema", "grammar", "choice")  # of the chat API
_JSON = ("json_object", "json_schema")
_NAME = "answer"


class BadResult(Exception):
    """The text is not what was asked for. The message says why, in one line."""


class UntitledSchema(GenerateJsonSchema):
    """A field's title is its name once more: a prompt does without it."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class ResultShape(Generic[T]):
    """What an answer is to be: any type that Pydantic knows, a JSON Schema, or a format as the chat API has it."""

    def __init__(self, wanted: "type[T] | Mapping[str, Any]") -> None:
        self._adapter: TypeAdapter[T] | None = None
        self._is_json = True
        if isinstance(wanted, Mapping) and wanted.get("type") in _FORMATS:
            self.format = dict(wanted)
            self._is_json = wanted["type"] in _JSON
            return
        if isinstance(wanted, Mapping):
            schema = dict(wanted)
        else:
            self._adapter = TypeAdapter(wanted)
            schema = self._adapter.json_schema(schema_generator=UntitledSchema)
        self.format = {"type": "json_schema", "json_schema": {"name": _NAME, "schema": schema}}

    def parse(self, text: str) -> T:
        """Raises BadResult."""
        try:
            if self._adapter is not None:
                return self._adapter.validate_json(text)
            return json.loads(text) if self._is_json else text  # type: ignore[return-value]  # T is Any
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise BadResult(f"{where}: {first['msg']}" if where else first["msg"]) from None
        except ValueError as error:
            raise BadResult(str(error)) from None
