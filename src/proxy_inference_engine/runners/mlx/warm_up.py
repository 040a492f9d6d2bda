"""Computes once what a server will compute, before anyone waits: a device compiles kernels at their first use."""

import numpy as np

from proxy_inference_engine.runners.base import UNREAD_ID, Picks, Row, Runner, Unread, Want
from proxy_inference_engine.runners.mlx.rows import MAX_SHORT, ordinary_ids
from proxy_inference_engine.types import Sampling

_SAMPLINGS = (Sampling(seed=0), Sampling(seed=0, top_p=0.9), Sampling(seed=0, temperature=0.0))
_UNREAD = np.array([UNREAD_ID], np.int32)


def warm_up(runner: Runner) -> None:
    """Prompts, then tokens that the device chose, alone and beside some that are known; leaves nothing behind."""
    assert runner.chooser is not None
    ids = np.array(ordinary_ids(runner.tokenizer.num_tokens, MAX_SHORT + 8), np.int32)
    start, slots = len(ids), range(min(2, runner.lanes[0].num_slots))
    picks = _choose(runner, [Row(slot, 0, ids, 1) for slot in slots])
    picks = _choose(runner, [Row(slot, start, _UNREAD, 1, unread=Unread(picks, slot)) for slot in slots])
    known = [Row(slot, start + 1, ids[:2], 1) for slot in slots[:1]]
    rows = [*known, *(Row(slot, start + 1, _UNREAD, 1, unread=Unread(picks, slot)) for slot in slots[1:])]
    _choose(runner, rows).read()
    for slot in slots:
        runner.release(slot)
    runner.rest()


def _choose(runner: Runner, rows: list[Row]) -> Picks:
    """Compute rows and choose their tokens in every way once; the picks of the last, which is greedy."""
    assert runner.chooser is not None
    logits = runner.forward(rows)
    for sampling in _SAMPLINGS:
        picks = runner.chooser.choose([Want(each, sampling, 0.5, (), None) for each in logits])
    return picks
