"""One product of quantised weights and columns as a graph of ggml's: to try ours beside it, and to measure both."""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.quantisation import Floats

_F32 = 0
ROOM_BYTES = 1 << 20  # for the graph, beside the numbers
_NUM_OPERATIONS = 200  # more than ggml knows


class Multiplication:
    """`values` (rows, width) become weights in the format of this number; `columns` are (columns, width).

    It is done so many `times` in one graph, as products follow each other in a pass: starting a graph takes as long as
    a small product does.
    """

    def __init__(self, binding: Binding, number: int, values: Floats, columns: Floats, times: int = 1) -> None:
        self._binding = binding
        self._shape = len(columns), len(values)
        num_bytes = ROOM_BYTES + values.nbytes + columns.nbytes + 4 * len(columns) * len(values) * times
        new_tensor = declared(binding, "ggml_new_tensor_2d", c_void_p, c_void_p, c_int, c_int64, c_int64)
        self._data = declared(binding, "ggml_get_data", c_void_p, c_void_p)
        self._context = new_context(binding, num_bytes)
        self._weights = weights = new_tensor(self._context, number, values.shape[1], values.shape[0])
        given = new_tensor(self._context, _F32, columns.shape[1], columns.shape[0])
        multiply = declared(binding, "ggml_mul_mat", c_void_p, *[c_void_p] * 3)
        results = [multiply(self._context, weights, given) for _ in range(times)]
        self._result = results[-1]
        self._graph = Graph(binding, self._context, *results)
        quantize = declared(binding, "ggml_quantize_chunk", c_size_t, c_int, *[c_void_p] * 2, *[c_int64] * 3, c_void_p)
        quantize(number, values.ctypes.data, self._data(weights), 0, *values.shape, None)
        ctypes.memmove(self._data(given), columns.ctypes.data, columns.nbytes)

    def set_weights(self, packed: NDArray[np.uint8]) -> None:
        """Instead of the quantised values: for tests with weights that no quantiser writes."""
        ctypes.memmove(self._data(self._weights), packed.ctypes.data, packed.nbytes)

    def compute(self, threads: int = 1) -> Floats:
        """(columns, rows): a copy."""
        self.run(threads)
        numbers = np.ctypeslib.as_array(ctypes.cast(self._data(self._result), POINTER(c_float)), self._shape)
        return np.array(numbers)

    def run(self, threads: int) -> None:
        self._graph.run(threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        declared(self._binding, "ggml_free", None, c_void_p)(self._context)


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class _Plan(ctypes.Structure):
    _fields_ = (
        ("work_size", c_size_t),
        ("work_data", c_void_p),
        ("n_threads", c_int),
        ("threadpool", c_void_p),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("use_ref", c_bool),
    )


def new_context(binding: Binding, num_bytes: int) -> Any:
    """Room for a graph and its numbers; to be freed with `ggml_free`."""
    return declared(binding, "ggml_init", c_void_p, _InitParams)(_InitParams(num_bytes, None, False))


class Graph:
    """What leads to some results."""

    def __init__(self, binding: Binding, context: Any, *results: Any) -> None:
        self._binding = binding
        self._graph = declared(binding, "ggml_new_graph", c_void_p, c_void_p)(context)
        for result in results:
            declared(binding, "ggml_build_forward_expand", None, c_void_p, c_void_p)(self._graph, result)

    def run(self, threads: int) -> None:
        """Planned anew each time, as llama.cpp does: who computes it is decided then."""
        plan = declared(self._binding, "ggml_graph_plan", _Plan, c_void_p, c_int, c_void_p)(self._graph, threads, None)
        work = ctypes.create_string_buffer(plan.work_size + 1)
        plan.work_data = ctypes.addressof(work)
        declared(self._binding, "ggml_graph_compute", c_int, c_void_p, POINTER(_Plan))(self._graph, plan)


def operation_number(binding: Binding, name: bytes) -> int:
    name_of = declared(binding, "ggml_op_name", c_char_p, c_int)
    return next(number for number in range(_NUM_OPERATIONS) if name_of(number) == name)


def declared(binding: Binding, name: str, result: Any, *arguments: Any) -> Any:
    """A function that nothing else uses, with its types."""
    function = binding.find(name)
    function.restype, function.argtypes = result, arguments
    return function
