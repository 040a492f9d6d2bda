"""What every request schema shares: strictness, refusals by name, and the way to validate."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.failures import from_validation

MAX_INT64 = 2**63 - 1

Positive = Annotated[int, Field(ge=1, le=MAX_INT64)]
Natural = Annotated[int, Field(ge=0, le=MAX_INT64)]
Share = Annotated[float, Field(ge=0, le=1)]
Label = Annotated[str, Field(max_length=512)]

_LATER = "is not supported by this version"
_NEVER = "is not supported by this server"


class Schema(BaseModel):
    """Nothing is converted, nothing is ignored: `"1"` and `true` are no numbers, an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())


SchemaT = TypeVar("SchemaT", bound=Schema)


def validate(schema: type[SchemaT], data: Any) -> SchemaT:
    """Prove a parsed body; null equals absent. Raises InvalidRequest that names the parameter."""
    if not isinstance(data, dict):
        raise InvalidRequest("The body has to be a JSON object.")
    present = {key: value for key, value in data.items() if value is not None}
    try:
        return schema.model_validate(present)
    except ValidationError as error:
        raise from_validation(error, present) from None


def later(*neutral: object) -> BeforeValidator:
    """A field that a later version will honour: only null and neutral values are accepted now."""
    return BeforeValidator(_refuse(_LATER, neutral))


def never(*neutral: object) -> BeforeValidator:
    """A field of the format that has no meaning here: only null and neutral values are accepted."""
    return BeforeValidator(_refuse(_NEVER, neutral))


def _refuse(reason: str, neutral: tuple[object, ...]) -> Callable[[object], None]:
    def check(value: object) -> None:
        # Types are compared too: 0 is not False here.
        if value is None or any(type(value) is type(other) and value == other for other in neutral):
            return
        raise PydanticCustomError("unsupported", reason)

    return check


def unsupported(reason: str = _LATER) -> PydanticCustomError:
    return PydanticCustomError("unsupported", reason)
