"""The most common draw in one function: `top_p` and nothing else. `filters` and `draw` say the same, for every case.

After a forward pass no code is in the caches: every call costs, those of NumPy's functions in Python most of all. So
this has few of them, and methods and ufuncs only (`docs/log.md`).
"""

import numpy as np

from proxy_inference_engine.sampling.filters import Weights

_FLOOR = 1e-4  # probability; at most steps the nucleus lies above
_MAX_SORTED = 4096


def draw_nucleus(weights: Weights, total: float, share: float, number: float) -> int | None:
    """The token that `number` falls on among the most likely that have `share` of the total together.

    None where the long way is needed: many candidates, or equals at the border of which only some belong.
    """
    candidates = (weights >= _FLOOR * total).nonzero()[0]
    if candidates.size > _MAX_SORTED:
        return None
    found = weights.take(candidates)
    ordered = found.copy()
    ordered.sort()
    ordered = ordered[::-1]
    last = int(ordered.cumsum(dtype=np.float64).searchsorted(share * total))
    if last >= ordered.size:
        return None
    kept = (found >= ordered[last]).nonzero()[0]
    if kept.size > last + 1:
        return None
    sums = found.take(kept).cumsum(dtype=np.float64)
    index = int(sums.searchsorted(number * float(sums[-1]), side="right"))
    return int(candidates[kept[index]]) if index < kept.size else None
