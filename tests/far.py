"""A far engine for tests: a little HTTP server that speaks as vLLM does, and writes what the fake model writes.

It shares no object with the server that asks it: it walks the grammar, which it gets as text, with a matcher of its
own. It notes what it was asked, and misbehaves as it is told.
"""

import base64
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import llguidance
import numpy as np
from llguidance.gbnf_to_lark import any_to_lark
from numpy.typing import NDArray
from PIL import Image as Pillow

from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.far.connections import FarAddress
from proxy_inference_engine.far.engines import FarEngine
from proxy_inference_engine.far.images import FarImageEncoder
from proxy_inference_engine.far.model import FarLimits, FarModel, FarWords
from proxy_inference_engine.far.monitor import Monitor
from proxy_inference_engine.runners.base import Lane, Logits, Row
from proxy_inference_engine.runners.fake import ByteTokenizer, FakeImageEncoder, FakeRunner
from proxy_inference_engine.sampling.sampler import Sampler
from proxy_inference_engine.types import Sampling
from tests.polling import HANG_S

CONTEXT = 4096
PATIENCE_S = 10.0
NAME = "there"  # what the far side calls the model
IMAGE_ID = 260  # the fake model's marker of an image
NUM_CACHED = 3  # tokens of every prompt that it says it knew
GENERATE, COMPLETIONS, EMBEDDINGS = "/inference/v1/generate", "/v1/completions", "/v1/embeddings"
_HONOURED = (
    *("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty"),
    "presence_penalty",
)

Json = dict[str, Any]


class _Spelling:
    """What llguidance asks of a tokenizer: here a token is a byte, or one of four that are no text."""

    def __init__(self, tokenizer: ByteTokenizer) -> None:
        self.eos_token_id = min(tokenizer.end_ids)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(id_) for id_ in range(tokenizer.num_tokens)]
        self.special_token_ids = sorted(tokenizer.control_ids | set(tokenizer.specials.values()))

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


class _Choice:
    """One answer being written, token by token."""

    def __init__(self, request_id: str, ids: list[int], params: Json, runner: FakeRunner) -> None:
        self._runner = runner
        self._ids = list(ids)
        self._num_prompt = len(ids)
        self._params = params
        # A near model draws by seed and choice; here each choice is a request with a seed of its own.
        number = int(request_id.rpartition("-")[2])
        bias = {int(token_id): weight for token_id, weight in params.get("logit_bias", {}).items()}
        given = {name: params[name] for name in _HONOURED}
        sampling = Sampling(seed=params.get("seed", number) - number, logit_bias=bias, **given)
        num_tokens = self._runner.tokenizer.num_tokens
        self._sampler = Sampler(sampling, choice=number, prompt_ids=self._ids, num_tokens=num_tokens)
        self._matcher: llguidance.LLMatcher | None = None
        if "structured_outputs" in params:
            spelling = llguidance.TokenizerWrapper(_Spelling(self._runner.tokenizer))
            tokenizer = llguidance.LLTokenizer(spelling, eos_token=sorted(self._runner.tokenizer.end_ids))
            lark = any_to_lark(params["structured_outputs"]["grammar"])
            grammar = llguidance.LLMatcher.grammar_from_lark(lark)
            self._matcher = llguidance.LLMatcher(tokenizer, grammar)

    def tokens(self) -> Iterator[Json]:
        """Each with its log-probability, the last with why it ended."""
        logits = self._compute(self._ids)
        reason = None
        while reason is None:
            token_id = self._sampler.sample(logits, len(self._ids), self._banned, self._allowed())
            self._ids = [*self._ids, token_id]
            if token_id in self._ends:
                reason = "stop"
            elif len(self._ids) - self._num_prompt >= self._params["max_tokens"]:
                reason = "length"
            yield {"token_ids": [token_id], "finish_reason": reason, "logprobs": self._logprobs(logits, token_id)}
            self._sampler.accept(token_id)
            if self._matcher is not None and reason is None:
                assert self._matcher.consume_token(token_id), self._matcher.get_error()
            logits = self._compute([token_id])

    def scores(self, num_top: int) -> list[Json | None]:
        """Of every token of the prompt but the first, with the likeliest others."""
        found: list[Json | None] = [None]
        for place, token_id in enumerate(self._ids[1:], 1):
            row = Row(0, place - 1, np.array(self._ids[place - 1 : place], np.int32), 1)
            logprobs = _log_softmax(self._runner.forward([row])[0][-1])
            best = [token_id, *map(int, np.argsort(-logprobs, kind="stable")[:num_top])]
            found.append({str(each): {"logprob": float(logprobs[each])} for each in best})
        self._runner.release(0)
        return found

    @property
    def _ends(self) -> set[int]:
        own = set() if self._params["ignore_eos"] else set(self._runner.tokenizer.end_ids)
        return own | set(self._params["stop_token_ids"])

    @property
    def _banned(self) -> set[int]:
        return self._ends if len(self._ids) - self._num_prompt < self._params["min_tokens"] else set()

    def _allowed(self) -> NDArray[np.bool_] | None:
        if self._matcher is None:
            return None
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, count=self._runner.tokenizer.num_tokens, bitorder="little").view(np.bool_)

    def _logprobs(self, logits: Logits, token_id: int) -> Json | None:
        num_top = self._params.get("logprobs")
        if num_top is None:
            return None
        scores = _log_softmax(logits)
        best = [token_id, *(int(each) for each in np.argsort(-scores, kind="stable") if each != token_id)]
        top = [{"token_id": each, "logprob": float(scores[each])} for each in best[: max(num_top, 1)]]
        return {"content": [{**top[0], "top_logprobs": top}]}

    def _compute(self, ids: Sequence[int]) -> Logits:
        start, batch = len(self._ids) - len(ids), self._runner.max_batch_tokens
        for first in range(0, len(ids), batch):
            row = Row(0, start + first, np.array(ids[first : first + batch], np.int32), 1)
            (logits,) = self._runner.forward([row])
        last: Logits = logits[-1]
        return last


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    scores = logits.astype(np.float64)
    found: NDArray[np.float64] = scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())
    return found


def prompt_ids(asked: Json) -> list[int]:
    """With as many tokens for each image as the fake model has, where the prompt has its marker."""
    ids: list[int] = asked.get("token_ids") or asked["prompt"]
    sizes = iter([image.size for image in images_of(asked)])
    encoder = FakeImageEncoder()
    expanded: list[int] = []
    for token_id in ids:
        is_marker = token_id == IMAGE_ID and "content_parts" in asked
        expanded += [token_id] * (encoder.tokens(*next(sizes)).num_tokens if is_marker else 1)
    assert next(sizes, None) is None, "an image without a place in the prompt"
    return expanded


def images_of(asked: Json) -> list[Pillow.Image]:
    """The images of a request as they came."""
    parts = asked.get("content_parts", ())
    assert all(part["type"] == "image_url" for part in parts)
    files = (base64.b64decode(part["url"].removeprefix("data:image/png;base64,"), validate=True) for part in parts)
    return [Pillow.open(BytesIO(file)) for file in files]


class FarSide(ThreadingHTTPServer):
    """`port` 0: any that is free."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, end_bias: float = 0.0, port: int = 0, defined_tokens: Sequence[str] = ()) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.end_bias = end_bias
        self.defined_tokens = tuple(defined_tokens)
        self.has_generate = True  # False: only completions, as a vLLM that was not told to scale out
        self.status = 200  # of every answer
        self.fails: Json | None = None  # the error that a stream has in place of tokens
        self.breaks_after: int | None = None  # tokens; then the connection breaks
        self.ends_after: int | None = None  # tokens; then the answer is over, without a reason
        self.holds_after: int | None = None  # tokens; then nothing comes until the client leaves
        self.pauses_after: int | None = None  # tokens; the rest comes when the test lets go
        self.num_miscounted = 0  # tokens of every prompt that nobody else finds there
        self.num_missing = 0  # vectors of every answer
        self.holds_embeddings = False  # nothing comes until the client leaves
        self.num_embedded = 0  # requests
        self.key: str | None = None
        self.asked: list[Json] = []
        self.num_running = self.num_paused = 0
        self.num_connections = 0
        self.is_holding = threading.Event()
        self.has_left = threading.Event()
        self.is_released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def tokens(self, asked: Json) -> Iterator[Json]:
        self.asked.append(asked)
        params = asked.get("sampling_params", asked)
        return _Choice(asked["request_id"], prompt_ids(asked), params, self._runner()).tokens()

    def _runner(self) -> FakeRunner:
        return FakeRunner(lanes=[Lane(1, CONTEXT)], end_bias=self.end_bias, defined_tokens=self.defined_tokens)

    def whole(self, asked: Json) -> Json:
        """With the scores of the prompt, as they do not come in a stream."""
        self.asked.append(asked)
        ids, params = prompt_ids(asked), asked.get("sampling_params", asked)
        choice = _Choice(asked["request_id"], ids, params, self._runner())
        scores = choice.scores(params["prompt_logprobs"])
        tokens = list(choice.tokens())
        content = [each for token in tokens for each in (token["logprobs"] or {"content": ()})["content"]]
        written = {
            "token_ids": [each for token in tokens for each in token["token_ids"]],
            "finish_reason": tokens[-1]["finish_reason"],
            "logprobs": {"content": content},
        }
        return {"choices": [written], "prompt_logprobs": scores, "usage": {}}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.num_connections += 1
        super().finish_request(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FarSide

    def do_GET(self) -> None:
        match self.path:
            case "/health":
                self._answer(self.server.status, {})
            case "/version":
                self._answer(200, {"version": "0.0"})
            case "/metrics":
                gauge = f'vllm:num_requests_running{{engine="0"}} {self.server.num_running}\n'
                self._send(200, gauge.encode())
            case "/v1/models" if self.server.key is not None and self._key != self.server.key:
                self._answer(401, {"error": "Unauthorized"})
            case "/v1/models":
                self._answer(200, {"data": [{"id": NAME, "max_model_len": CONTEXT}]})
            case "/v1/completions" | "/v1/embeddings":
                self._answer(405, {"detail": "Method Not Allowed"})
            case _:
                self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == GENERATE and not self.server.has_generate:
            self._answer(403, {"error": {"message": "Scale-out endpoints are disabled.", "code": 403}})
        elif self.server.status != 200:
            self._answer(self.server.status, {"error": {"message": "told to fail", "code": self.server.status}})
        elif self.path == EMBEDDINGS:
            self._embed(asked)
        elif self.path in (GENERATE, COMPLETIONS) and asked and not asked["stream"]:
            self._answer(200, self.server.whole(asked))
        elif self.path in (GENERATE, COMPLETIONS) and asked:
            self._stream(asked)
        else:
            self._answer(400, {"error": {"message": "nothing was asked", "code": 400}})

    @property
    def _key(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def _answer(self, status: int, value: Json) -> None:
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _embed(self, asked: Json) -> None:
        self.server.num_embedded += 1
        if self.server.holds_embeddings:
            return self._hold()
        vectors = [np.array([len(ids), sum(ids), 1, 0], np.float32) for ids in asked["input"]]
        written = [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
        data = [{"index": number, "embedding": text} for number, text in reversed(list(enumerate(written)))]
        del data[: self.server.num_missing]
        self._answer(200, {"data": data})

    def _stream(self, asked: Json) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.server.num_running += 1
        try:
            self._write_all(asked)
        except OSError:
            self.close_connection = True
            self.server.has_left.set()
        finally:
            self.server.num_running -= 1

    def _write_all(self, asked: Json) -> None:
        server = self.server
        if server.fails is not None:
            self._event({"error": server.fails})
        else:
            for number, token in enumerate(server.tokens(asked)):
                if number == server.breaks_after:
                    self.close_connection = True
                    return
                if number == server.ends_after:
                    break
                if number == server.holds_after:
                    return self._hold()
                if number == server.pauses_after:
                    server.num_paused += 1
                    server.is_released.wait(HANG_S)
                self._event({"choices": [{"index": 0, "text": "", **token}]})
            num_tokens = len(prompt_ids(asked)) + server.num_miscounted
            usage = {"prompt_tokens": num_tokens, "prompt_tokens_details": {"cached_tokens": NUM_CACHED}}
            self._event({"choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, value: Json) -> None:
        self._chunk(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _hold(self) -> None:
        """Until the client closes the connection, or the test lets go."""
        self.close_connection = True
        self.server.is_holding.set()
        self.connection.settimeout(0.02)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not self.server.is_released.is_set():
            try:
                if self.connection.recv(1) == b"":
                    self.server.has_left.set()
                    return
            except TimeoutError:
                continue

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def far_side(end_bias: float = 0.0, port: int = 0, defined_tokens: Sequence[str] = ()) -> Iterator[FarSide]:
    with FarSide(end_bias, port, defined_tokens) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.is_released.set()
            server.shutdown()
            thread.join(PATIENCE_S)


@contextmanager
def far_model(
    *urls: str,
    key: str | None = None,
    silence_s: float = PATIENCE_S,
    interval_s: float = 0.05,
    like: FakeRunner | None = None,
    image_encoder: FarImageEncoder | None = None,
) -> Iterator[FarModel]:
    """A model that engines at these addresses compute, with the words of the fake one."""
    like = like or FakeRunner(lanes=[Lane(1, CONTEXT)])
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    engines = [FarEngine(FarAddress.parse(url), headers) for url in urls]
    monitor = Monitor(engines, None, interval_s=interval_s)
    words = FarWords(like.tokenizer, like.info._replace(name="far"), like.embedder.info, image_encoder)
    model = FarModel(words, engines, monitor, Admission(), FarLimits(None, 64, silence_s))
    monitor.start()
    try:
        yield model
    finally:
        model.stop()
