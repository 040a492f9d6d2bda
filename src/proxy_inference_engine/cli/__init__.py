"""The `pie` command."""

from proxy_inference_engine.cli.main import main

__all__ = ["main"]
