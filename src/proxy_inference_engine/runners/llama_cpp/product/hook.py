"""Our product of weights and columns, put in front of ggml's own: found, tried beside it, and only then used.

ggml asks everybody on its list of extra buffer types before it computes an operation itself, on each of its threads.
The product puts itself on that list. Nothing of llama.cpp is changed, and where a library has no such list, or the two
do not compute the same, nothing happens.
"""

import ctypes
import itertools
import logging
from collections.abc import Iterable
from ctypes import c_char_p, c_int64, c_void_p
from pathlib import Path

import numpy as np

from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.product.attention import AttentionGraph, AttentionShape
from proxy_inference_engine.runners.llama_cpp.product.build import missing_features, product_path
from proxy_inference_engine.runners.llama_cpp.product.multiplication import Multiplication, operation_number

_log = logging.getLogger(__name__)
_MIN_COLUMNS = 0  # as the variant is good at: two, or one
_NEVER = 1 << 62
_LIST = "_Z39ggml_backend_cpu_get_extra_buffer_typesv"
_CALLED = (_LIST, "ggml_barrier", "ggml_threadpool_chunk_set", "ggml_threadpool_chunk_add")
# By the number of the format: how far both may be apart, as a part of what the numbers are. Only Q8_0 has the same
# columns in both; the others round them for 256 values at once in ggml, and for 32 here.
_TOLERANCES = {8: 1e-5, 12: 0.03, 13: 0.03, 14: 0.03}
_UNPACKED = {0, 1, 30}  # floats of 32 and 16 bits: no layout of ggml's is for them
# Those that are sooner than ggml with layouts of its own for K-quants, which the product cannot read.
_SOONER = {"AVX-512 VNNI", "AVX-VNNI", "AVX2"}
_OPERATIONS = (b"MUL_MAT", b"FLASH_ATTN_EXT")
# ggml rounds queries to halves, and has the sums of values in halves where there are few tokens.
_ATTENTION_TOLERANCE = 0.01
_ATTENTIONS = (AttentionShape(21, 320), AttentionShape(35, 128, 4, 2, 128, 2), AttentionShape(1, 200))
_WIDTH, _NUM_ROWS = 512, 37
_NUM_COLUMNS = (21, 3, 1)  # packed for several strips of columns, and for one; not packed, or ggml's
_attached: list[Path] = []  # the one library of this process that asks the product


class Product:
    """Switched off until `use` says otherwise. Not for two threads."""

    def __init__(self, library: ctypes.CDLL, path: Path) -> None:
        self.path = path
        self._library = library
        self._is_used = False
        library.pie_product_variant.restype = c_char_p
        library.pie_product_set_min_columns.argtypes = [c_int64]
        library.pie_product_num_computed.restype = c_int64
        library.pie_product_num_attended.restype = c_int64
        library.pie_product_peak.argtypes, library.pie_product_peak.restype = [c_int64], c_int64
        self.variant = ""  # that is used

    @property
    def variants(self) -> list[str]:
        """The variants that this processor can run. The first is the best, and the one that is used."""
        return list(itertools.takewhile(bool, map(self._name, itertools.count())))

    def _name(self, which: int) -> str:
        name = self._library.pie_product_variant(which)
        return name.decode() if name else ""

    @property
    def num_computed(self) -> int:
        return int(self._library.pie_product_num_computed())

    @property
    def num_attended(self) -> int:
        return int(self._library.pie_product_num_attended())

    def use(self, is_used: bool, min_columns: int = _MIN_COLUMNS) -> None:
        """Use the product or not, from the next pass on. Exact mode does not: ggml has other steps for a row alone."""
        if is_used != self._is_used:
            self._is_used = is_used
            self._library.pie_product_set_min_columns(min_columns if is_used else _NEVER)

    def replaces_layouts(self, kinds: Iterable[int]) -> bool:
        """Whether tensors of these kinds, by their numbers, should lie as they are in the file, for the product."""
        return self.variant in _SOONER and _TOLERANCES.keys() | _UNPACKED >= set(kinds)

    def choose(self, variant: str) -> None:
        """Change the variant between two passes, for tests and benchmarks. Raises ValueError where it cannot run."""
        self._library.pie_product_choose(self.variants.index(variant))
        self.variant = variant

    def multiply_in_registers(self, times: int) -> int:
        """Multiply as fast as the processor can, for benchmarks; returns how many multiplications it were."""
        return int(self._library.pie_product_peak(times))


def attach(binding: Binding) -> Product | None:
    """The product in front of this library's own. None where there is none, or it is not to be trusted.

    Call after the library loaded a model: it reads the list once, to see where weights could lie, and must not find the
    product on it then.
    """
    path = product_path()
    if _attached or not path.exists() or missing_features() or any(binding.find(name) is None for name in _CALLED):
        return None
    try:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        _log.warning("the compiled product %s is not used: %s", path.name, error)
        return None
    product = Product(library, path)
    if not product.variants:
        return None
    product.choose(product.variants[0])
    addresses = (c_void_p * len(_CALLED))(*(ctypes.cast(binding.find(name), c_void_p).value for name in _CALLED))
    library.pie_product_register(addresses, *(operation_number(binding, name) for name in _OPERATIONS))
    _attached.append(binding.path)
    found = _difference(binding, product) or _other_attention(binding, product)
    if found is not None:
        _log.warning("the compiled product %s is not used: %s", path.name, found)
        return None
    return product


def _difference(binding: Binding, product: Product) -> str | None:
    """What the product computes otherwise than ggml; None where all is well. It is off afterwards."""
    for (number, tolerance), num_columns in itertools.product(_TOLERANCES.items(), _NUM_COLUMNS):
        generator = np.random.default_rng(number)
        values, columns = (generator.standard_normal((n, _WIDTH), np.float32) for n in (_NUM_ROWS, num_columns))
        before = product.num_computed
        with Multiplication(binding, number, values, columns) as multiplication:
            apart = _apart(product, multiplication)
        if product.num_computed == before and num_columns > 1:
            return "it was not asked"
        if not apart <= tolerance:  # nor anything that is no number
            return f"for format {number} it is {apart:.1e} away from llama.cpp's own"
    return None


def _other_attention(binding: Binding, product: Product) -> str | None:
    """What its attention computes otherwise; None where all is well. It is off afterwards."""
    for shape in _ATTENTIONS:
        before = product.num_attended
        with AttentionGraph(binding, shape, num_unused=40) as graph:
            apart = _apart(product, graph)
        if product.num_attended == before:
            return "it was not asked for attention"
        if not apart <= _ATTENTION_TOLERANCE:
            return f"its attention is {apart:.1e} away from llama.cpp's own"
    return None


def _apart(product: Product, tried: Multiplication | AttentionGraph) -> float:
    """How far ours is from ggml's, as a part of what the numbers are."""
    expected = tried.compute()
    product.use(True)
    found = tried.compute()
    product.use(False)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
