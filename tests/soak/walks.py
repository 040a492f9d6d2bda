"""Random walks under the grammars of random schemas: whatever comes out, the schema's validator takes it too."""

import random

from tests.soak.outcome import Outcome, scaled
from tests.unit.state_machine.json_schema.acceptance import byte_tokenizer
from tests.unit.state_machine.json_schema.walks import prove

_NUM_WALKS = 100_000
_FIRST_SEED = 1_000_000  # others than those of the unit tests


def run(scale: float) -> Outcome:
    tokenizer = byte_tokenizer()
    most, num_walks, seed = scaled(_NUM_WALKS, scale), 0, _FIRST_SEED
    wrong: list[str] = []
    while num_walks < most:
        proof = prove(random.Random(seed), tokenizer)
        wrong += [f"seed {seed}: {reason[:600]}" for reason in proof.wrong]
        num_walks, seed = num_walks + proof.num_walks, seed + 1
    return Outcome(num_walks, wrong)
