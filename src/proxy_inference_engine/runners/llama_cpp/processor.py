"""Whether this processor has what a library was compiled for. It would end the process in the middle of a pass."""

from pathlib import Path

from proxy_inference_engine.runners.llama_cpp.binding import Binding

# By the names of ggml's questions: those of Linux.
_FLAGS = {
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "bmi2": "bmi2",
    "avx512": "avx512f",
    "avx512_vbmi": "avx512vbmi",
    "avx512_vnni": "avx512_vnni",
    "avx512_bf16": "avx512_bf16",
    "avx_vnni": "avx_vnni",
    "amx_int8": "amx_int8",
}


def missing_features(binding: Binding, cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Extensions that the library's code uses and the processor lacks; none where the system does not tell."""
    try:
        line = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return []
    flags = line.split()
    return [name for name, flag in _FLAGS.items() if flag not in flags and _uses(binding, name)]


def _uses(binding: Binding, name: str) -> bool:
    function = binding.find(f"ggml_cpu_has_{name}")
    return function is not None and bool(function())
