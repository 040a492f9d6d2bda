"""Proxy Inference Engine: a local inference server for language models.

`Engine` and `AsyncEngine` are a served model inside a Python program. They are imported when they are first used, so
that `import proxy_inference_engine` costs nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know the name; to import typing takes longer than all else here
if TYPE_CHECKING:
    from proxy_inference_engine.python.answer import ChatAnswer as ChatAnswer
    from proxy_inference_engine.python.answer import IncompleteAnswer as IncompleteAnswer
    from proxy_inference_engine.python.async_engine import AsyncEngine as AsyncEngine
    from proxy_inference_engine.python.engine import Engine as Engine

__version__ = "0.1.0"
__all__ = ["AsyncEngine", "ChatAnswer", "Engine", "IncompleteAnswer", "__version__"]
_HOMES = {"AsyncEngine": "async_engine", "ChatAnswer": "answer", "Engine": "engine", "IncompleteAnswer": "answer"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.python.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
