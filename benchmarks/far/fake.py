"""A far engine that computes nothing: vLLM's wire, and tokens at a steady pace.

    python -m benchmarks.far.fake --port 9000 --gap-ms 25 --model name --ids 300 2300

Every stream gets one token a step, all streams in the same moment, as an engine that batches them writes. Gap 0: as
fast as the reader takes them. Says "ready" on a line when it listens.
"""

import argparse
import asyncio
import json
from typing import Any

import httptools
import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b'data: {"request_id":"x","usage":%s,"output_mode":"tokens","choices":[]}\n\ndata: [DONE]\n\n'
_CHUNK = (
    '{"request_id":"generate-tokens-%s","usage":null,"output_mode":"tokens","choices":[{"index":0,"finish_reason":%s,'
    '"stop_reason":null,"token_ids":[%d],"routed_experts":null,"sampling_mask":null,"weight_versions":null,'
    '"logprobs":null}]}'
)
_HIGH_WATER = 1 << 16


class FakeEngine:
    """Streams, and the clock that they all hear."""

    def __init__(self, model: str, gap_s: float, ids: range) -> None:
        self.model = model
        self.gap_s = gap_s
        self.ids = ids
        self.streams: set[Stream] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self.gap_s, loop.time())
            await asyncio.sleep(max(0.0, due - loop.time()))
            for stream in list(self.streams):
                stream.write_one()


class Stream(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._body = b""
        self._url = b""
        self._id = ""
        self._num_left = self._num_written = self._num_prompt = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.streams.discard(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url, self._body = url, b""

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        path, method = self._url.decode(), self._parser.get_method()
        if path == "/inference/v1/generate" and self._body != b"{}":
            self._begin(json.loads(self._body))
        elif path == "/inference/v1/generate":
            self._answer(400, {"error": {"message": "empty", "code": 400}})
        elif path == "/v1/models":
            self._answer(200, {"data": [{"id": self._engine.model, "max_model_len": 8192}]})
        elif path == "/version":
            self._answer(200, {"version": "fake"})
        elif path == "/v1/completions" and method == b"GET":
            self._answer(405, {})
        else:
            self._answer(200 if path in ("/health", "/metrics") else 404, {})

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self._transport.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))

    def _begin(self, asked: dict[str, Any]) -> None:
        self._id, self._num_prompt = asked["request_id"], len(asked["token_ids"])
        self._num_left, self._num_written = asked["sampling_params"]["max_tokens"], 0
        self._transport.write(_HEAD)
        self._engine.streams.add(self)

    def write_one(self) -> None:
        """The next token, unless the reader is behind and there is no pace to keep."""
        if not self._engine.gap_s and self._transport.get_write_buffer_size() > _HIGH_WATER:
            return
        ids = self._engine.ids
        token_id = ids[self._num_written % len(ids)]
        self._num_written += 1
        self._num_left -= 1
        reason = "null" if self._num_left else '"length"'
        self._write(b"data: %s\n\n" % (_CHUNK % (self._id, reason, token_id)).encode())
        if not self._num_left:
            usage = {"prompt_tokens": self._num_prompt, "completion_tokens": self._num_written}
            self._write(_END % json.dumps(usage).encode())
            self._transport.write(b"0\r\n\r\n")
            self._engine.streams.discard(self)

    def _write(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))


async def main() -> None:
    parser = argparse.ArgumentParser(description="vLLM's wire without a model.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--gap-ms", type=float, default=25.0)
    parser.add_argument("--model", default="fake")
    parser.add_argument("--ids", type=int, nargs=2, default=(300, 2300), help="the token ids that are written, in turn")
    options = parser.parse_args()
    engine = FakeEngine(options.model, options.gap_ms / 1000, range(*options.ids))
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Stream(engine), "127.0.0.1", options.port, backlog=4096)
    print("ready", flush=True)
    await engine.run()


if __name__ == "__main__":
    uvloop.run(main())
