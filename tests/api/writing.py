"""A fake model that writes what a test wrote down, also at the end of the very long prompts of agents."""

import json
from collections.abc import Sequence

import numpy as np

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.base import Lane, Logits, Row
from proxy_inference_engine.runners.fake import TURN_END, TURN_START, FakeRunner

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# Opens the block in the prompt unless told not to think, and reads how hard to think.
OPENING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if reasoning_effort %}<|im_start|>effort {{ reasoning_effort }}<|im_end|>\n{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
    "{% endif %}"
)
_TURN = [TURN_START, *b"assistant\n"]


class Writer(FakeRunner):
    """Writes the first of its texts in the first turn of the assistant, the second in the second, and so on.

    `prompts` is what stood before each answer.
    """

    def __init__(self, texts: Sequence[str], *, family: str = "qwen3", max_tokens: int = 16384) -> None:
        super().__init__(chat_template=by_name(family).template, defined_tokens=MARKERS, lanes=(Lane(2, max_tokens),))
        self._texts = [[*self._ids(text), TURN_END] for text in texts]
        self._silence = self._ids("<think>\n\n</think>\n\n")
        self.prompts: list[str] = []
        self._turns: dict[tuple[int, int], int] = {}

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        outputs = super().forward(rows)
        for row, logits in zip(rows, outputs, strict=True):
            ids = self._slots[row.slot].ids
            for place in range(row.num_logits):
                wanted = self._next(row.slot, ids, len(ids) - row.num_logits + place + 1)
                if wanted is not None:
                    logits[place] = np.float32(-50)
                    logits[place, wanted] = 50
        return outputs

    def _ids(self, text: str) -> list[int]:
        for marker in MARKERS:
            before, found, after = text.partition(marker)
            if found:
                return [*self._ids(before), self.tokenizer.specials[marker], *self._ids(after)]
        return self.tokenizer.encode(text)

    def _next(self, slot: int, ids: list[int], end: int) -> int | None:
        start = next((at for at in range(end - 1, -1, -1) if ids[at] == TURN_START), 0)
        if ids[start : start + len(_TURN)] != _TURN:
            return None
        turn = self._turn(slot, ids, start)
        if turn >= len(self._texts):
            return None
        written, text = ids[start + len(_TURN) : end], self._texts[turn]
        if written[: len(self._silence)] == self._silence:
            written = written[len(self._silence) :]
        return text[len(written)] if text[: len(written)] == written and len(written) < len(text) else None

    def _turn(self, slot: int, ids: list[int], start: int) -> int:
        """How many turns of the assistant come before this one. Counted once for each answer: prompts are long."""
        width = len(_TURN)
        if (slot, start) not in self._turns:
            openings = (at for at in range(start) if ids[at] == TURN_START and ids[at : at + width] == _TURN)
            self._turns = {(slot, start): sum(1 for _ in openings)}
            self.prompts.append(b"".join(map(self.tokenizer.token_bytes, ids[:start])).decode())
        return self._turns[slot, start]


def call(name: str, **arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
