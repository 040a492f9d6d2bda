"""What the start says of the llama.cpp that runs, and of what another one would bring."""

from proxy_inference_engine.cli.build import advice, has_pip, missing_compilers
from proxy_inference_engine.runners.llama_cpp.library import Library
from proxy_inference_engine.runners.llama_cpp.product.build import missing_features
from proxy_inference_engine.runners.llama_cpp.speed import Comparison


def describe(library: Library) -> str:
    product = ""
    if library.product is not None:
        product = f", with our product for prompts and crowds ({library.product.variant})"
    if library.origin == "named":
        return f"llama.cpp of {library.binding.path}{product}"
    if library.origin == "prebuilt":
        return f"llama.cpp, prebuilt{product}"
    text = f"llama.cpp, compiled for this processor{product}"
    comparison = Comparison.read(library.binding.path)
    if comparison is None:
        return text
    ratios = comparison.ratios()
    return (
        f"{text}: prompts {ratios.prompt:.1f}, one stream {ratios.stream:.1f}, 16 streams {ratios.streams:.1f} "
        f"times as fast as prebuilt (measured {comparison.day})"
    )


def faster(library: Library, *, program: str, has_unused_gpu: bool) -> list[str]:
    """What would make it faster here, a line each: a command, three spaces, what it does; or what is to be read."""
    lines = []
    if has_unused_gpu:
        lines.append("there is an NVIDIA GPU that this llama.cpp does not use: docs/gpu.md")
    made = _compiled(library) if has_pip() else ""
    if made:
        first = f", after {advice()}" if missing_compilers() else ""
        lines.append(f"{program} optimize   compiles {made}{first}")
    return lines


def _compiled(library: Library) -> str:
    """What of it is not there yet."""
    if library.product is None and not missing_features():
        return "our product (seconds) and llama.cpp (minutes) for this processor"
    return "llama.cpp for this processor (minutes)" if library.origin == "prebuilt" else ""
