"""Responses over a WebSocket: OpenAI's own client, and what no client of theirs would send."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from proxy_inference_engine.config import ApiKey, Config, load_config
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.apis.responses import websocket as session
from proxy_inference_engine.server.http import websocket as protocol
from proxy_inference_engine.server.http.sse import Patience
from tests.api.clients import TYPESCRIPT, run
from tests.api.running import MODEL, Running, on_every_runner, running
from tests.api.writing import Writer, call
from tests.polling import HANG_S, wait_until

CREATE: dict[str, Any] = {"type": "response.create", "model": MODEL, "store": False, "max_output_tokens": 8}
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
TOOL = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}


@contextmanager
def opened(live: Running, **headers: str) -> Iterator[Connection]:
    url = live.url.replace("http", "ws") + "/v1/responses"
    with connect(url, additional_headers=headers, max_size=None, compression=None) as line:
        yield line


@pytest.fixture
def line(server: Running) -> Iterator[Connection]:
    with opened(server) as line:
        yield line


def say(line: Connection, **fields: Any) -> None:
    line.send(json.dumps({**CREATE, **fields}))


def heard(line: Connection) -> list[dict[str, Any]]:
    """Until a response ends."""
    events = []
    while True:
        events.append(json.loads(line.recv(timeout=HANG_S)))
        if events[-1]["type"] in ENDS:
            return events


def ask(line: Connection, **fields: Any) -> dict[str, Any]:
    say(line, **fields)
    return heard(line)[-1]


@on_every_runner
def test_through_the_client(server: Running) -> None:
    with server.openai() as client, client.responses.connect() as connection:
        previous: dict[str, Any] = {}
        for text in ("Hello", "And now?"):
            connection.response.create(model=MODEL, input=text, max_output_tokens=8, store=False, **previous)
            events = []
            for event in connection:
                events.append(event)
                if event.type in ENDS:
                    break
            last: Any = events[-1]
            assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
            assert last.response.usage.output_tokens == 8
            assert [event.sequence_number for event in events] == list(range(len(events)))
            previous = {"previous_response_id": last.response.id}
        assert last.response.previous_response_id == events[0].response.previous_response_id  # type: ignore[union-attr]


async def test_through_the_client_that_does_not_wait(server: Running) -> None:
    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none")
    async with client, client.responses.connect() as connection:
        await connection.response.create(model=MODEL, input="Hello", max_output_tokens=4)
        async for event in connection:
            if event.type in ENDS:
                break
        assert event.type == "response.incomplete"


TYPESCRIPT_LOOP = """
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";
const client = new OpenAI({ baseURL: process.env.URL + "/v1", apiKey: "none" });
const socket = new ResponsesWS(client);
const turn = { type: "response.create", model: "default", store: false, tools: [JSON.parse(process.env.TOOL)] };
const ask = (fields) => new Promise((resolve, reject) => {
  const hear = (event) => {
    if (event.type !== "response.completed") return;
    socket.off("event", hear);
    resolve(event.response);
  };
  socket.on("event", hear);
  socket.on("error", reject);
  socket.send({ ...turn, ...fields });
});
const first = await ask({ input: "Look." });
const { call_id } = first.output.find((item) => item.type === "function_call");
const input = [{ type: "function_call_output", call_id, output: "nothing" }];
const second = await ask({ input, previous_response_id: first.id });
console.log(second.output[0].content[0].text);
socket.close();
"""


def test_through_the_client_in_typescript(tmp_path: Path) -> None:
    with running(writer := Writer((call("look", path="a"), "Empty."))) as live:
        words = ["node", "--input-type=module", "--eval", TYPESCRIPT_LOOP]
        variables = {"URL": live.url, "TOOL": json.dumps(TOOL)}
        assert run(words, TYPESCRIPT.folder(), tmp_path, variables).strip() == "Empty."
        assert writer.prompts[1].startswith(writer.prompts[0]) and "nothing" in writer.prompts[1]
        live.wait_idle()


def test_the_events_are_those_of_the_stream(line: Connection, server: Running) -> None:
    fields = {"input": "Hello", "temperature": 0}
    say(line, **fields)
    events = heard(line)
    with server.http() as http:
        body = {**CREATE, **fields, "stream": True}
        body.pop("type")
        text = http.post("/v1/responses", json=body).text
    frames = [json.loads(each.removeprefix("data: ")) for each in text.splitlines() if each.startswith("data: {")]
    assert [(event["type"], event.get("delta")) for event in events] == [
        (frame["type"], frame.get("delta")) for frame in frames
    ]
    assert events[-1]["response"].keys() == frames[-1]["response"].keys()


def test_going_on_needs_only_what_is_new() -> None:
    with running(writer := Writer(("One.", "Two.", "Three."))) as live, opened(live) as line:
        first = ask(line, input="Say one.", max_output_tokens=100)["response"]
        second = ask(line, input="And two.", previous_response_id=first["id"], max_output_tokens=100)["response"]
        assert "Say one." in writer.prompts[1] and "One." in writer.prompts[1]
        assert second["usage"]["input_tokens_details"]["cached_tokens"] > len("Say one.")
        # Nobody stored it: nobody else knows it, and nor does this socket once another has come.
        with live.http() as http:
            assert http.get(f"/v1/responses/{first['id']}").status_code == 404
        assert ask(line, input="x", previous_response_id=first["id"])["error"]["code"] == "previous_response_not_found"
        third = ask(line, input="And three.", previous_response_id=second["id"], max_output_tokens=100)["response"]
        assert third["output"][0]["content"][0]["text"] == "Three."
        live.wait_idle()


def test_what_is_stored_can_be_gone_on_from_anywhere() -> None:
    with running(writer := Writer(("One.", "Two.", "Three."))) as live, live.http() as http:
        with opened(live) as line:
            first = ask(line, input="Say one.", max_output_tokens=100)["response"]
            kept = {"previous_response_id": first["id"], "store": True, "max_output_tokens": 100}
            second = ask(line, input="And two.", **kept)["response"]
        stored = http.get(f"/v1/responses/{second['id']}").json()
        assert stored["output"] == second["output"]
        items = http.get(f"/v1/responses/{second['id']}/input_items").json()["data"]
        assert [item["content"][0]["text"] for item in items] == ["And two."]
        body = {"model": MODEL, "input": "And three.", "previous_response_id": second["id"]}
        assert http.post("/v1/responses", json=body).json()["output"][0]["content"][0]["text"] == "Three."
        assert all(text in writer.prompts[2] for text in ("Say one.", "One.", "And two.", "Two."))
        live.wait_idle()


def test_a_turn_that_fails_is_forgotten_with_what_it_built_on(line: Connection) -> None:
    first = ask(line, input="Hello")["response"]
    wrong = [{"type": "function_call_output", "call_id": "call_nobody", "output": "x"}]
    failed = ask(line, input=wrong, previous_response_id=first["id"])
    assert failed["status"] == 400 and "call_id" in failed["error"]["param"]
    assert ask(line, input="x", previous_response_id=first["id"])["error"]["code"] == "previous_response_not_found"
    assert ask(line, input="Hello")["type"] == "response.incomplete"


def test_another_socket_remembers_nothing(server: Running) -> None:
    with opened(server) as line:
        first = ask(line, input="Hello")["response"]
    with opened(server) as line:
        failed = ask(line, input="x", previous_response_id=first["id"])
        assert failed["type"] == "error" and failed["status"] == 404
        assert failed["error"]["code"] == "previous_response_not_found"
        assert ask(line, input="Hello again")["type"] == "response.incomplete"


def test_the_loop_of_a_tool() -> None:
    with running(Writer((call("look", path="a"), "Empty."))) as live, opened(live) as line:
        first = ask(line, input="Look.", tools=[TOOL], max_output_tokens=200)["response"]
        (called,) = first["output"]
        output = {"type": "function_call_output", "call_id": called["call_id"], "output": "nothing"}
        more = {"previous_response_id": first["id"], "tools": [TOOL], "max_output_tokens": 200}
        assert ask(line, input=[output], **more)["response"]["output"][0]["content"][0]["text"] == "Empty."
        live.wait_idle()


def test_a_prompt_can_be_made_ready(line: Connection) -> None:
    told = "You are kind. " * 20
    warm = ask(line, instructions=told, input=[], tools=[TOOL], generate=False)
    response = warm["response"]
    assert warm["type"] == "response.completed" and response["output"] == []
    assert response["usage"]["output_tokens"] == 0 and response["usage"]["input_tokens"] > len(told)
    more = {"instructions": told, "tools": [TOOL], "previous_response_id": response["id"]}
    answered = ask(line, input="Hello", **more)["response"]
    assert answered["usage"]["input_tokens_details"]["cached_tokens"] > len(told)


def test_lanes() -> None:
    """Beside each other, and on each of them one turn after the other."""
    gate = threading.Event()

    def wait(_rows: object) -> None:
        gate.wait()

    with running(FakeRunner(on_forward=wait)) as live, opened(live) as line:
        for lane in ("a", "b", "a"):
            say(line, input=f"Hello {lane}", stream_id=lane)
        events: list[dict[str, Any]] = []
        while {event["stream_id"] for event in events} < {"a", "b"}:
            events.append(json.loads(line.recv(timeout=HANG_S)))
        gate.set()
        while sum(event["type"] in ENDS for event in events) < 3:
            events.append(json.loads(line.recv(timeout=HANG_S)))
        on_a = [event["type"] for event in events if event["stream_id"] == "a"]
        assert on_a.count("response.created") == 2
        assert on_a.index("response.incomplete") < on_a.index("response.created", 1)
        assert all("stream_id" not in event["response"] for event in events if "response" in event)
        live.wait_idle()


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("no json", "invalid_json", None),
        ("[]", None, None),
        ('{"type": "response.cancel"}', None, "type"),
        (json.dumps({**CREATE, "background": True}), "unsupported_parameter", "background"),
        (json.dumps({**CREATE, "nothing": 1}), "unknown_parameter", "nothing"),
        (json.dumps({**CREATE, "model": "other"}), "model_not_found", "model"),
        (json.dumps({**CREATE, "input": 1}), None, "input"),
    ],
)
def test_what_is_wrong_is_told_and_the_socket_stays(
    line: Connection, message: str, code: str | None, param: str | None
) -> None:
    line.send(message)
    (event,) = heard(line)
    assert event["type"] == "error" and 400 <= event["status"] < 500
    assert (event["error"]["code"], event["error"]["param"]) == (code, param)
    assert ask(line, input="Hello")["type"] == "response.incomplete"


def test_fields_of_http_do_no_harm(line: Connection) -> None:
    assert ask(line, input="Hello", stream=True, background=False)["type"] == "response.incomplete"
    line.send(json.dumps({**CREATE, "input": "Hello"}).encode())
    assert heard(line)[-1]["type"] == "response.incomplete"


def test_what_headers_would_say_is_in_the_first_event(line: Connection) -> None:
    say(line, input="Hello", tools=[{"type": "web_search"}])
    first, second, *_ = heard(line)
    assert first["headers"] == {"x-pie-ignored": "tools[0]:web_search"} and "headers" not in second


def test_steering_is_refused_by_name(line: Connection) -> None:
    line.send(json.dumps({"type": "response.steer", "previous_response_id": "resp_1", "input": "Left!"}))
    event = json.loads(line.recv(timeout=HANG_S))
    assert event["type"] == "response.steer.failed" and event["error"]["code"] == "steering_not_supported"
    assert event["steer"] == {"previous_response_id": "resp_1", "input": "Left!"}


def test_a_full_queue() -> None:
    with running(admission=Admission(max_waiting=-1000)) as live, opened(live) as line:
        event = ask(line, input="Hello")
        assert event["status"] == 429 and event["error"]["headers"]["retry-after"] == "2"


KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "invalid_api_key"),
        ({"authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        ({"authorization": "Bearer key-of-anna", "origin": "http://evil.example"}, 403, "origin_not_allowed"),
        ({"authorization": "Bearer key-of-anna", "sec-fetch-site": "cross-site"}, 403, "origin_not_allowed"),
    ],
)
def test_who_may_not_come_in(headers: dict[str, str], status: int, code: str) -> None:
    with running(config=Config(drain_seconds=0.2, api_keys=KEYS)) as live:
        with pytest.raises(InvalidStatus) as refused, opened(live, **headers):
            pass
        response = refused.value.response
        assert response.status_code == status and json.loads(response.body or b"")["error"]["code"] == code
        assert response.headers["x-request-id"].startswith("req-")


def test_a_key_has_its_own_responses() -> None:
    with running(config=Config(drain_seconds=0.2, api_keys=KEYS)) as live:
        with opened(live, authorization="Bearer key-of-anna") as line:
            first = ask(line, input="Hello", store=True)["response"]
            assert ask(line, input="More", previous_response_id=first["id"])["type"] == "response.incomplete"
        with opened(live, authorization="Bearer key-of-ben") as line:
            failed = ask(line, input="More", previous_response_id=first["id"])
            assert failed["error"]["code"] == "previous_response_not_found"


def test_other_paths_take_no_sockets(server: Running) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(server.url.replace("http", "ws") + "/v1/chat/completions"):
        pass
    assert refused.value.response.status_code == 400


def test_who_leaves_is_not_computed_for() -> None:
    with running(FakeRunner(step_seconds=lambda _: 0.01)) as live:
        with opened(live) as line:
            say(line, input="Hello", max_output_tokens=5000, ignore_eos=True)
            while json.loads(line.recv(timeout=HANG_S))["type"] != "response.output_text.delta":
                pass
        live.wait_idle()


def test_who_does_not_read_is_dropped() -> None:
    much = {"max_output_tokens": 8000, "ignore_eos": True, "top_logprobs": 20}
    with running(patience=Patience(stall_s=0.3)) as live:
        with raw_line(live, num_buffered=4096) as raw:
            raw.sendall(_frame(json.dumps({**CREATE, "input": "Hi", **much}).encode()))
            wait_until(lambda: live.stats.num_running)
            wait_until(lambda: not live.server.server_state.connections)
        live.wait_idle()


def _handshake(headers: Mapping[str, str]) -> bytes:
    lines = ["GET /v1/responses HTTP/1.1", "host: localhost", "connection: upgrade", "upgrade: websocket"]
    lines += ["sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=="]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _frame(data: bytes, *, is_last: bool = True, opcode: int = 1) -> bytes:
    head = bytes([(0x80 if is_last else 0) | opcode])
    size = bytes([0x80 | 127]) + len(data).to_bytes(8, "big")
    return head + size + bytes(4) + data  # a mask of zeros changes nothing


def _closed(raw: socket.socket) -> int:
    """The code with which the server closes."""
    raw.settimeout(HANG_S)
    data = b""
    while chunk := raw.recv(65536):
        data += chunk
    assert data[0] == 0x88, data
    return int.from_bytes(data[2:4], "big")


@contextmanager
def raw_line(
    live: Running, *, num_buffered: int = 1 << 16, headers: Mapping[str, str] | None = None
) -> Iterator[socket.socket]:
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, num_buffered)
        raw.connect(live.address)
        raw.sendall(_handshake(headers or {}))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += raw.recv(1)
        assert head.startswith(b"HTTP/1.1 101 ")
        yield raw


def test_a_message_may_be_as_large_as_a_body(server: Running) -> None:
    with raw_line(server) as raw:
        raw.sendall(b"\x81\xff" + (33 * 1024 * 1024).to_bytes(8, "big") + bytes(4))
        assert _closed(raw) == protocol.TOO_LARGE


def test_a_message_has_to_be_whole_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "RECEIVE_SECONDS", 0.1)
    with running() as live, raw_line(live) as raw:
        raw.sendall(_frame(b"x" * 100)[:50])
        assert _closed(raw) == protocol.POLICY


def test_a_message_is_not_a_thousand_splinters(server: Running) -> None:
    with raw_line(server) as raw:
        raw.sendall(_frame(b"{", is_last=False) + _frame(b" ", is_last=False, opcode=0) * (protocol.MAX_FRAGMENTS + 1))
        assert _closed(raw) == protocol.POLICY


def test_too_many_messages_at_once() -> None:
    with running(FakeRunner(step_seconds=lambda _: 0.01)) as live, opened(live) as line:
        for _ in range(session.MAX_WAITING + 2):
            say(line, input="Hello", max_output_tokens=4000, ignore_eos=True)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                line.recv(timeout=HANG_S)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == protocol.POLICY
        live.wait_idle()


def test_too_many_lanes() -> None:
    with running(FakeRunner(step_seconds=lambda _: 0.01)) as live, opened(live) as line:
        for lane in range(session.MAX_LANES + 1):
            say(line, input="Hello", stream_id=str(lane), max_output_tokens=4000, ignore_eos=True)
        while (event := json.loads(line.recv(timeout=HANG_S)))["type"] != "error":
            pass
        assert event["stream_id"] == str(session.MAX_LANES) and event["error"]["code"] == "queue_full"


def test_long_headers_are_fine(server: Running) -> None:
    """The library would take 8 KiB in a line."""
    with raw_line(server, headers={"x-codex-turn-metadata": "x" * 20_000}) as raw:
        raw.sendall(_frame(b"", opcode=8))
        assert raw.recv(2) == b"\x88\x00"


def closing_code(line: Connection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        line.recv(timeout=HANG_S)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def test_what_is_idle_is_closed_at_the_end_and_what_is_not_has_its_time() -> None:
    slow = running(FakeRunner(step_seconds=lambda _: 0.005), Config(drain_seconds=20))
    with slow as live, opened(live) as idle, opened(live) as busy:
        ask(idle, input="Hello")
        say(busy, input="Hello", max_output_tokens=60, ignore_eos=True)
        while json.loads(busy.recv(timeout=HANG_S))["type"] != "response.output_text.delta":
            pass
        live.server.should_exit = True
        assert closing_code(idle) == protocol.RESTART
        assert heard(busy)[-1]["type"] == "response.incomplete"
        assert closing_code(busy) == protocol.RESTART


def test_the_end_breaks_off_what_takes_too_long() -> None:
    with running(FakeRunner(step_seconds=lambda _: 0.01), Config(drain_seconds=0.2)) as live, opened(live) as line:
        say(line, input="Hello", max_output_tokens=8000, ignore_eos=True)
        while json.loads(line.recv(timeout=HANG_S))["type"] != "response.output_text.delta":
            pass
        live.server.should_exit = True
        error, failed = [event for event in _rest(line) if event["type"] in ("error", "response.failed")]
        assert error["error"]["code"] == "shutting_down" and failed["response"]["status"] == "failed"


def _rest(line: Connection) -> Iterator[dict[str, Any]]:
    try:
        while True:
            yield json.loads(line.recv(timeout=HANG_S))
    except ConnectionClosed:
        return


def test_each_turn_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    with running() as live, live.http() as http:
        with opened(live) as line:
            ask(line, input="Hello")
            ask(line, input=1)
        wait_until(lambda: 'status="101"} 1.0' in http.get("/metrics").text)
        text = http.get("/metrics").text
        assert 'pie_http_requests_total{route="/v1/responses",status="200"} 1.0' in text
        assert 'pie_http_requests_total{route="/v1/responses",status="400"} 1.0' in text


def test_each_turn_counts_against_the_limits_of_its_key() -> None:
    limits = {"anna": {"requests_per_day": 2}}
    config = Config(drain_seconds=0.2, api_keys=KEYS, limits=limits)  # type: ignore[arg-type]  # parsed
    with running(config=config) as live, opened(live, authorization="Bearer key-of-anna") as line:
        assert [ask(line, input="Hello")["type"] for _ in range(2)] == ["response.incomplete"] * 2
        refused = ask(line, input="Hello")
        assert refused["status"] == 429 and refused["error"]["code"] == "rate_limit_exceeded"
        assert refused["error"]["headers"]["retry-after"] == "60"
    with running(config=config) as live, opened(live, authorization="Bearer key-of-ben") as line:
        assert [ask(line, input="Hello")["type"] for _ in range(3)] == ["response.incomplete"] * 3


def test_a_key_that_is_taken_away_asks_no_more_on_a_socket_that_is_open(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("anna:key-of-anna\nroot:key-of-root admin\n")
    path.chmod(0o600)
    config = load_config({"api_key_file": str(path)}, {"PIE_DRAIN_SECONDS": "0.2"}, tmp_path)
    root = {"authorization": "Bearer key-of-root"}
    with (
        running(config=config) as live,
        live.http(headers=root) as http,
        opened(live, authorization="Bearer key-of-anna") as line,
        opened(live, **root) as former,
    ):
        assert ask(line, input="Hello")["type"] == "response.incomplete"
        # One has another key by now, the other is an admin no more.
        path.write_text("anna:another\nroot:key-of-root\nother:key-of-other admin\n")
        assert http.post("/admin/keys/reload").status_code == 200
        for each in (line, former):
            refused = ask(each, input="Hello")
            assert refused["status"] == 401 and refused["error"]["code"] == "invalid_api_key"
        path.write_text("anna:key-of-anna\nroot:key-of-root admin\n")
        assert http.post("/admin/keys/reload", headers={"authorization": "Bearer key-of-other"}).status_code == 200
        assert ask(line, input="Hello")["type"] == "response.incomplete"


def test_the_operator_sees_a_socket_and_may_end_it() -> None:
    with running(FakeRunner(step_seconds=lambda _: 0.005)) as live, live.http() as http, opened(live) as line:
        say(line, input="Hello", max_output_tokens=8000, ignore_eos=True)
        while json.loads(line.recv(timeout=HANG_S))["type"] != "response.output_text.delta":
            pass
        listed = http.get("/admin/requests").json()["data"]
        (entry,) = [each for each in listed if each["route"] == "/v1/responses"]
        assert http.post(f"/admin/requests/{entry['id']}/cancel").status_code == 200
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                line.recv(timeout=HANG_S)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == protocol.POLICY
        live.wait_idle()
