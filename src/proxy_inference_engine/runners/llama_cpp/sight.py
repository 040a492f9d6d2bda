"""Rows with images through a lane: a batch holds tokens or vectors, so such a row takes several batches."""

from collections.abc import Callable, Sequence

import numpy as np

from proxy_inference_engine.runners.base import Logits, Row
from proxy_inference_engine.runners.llama_cpp.lane import LaneContext, Look

Divide = Callable[[Row], list[Row | Look]]


def decode_seeing(divide: Divide, context: LaneContext, rows: Sequence[Row], first_slot: int) -> list[Logits]:
    """Compute the rows. The text at the end of each, all of most, goes in one batch; what is before it alone."""
    found: list[list[Logits]] = []
    ends: list[Row] = []
    for row in rows:
        parts = divide(row)
        end = parts.pop() if isinstance(parts[-1], Row) else None
        found.append([_decode_alone(context, row.slot - first_slot, part) for part in parts])
        if isinstance(end, Row):
            ends.append(end)
    if ends:
        places = {row.slot: index for index, row in enumerate(rows)}
        for end, logits in zip(ends, context.decode(ends, first_slot), strict=True):
            found[places[end.slot]].append(logits)
    return [logits[0] if len(logits) == 1 else np.concatenate(logits) for logits in found]


def _decode_alone(context: LaneContext, index: int, part: Row | Look) -> Logits:
    """Logits that stay: the next batch overwrites the library's own."""
    if isinstance(part, Look):
        return context.look(index, part)
    (logits,) = context.decode([Row(index, part.start, part.ids, part.num_logits)], 0)
    return logits.copy()
