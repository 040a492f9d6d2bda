"""What Python runs first in a vLLM of our tests that takes images.

Its processors need torchvision, whose compiled half wants CUDA. Without that half its first import stops, because two
operators are missing that no processor uses: here they are by name.
"""

import torch  # type: ignore[import-not-found]

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(name + _BOXES)
