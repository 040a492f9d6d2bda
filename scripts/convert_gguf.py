"""Converts a GGUF file of the Llama architecture to a folder in Hugging Face's layout: safetensors, config, tokenizer.

    python scripts/convert_gguf.py --out folder [--dtype bf16|f32|kept] [file.gguf]

Without a file it takes the bundled model. With `kept` quantised weights stay so; else they are written out, so that the
folder is larger than the file and as exact.
"""

import argparse
import sys
from pathlib import Path

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.convert_gguf import convert
from proxy_inference_engine.models.resolve import resolve


def show(share: float) -> None:
    """A bar on a terminal."""
    if sys.stdout.isatty():
        end = "\n" if share == 1 else ""
        print(f"\r  weights [{'#' * int(share * 30):<30}] {int(share * 100):3d} %", end=end, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Convert a GGUF file of the Llama architecture to safetensors.")
    parser.add_argument("model", nargs="?", help="the GGUF file; without one the bundled model")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument(
        "--dtype", choices=("bf16", "f32", "kept"), default="bf16", help="numbers of the weights (bf16)"
    )
    options = parser.parse_args()
    try:
        convert(resolve(options.model).path, options.out, options.dtype, show)
    except (StartupError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
