"""The arguments of a call as an object, for the APIs that do not hand them on as text."""

from typing import Any

from pydantic_core import from_json, to_json

from proxy_inference_engine.errors import EngineFailure


def parsed_arguments(arguments: str, advice: str = "") -> Any:
    """The arguments, or what can be read of those that the limit cut off. `advice` ends the message of the error."""
    if not arguments:
        return {}
    try:
        value = from_json(arguments, allow_partial=True)
    except ValueError:
        raise EngineFailure(f"The arguments of a call are nested too deeply to be read{advice}.") from None
    # A number too large for a float would be infinite, which is no JSON.
    return from_json(to_json(value, inf_nan_mode="null"))
