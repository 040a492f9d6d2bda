"""A ratchet over a sample of schemas in the wild, which is not in the repository: PIE_SCHEMA_SAMPLE names its file.

Each line is an object with a name, a schema, and tests of instances with their validity.
"""

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.unit.state_machine.json_schema.acceptance import Outcome, byte_tokenizer, evaluate

SAMPLE = os.environ.get("PIE_SCHEMA_SAMPLE", "")
MIN_SHARE = 0.97
# The most of each that has been reached; lower them when they improve.
WORST: dict[Outcome, int] = {"refused": 4, "compile error": 2, "wrong rejection": 12, "wrong acceptance": 0}


def lines(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.skipif(not SAMPLE, reason="PIE_SCHEMA_SAMPLE names no sample of schemas")
def test_sample() -> None:
    tokenizer = byte_tokenizer()
    sample = lines(Path(SAMPLE))
    results = {line["name"]: evaluate(line, tokenizer) for line in sample}
    counts = Counter(result.outcome for result in results.values())
    failures = "\n".join(f"{name}: {one.outcome}: {one.cause[:120]}" for name, one in results.items() if one.cause)
    assert counts["wrong acceptance"] == 0, failures
    assert counts["passed"] >= MIN_SHARE * len(sample), failures
    assert all(counts[outcome] <= most for outcome, most in WORST.items()), (counts, failures)
