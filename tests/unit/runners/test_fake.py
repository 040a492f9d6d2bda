"""The reference runner: its logits tell the whole content of a slot, and it refuses what llama.cpp would abort on."""

from collections.abc import Sequence

import numpy as np
import pytest

from proxy_inference_engine.runners.base import Lane, Logits, Row, Runner
from proxy_inference_engine.runners.fake import (
    BOS,
    TEXT_END,
    TURN_END,
    ByteTokenizer,
    FakePacker,
    FakeRunner,
    FakeSegment,
)

TEXT = b"the quick brown fox"


def row(slot: int, start: int, text: bytes, num_logits: int = 1) -> Row:
    return Row(slot, start, np.frombuffer(text, np.uint8).astype(np.int32), num_logits)


def after(text: bytes) -> Logits:
    """The logits that follow a text computed at once."""
    logits: Logits = FakeRunner(lanes=[Lane(1, 100)]).forward([row(0, 0, text)])[0][-1]
    return logits


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner(lanes=[Lane(3, 50), Lane(1, 100)])


def test_it_is_a_runner(runner: FakeRunner) -> None:
    checked: Runner = runner
    assert checked.info.context_tokens == 100
    assert checked.info.kv_bytes_per_token == FakeSegment.of(np.zeros(1, np.int32)).num_bytes


# Logits


def test_logits_depend_on_every_token_before_them() -> None:
    assert np.array_equal(after(b"abc"), after(b"abc"))
    for other in b"abd", b"bbc", b"ab", b"bac":
        assert not np.array_equal(after(b"abc"), after(other))


@pytest.mark.parametrize("cuts", [[1], [5, 6], [18], list(range(1, 19))])
def test_chunks_do_not_change_them(runner: FakeRunner, cuts: list[int]) -> None:
    logits: list[Logits] = []
    for start, end in zip([0, *cuts], [*cuts, len(TEXT)], strict=True):
        logits += runner.forward([row(0, start, TEXT[start:end], end - start)])
    whole = FakeRunner().forward([row(0, 0, TEXT, len(TEXT))])[0]
    assert np.array_equal(np.concatenate(logits), whole)


def test_neighbours_and_places_do_not_change_them(runner: FakeRunner) -> None:
    logits = runner.forward([row(0, 0, b"other"), row(2, 0, TEXT), row(3, 0, b"more")])
    assert np.array_equal(logits[1][-1], after(TEXT))


def test_a_row_gets_as_many_logits_as_it_asked_for(runner: FakeRunner) -> None:
    logits = runner.forward([row(0, 0, b"abc", 0), row(1, 0, b"abc", 3), row(2, 0, b"abc", 1)])
    assert [rows.shape for rows in logits] == [(0, 260), (3, 260), (1, 260)]


def test_computed_tokens_are_counted(runner: FakeRunner) -> None:
    runner.forward([row(0, 0, b"abc"), row(1, 0, b"de")])
    assert runner.num_computed_tokens == 5


def test_poison_makes_the_logits_of_its_slot_nan() -> None:
    runner = FakeRunner(poison_id=ord("!"))
    bad, good = runner.forward([row(0, 0, b"bad!"), row(1, 0, b"good")])
    assert np.isnan(bad).all()
    assert np.isfinite(good).all()


@pytest.mark.parametrize(("end_bias", "is_end"), [(40.0, True), (-40.0, False)])
def test_end_bias_decides_how_answers_end(end_bias: float, is_end: bool) -> None:
    runner = FakeRunner(end_bias=end_bias)
    best = runner.forward([row(0, 0, TEXT, len(TEXT))])[0].argmax(axis=1)
    assert set(best.tolist()) == {TURN_END} if is_end else TURN_END not in best


def test_a_step_takes_the_time_it_is_told() -> None:
    naps: list[float] = []
    runner = FakeRunner(step_seconds=lambda num_tokens: 0.5 * num_tokens, sleep=naps.append)
    runner.forward([row(0, 0, b"abc"), row(1, 0, b"d")])
    assert naps == [2.0]


# Slots


def test_truncated_tokens_are_forgotten(runner: FakeRunner) -> None:
    runner.forward([row(0, 0, b"hello world")])
    runner.truncate(0, 5)
    assert runner.num_slot_tokens(0) == 5
    assert np.array_equal(runner.forward([row(0, 5, b"!")])[0][-1], after(b"hello!"))


def test_truncating_to_more_than_there_is_changes_nothing(runner: FakeRunner) -> None:
    runner.forward([row(0, 0, b"abc")])
    runner.truncate(0, 9)
    assert runner.num_slot_tokens(0) == 3


def test_release_empties_a_slot_and_is_harmless_on_an_empty_one(runner: FakeRunner) -> None:
    runner.forward([row(0, 0, b"abc")])
    for _ in range(2):
        runner.release(0)
        assert runner.num_slot_tokens(0) == 0


def test_a_failing_forward_leaves_its_tokens_behind() -> None:
    def fail(rows: Sequence[Row]) -> None:
        raise RuntimeError("injected fault")

    runner = FakeRunner(on_forward=fail)
    with pytest.raises(RuntimeError):
        runner.forward([row(0, 0, b"abc")])
    assert runner.num_slot_tokens(0) == 3


# Segments


@pytest.mark.parametrize("at", [1, 7, 18])
def test_divided_and_joined_kv_computes_the_same(runner: FakeRunner, at: int) -> None:
    runner.forward([row(0, 0, TEXT)])
    segment = runner.export(0, 0, len(TEXT))
    halves = segment.split(at)
    assert segment.is_freed
    assert [half.num_tokens for half in halves] == [at, len(TEXT) - at]
    runner.restore(3, halves, len(TEXT))
    assert np.array_equal(runner.forward([row(3, len(TEXT), b"!")])[0][-1], after(TEXT + b"!"))


def test_kv_joined_in_the_wrong_order_shows(runner: FakeRunner) -> None:
    runner.forward([row(0, 0, TEXT)])
    first, second = runner.export(0, 0, 9), runner.export(0, 9, len(TEXT))
    runner.restore(1, [second, first], len(TEXT))
    assert not np.array_equal(runner.forward([row(1, len(TEXT), b"!")])[0][-1], after(TEXT + b"!"))


def test_restoring_cuts_and_replaces(runner: FakeRunner) -> None:
    runner.forward([row(0, 0, TEXT), row(1, 0, b"old")])
    runner.restore(1, [runner.export(0, 0, len(TEXT))], 4)
    assert np.array_equal(runner.forward([row(1, 4, b"!")])[0][-1], after(b"the !"))


def test_a_failing_copy_raises() -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("injected fault")

    runner = FakeRunner(on_copy=fail)
    runner.forward([row(0, 0, b"abc")])
    with pytest.raises(RuntimeError):
        runner.export(0, 0, 3)
    with pytest.raises(RuntimeError):
        runner.restore(1, [FakeSegment.of(np.zeros(3, np.int32))], 3)
    assert len(calls) == 2


# Refusals


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(1, 0, b"a"), row(0, 0, b"a")], "sorted by slot"),
        ([row(0, 0, b"a"), row(0, 1, b"a")], "sorted by slot"),
        ([row(0, 2, b"a")], "holds 0 tokens, row starts at 2"),
        ([row(0, 0, b"a" * 51)], "slot overflow"),
    ],
)
def test_rows_a_backend_could_not_compute_are_refused(runner: FakeRunner, rows: list[Row], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        runner.forward(rows)


def test_a_pass_over_nothing_is_refused(runner: FakeRunner) -> None:
    with pytest.raises(AssertionError):
        runner.forward([])


@pytest.mark.parametrize(("start", "end"), [(0, 4), (2, 2), (-1, 2)])
def test_only_what_a_slot_holds_can_be_exported(runner: FakeRunner, start: int, end: int) -> None:
    runner.forward([row(0, 0, b"abc")])
    with pytest.raises(AssertionError):
        runner.export(0, start, end)


def test_a_freed_segment_is_of_no_use(runner: FakeRunner) -> None:
    segment = FakeSegment.of(np.zeros(3, np.int32))
    segment.free()
    with pytest.raises(AssertionError, match="freed segment"):
        runner.restore(0, [segment], 3)
    with pytest.raises(AssertionError, match="freed twice"):
        segment.free()


@pytest.mark.parametrize("at", [0, 3])
def test_a_segment_is_not_divided_at_its_ends(at: int) -> None:
    with pytest.raises(AssertionError):
        FakeSegment.of(np.zeros(3, np.int32)).split(at)


@pytest.mark.parametrize(("num_held", "num_tokens"), [(3, 4), (60, 60)])
def test_more_than_there_is_or_fits_is_not_restored(runner: FakeRunner, num_held: int, num_tokens: int) -> None:
    with pytest.raises(AssertionError):
        runner.restore(0, [FakeSegment.of(np.zeros(num_held, np.int32))], num_tokens)


def test_without_splicing_kv_moves_as_a_whole_only() -> None:
    runner = FakeRunner(can_splice=False)
    runner.forward([row(0, 0, b"abc")])
    with pytest.raises(AssertionError):
        runner.export(0, 1, 3)
    segment = runner.export(0, 0, 3)
    with pytest.raises(AssertionError):
        runner.restore(1, [segment], 2)
    runner.restore(1, [segment], 3)
    assert runner.num_slot_tokens(1) == 3


# Tokens


@pytest.mark.parametrize("text", ["hello", "grüße 🎉", "", "<|im_end|>", "<|bos|>"])
def test_text_becomes_its_bytes_and_never_a_special_token(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert ids == list(text.encode())
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_special_tokens_are_spelled_by_name() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.specials["<|im_end|>"] == TURN_END
    assert tokenizer.token_bytes(TURN_END) == b"<|im_end|>"
    assert tokenizer.end_ids == {TURN_END, TEXT_END}
    assert tokenizer.control_ids == set(tokenizer.specials.values())
    assert tokenizer.num_tokens == 260


@pytest.mark.parametrize(("has_bos", "bos_id"), [(False, None), (True, BOS)])
def test_a_bos_token_only_where_wanted(has_bos: bool, bos_id: int | None) -> None:
    assert FakeRunner(has_bos=has_bos).tokenizer.bos_id == bos_id


def test_packed_and_unpacked_is_the_same() -> None:
    segment = FakeSegment.of([1, 2, -2_000_000_000, 259])
    packer = FakePacker()
    assert packer.unpack(4, packer.pack(segment)) == segment
    with pytest.raises(ValueError, match="tokens"):
        packer.unpack(3, packer.pack(segment))
