"""`pie key NAME`: a new API key, and the line for the key file that lets it in without showing it."""

import sys

from proxy_inference_engine.cli.terminal import fitted, is_terminal
from proxy_inference_engine.config.keys import new_key
from proxy_inference_engine.errors import StartupError


def key(*, name: str, is_admin: bool = False) -> int:
    """Prints both. Nothing is kept: the key is shown this once."""
    try:
        made = new_key(name, is_admin=is_admin)
    except ValueError as error:
        raise StartupError(str(error)) from None
    print(f"key   {made.key}\nline  {made.line}")
    if is_terminal(sys.stdout):
        advice = f"The key is {name}'s to keep, and is not shown again. The line goes into the file of api_key_file."
        print(f"\n{fitted(advice, 0)}")
    return 0
