"""`pie key NAME`: a new API key, and the line for the key file that lets it in without showing it."""

from proxy_inference_engine.config.keys import new_key
from proxy_inference_engine.errors import StartupError


def key(*, name: str, is_admin: bool = False) -> int:
    """Prints both. Nothing is kept: the key is shown this once."""
    try:
        made = new_key(name, is_admin=is_admin)
    except ValueError as error:
        raise StartupError(str(error)) from None
    print(f"key   {made.key}\nline  {made.line}")
    return 0
