"""The layout of a sequence's state: read off a blob, found again in others, refused when anything is odd."""

import numpy as np
import pytest

from proxy_inference_engine.runners.llama_cpp.blob import KvLayout, Plane
from tests.unit.runners.states import make_state

both_forms = pytest.mark.parametrize("is_transposed", [False, True])


def read_layout(*, is_transposed: bool = False) -> KvLayout:
    layout = KvLayout.read(make_state(5, is_transposed=is_transposed).blob, 5, 3)
    assert layout is not None
    return layout


def test_planes_by_token() -> None:
    layout = read_layout()
    assert [(plane.outer, plane.inner) for plane in layout.planes] == [(1, 34), (1, 34), (1, 16), (1, 16)]
    assert (layout.num_k_planes, layout.is_transposed) == (2, 0)


def test_a_transposed_v() -> None:
    layout = read_layout(is_transposed=True)
    assert [(plane.outer, plane.inner) for plane in layout.planes] == [(1, 34), (1, 34), (8, 2), (8, 2)]
    assert (layout.num_k_planes, layout.is_transposed) == (2, 1)


def test_bytes_of_a_token() -> None:
    assert Plane(b"", outer=8, inner=2).token_bytes == 16
    assert read_layout().token_bytes == read_layout(is_transposed=True).token_bytes == 2 * 34 + 2 * 16


@both_forms
def test_a_layout_does_not_depend_on_the_number_of_tokens(is_transposed: bool) -> None:
    state = make_state(9, is_transposed=is_transposed)
    assert KvLayout.read(state.blob, 9, 3) == read_layout(is_transposed=is_transposed)


@both_forms
@pytest.mark.parametrize("num_tokens", [1, 5, 24])
def test_the_size_of_a_blob_is_known_beforehand(is_transposed: bool, num_tokens: int) -> None:
    state = make_state(num_tokens, is_transposed=is_transposed)
    assert read_layout(is_transposed=is_transposed).blob_bytes(num_tokens, 3) == len(state.blob)


@both_forms
@pytest.mark.parametrize("stream", [0, 1, 2])
def test_planes_are_found_in_the_blob_of_any_stream(is_transposed: bool, stream: int) -> None:
    state = make_state(7, stream=stream, is_transposed=is_transposed)
    views = read_layout(is_transposed=is_transposed).blob_views(state.blob, 7, 3, stream)
    assert len(views) == 4
    for view, plane in zip(views, state.planes, strict=True):
        assert np.array_equal(view, plane)


@both_forms
def test_views_write_through(is_transposed: bool) -> None:
    state = make_state(7, is_transposed=is_transposed)
    layout = read_layout(is_transposed=is_transposed)
    for view in layout.blob_views(state.blob, 7, 3, 0):
        view[:, 3:5] = 0
    for view in layout.blob_views(state.blob, 7, 3, 0):
        assert not view[:, 3:5].any()
        assert view[:, :3].all() and view[:, 5:].all()


@both_forms
def test_headers_and_planes_make_the_blob_again(is_transposed: bool) -> None:
    state = make_state(7, is_transposed=is_transposed)
    layout = read_layout(is_transposed=is_transposed)
    blob = np.full(layout.blob_bytes(7, 3), 0xAA, np.uint8)
    layout.write_headers(blob, 7, 3)
    for view, plane in zip(layout.blob_views(blob, 7, 3, 0), state.planes, strict=True):
        view[:] = plane
    assert np.array_equal(blob, state.blob)


def test_planes_without_headers_follow_each_other() -> None:
    layout = read_layout(is_transposed=True)
    data = np.arange(7 * layout.token_bytes, dtype=np.uint64).astype(np.uint8)
    views = layout.plane_views(data, 7)
    assert [view.shape for view in views] == [(1, 7, 34), (1, 7, 34), (8, 7, 2), (8, 7, 2)]
    assert np.array_equal(np.concatenate([view.ravel() for view in views]), data)
    assert all(view.base is not None for view in views), "no copies"


@pytest.mark.parametrize(("num_tokens", "num_streams"), [(4, 3), (6, 3), (5, 2), (5, 4)])
def test_another_number_of_tokens_or_streams_is_refused(num_tokens: int, num_streams: int) -> None:
    assert KvLayout.read(make_state(5).blob, num_tokens, num_streams) is None


@both_forms
def test_a_blob_with_more_in_it_is_refused(is_transposed: bool) -> None:
    blob = make_state(5, is_transposed=is_transposed).blob
    assert KvLayout.read(np.append(blob, np.zeros(4, np.uint8)), 5, 3) is None


def test_cells_in_another_stream_are_refused() -> None:
    blob = make_state(5).blob
    blob[-1] = 1
    assert KvLayout.read(blob, 5, 3) is None


@pytest.mark.parametrize(("offset", "value"), [(76, 2), (81, 0x20), (88, 0xFF)], ids=["v_trans", "n_layer", "row size"])
def test_an_unknown_form_is_refused(offset: int, value: int) -> None:
    blob = make_state(5).blob
    blob[offset] = value
    assert KvLayout.read(blob, 5, 3) is None


@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_blob_cut_anywhere_is_refused_not_an_error(is_transposed: bool) -> None:
    blob = make_state(5, is_transposed=is_transposed).blob
    for length in range(len(blob)):
        assert KvLayout.read(blob[:length], 5, 3) is None


def test_cells_of_another_form_are_refused() -> None:
    """The form is read byte for byte: positions 0, 1, … of one sequence."""
    for offset in (16, 20, 24):
        blob = make_state(5).blob
        blob[offset] = 9
        assert KvLayout.read(blob, 5, 3) is None
