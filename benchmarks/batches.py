"""`python -m benchmarks.batches`: what somebody who chats notices of a batch that runs meanwhile.

A server with the bundled model and a chat every second or so, streamed. Rounds alternate: without a batch, and with one
that has more lines than it can answer; so whatever else the machine does is in both. The time to the first token, the
time between tokens and the whole time, and what the batch got done beside them. Nothing else should run.
"""

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from openai import OpenAI

_LINES = 2000
_LINE_TOKENS = 32
_ANSWER_TOKENS = 48
_START_S = 120.0
_TARGET = 0.1  # by which a chat may be slower
_TOPICS = ("tea", "rain", "maps", "bread", "clocks", "rivers", "ships", "snow", "glass", "wool", "salt", "bees")


class Chat(NamedTuple):
    """In milliseconds."""

    first: float
    gap: float
    whole: float


@contextmanager
def serving() -> Iterator[OpenAI]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        sock.close()
        environment = {**os.environ, "PIE_DATA_DIR": folder}
        command = [sys.executable, "-m", "proxy_inference_engine", "serve", "--port", str(port)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield _client(f"http://127.0.0.1:{port}/v1")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _client(url: str) -> OpenAI:
    client, deadline = OpenAI(base_url=url, api_key="none", max_retries=0), time.monotonic() + _START_S
    while True:
        try:
            client.models.list()
            return client
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def chat(client: OpenAI, chance: random.Random) -> Chat:
    words = " ".join(chance.choice(_TOPICS) for _ in range(40))
    began = time.perf_counter()
    stream = client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": f"Write a story with these words: {words}"}],
        max_tokens=_ANSWER_TOKENS,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    times = [time.perf_counter() for chunk in stream if chunk.choices and chunk.choices[0].delta.content]
    gaps = [1000 * (later - earlier) for earlier, later in pairwise(times)]
    return Chat(1000 * (times[0] - began), statistics.mean(gaps), 1000 * (times[-1] - began))


def chats(client: OpenAI, count: int, chance: random.Random) -> list[Chat]:
    found = []
    for _ in range(count):
        time.sleep(chance.uniform(0.2, 1.2))
        found.append(chat(client, chance))
    return found


def begin_batch(client: OpenAI) -> str:
    body = {"model": "default", "max_tokens": _LINE_TOKENS, "ignore_eos": True}
    lines = [
        {
            "custom_id": f"l{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {**body, "messages": [{"role": "user", "content": f"Count from {number} on."}]},
        }
        for number in range(_LINES)
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("lines.jsonl", data), purpose="batch")
    made = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    while client.batches.retrieve(made.id).status == "validating":
        time.sleep(0.1)
    time.sleep(3.0)  # all its slots are taken
    return made.id


def end_batch(client: OpenAI, batch_id: str) -> int:
    """Lines that it answered."""
    client.batches.cancel(batch_id)
    while (made := client.batches.retrieve(batch_id)).status != "cancelled":
        time.sleep(0.1)
    return 0 if made.request_counts is None else made.request_counts.completed


def report(alone: list[Chat], beside: list[Chat], num_lines: int) -> str:
    ratios = {}
    rows = [f"| {len(alone)} chats each, median ms | alone | beside a batch | ratio |", "|---|---|---|---|"]
    for name in Chat._fields:
        medians = [statistics.median(getattr(one, name) for one in some) for some in (alone, beside)]
        ratios[name] = medians[1] / medians[0]
        rows.append(f"| {name} | {medians[0]:.1f} | {medians[1]:.1f} | {ratios[name]:.3f} |")
    slow = [name for name, ratio in ratios.items() if ratio > 1 + _TARGET]
    verdict = f"missed by {', '.join(slow)}" if slow else "held"
    lines = f"The batch answered {num_lines} lines of {_LINE_TOKENS} tokens beside them."
    return "\n".join([*rows, "", lines, f"No slower than {_TARGET:.0%} beside a batch: {verdict}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--chats", type=int, default=6, help="in each round, alone and beside a batch")
    wanted = parser.parse_args()
    chance = random.Random(1)
    alone: list[Chat] = []
    beside: list[Chat] = []
    num_lines = 0
    with serving() as client:
        chats(client, 3, chance)
        for _ in range(wanted.rounds):
            alone += chats(client, wanted.chats, chance)
            batch_id = begin_batch(client)
            beside += chats(client, wanted.chats, chance)
            num_lines += end_batch(client, batch_id)
    print(report(alone, beside, num_lines))


if __name__ == "__main__":
    main()
