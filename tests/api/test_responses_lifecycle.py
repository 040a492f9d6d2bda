"""Stored responses through the official client: read, resumed, continued, run in the background, cancelled, owned."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.store import Store
from tests.api.running import MODEL, Running, running
from tests.api.test_leaving import send_request
from tests.api.test_responses import ASK, EXTRA, PING, QUIET, WEATHER, ask, frames, read
from tests.api.writing import MARKERS, OPENING
from tests.polling import HANG_S, wait_until

UNKNOWN = "resp_" + "0" * 32
# On a `slow` server this takes longer than anybody here waits.
ENDLESS: dict[str, Any] = {"max_output_tokens": 4000, "extra": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def slow() -> Iterator[Running]:
    """Twenty milliseconds a step: an answer can be watched, and left."""
    with running(FakeRunner(step_seconds=lambda _: 0.02)) as live:
        yield live


def wait(client: OpenAI, id_: str) -> Response:
    wait_until(lambda: client.responses.retrieve(id_).status not in ("queued", "in_progress"))
    return client.responses.retrieve(id_)


def test_a_stored_response_is_read_back(client: OpenAI, http: httpx.Client) -> None:
    whole = ask(client, metadata={"a": "b"})
    assert client.responses.retrieve(whole.id) == whole
    events = frames(http)
    final = events[-1]["response"]
    assert http.get(f"/v1/responses/{final['id']}").json() == final
    text = http.get(f"/v1/responses/{final['id']}", params={"stream": "true"}).text
    assert read(text) == events
    for after in (0, 5, len(events) - 2, len(events) - 1):
        params = {"stream": "true", "starting_after": str(after)}
        rest = http.get(f"/v1/responses/{final['id']}", params=params).text
        assert read(rest, first=after + 1) == events[after + 1 :]
    resumed = list(client.responses.retrieve(whole.id, stream=True, starting_after=3))
    assert resumed[0].sequence_number == 4 and resumed[-1].type == "response.completed"


def test_what_was_deleted_or_never_stored_is_gone(client: OpenAI) -> None:
    kept, unkept = ask(client, max_output_tokens=5), ask(client, max_output_tokens=5, store=False)
    assert (unkept.model_extra or {})["store"] is False
    client.responses.delete(kept.id)
    uses: list[Callable[[str], object]] = [
        client.responses.retrieve,
        client.responses.delete,
        client.responses.cancel,
        lambda id_: client.responses.input_items.list(id_),
        lambda id_: ask(client, previous_response_id=id_),
        lambda id_: client.responses.compact(model=MODEL, previous_response_id=id_),
    ]
    for id_ in (kept.id, unkept.id, UNKNOWN, "x"):
        for use in uses:
            with pytest.raises(openai.NotFoundError):
                use(id_)


def test_input_items_come_in_pages(client: OpenAI) -> None:
    items: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "One"}]},
        {"role": "assistant", "content": "Two"},
        {"type": "function_call", "call_id": "c", "name": "ping", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "pong"},
        {"role": "user", "content": "Three"},
    ]
    answer = ask(client, input=items, max_output_tokens=5)
    listed = list(client.responses.input_items.list(answer.id, order="asc", limit=2))
    assert [item.type for item in listed] == [item.get("type", "message") for item in items]
    assert len({item.id for item in listed}) == 6
    backwards = client.responses.input_items.list(answer.id)
    assert [item.id for item in backwards.data] == [item.id for item in listed][::-1] and not backwards.has_more
    page = client.responses.input_items.list(answer.id, order="asc", after=listed[1].id or "", limit=3)
    assert [item.id for item in page.data] == [item.id for item in listed][2:5] and page.has_more
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list(answer.id, after="msg_x")


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("?stream=maybe", "stream"),
        ("?starting_after=3", "starting_after"),
        ("?stream=true&starting_after=x", "starting_after"),
        ("?stream=true&starting_after=-5", "starting_after"),
        ("/input_items?limit=0", "limit"),
        ("/input_items?limit=101", "limit"),
        ("/input_items?order=random", "order"),
    ],
)
def test_queries_are_checked(http: httpx.Client, path: str, param: str) -> None:
    id_ = http.post("/v1/responses", json={**ASK, "max_output_tokens": 2}).json()["id"]
    response = http.get(f"/v1/responses/{id_}{path}")
    assert response.status_code == 400 and response.json()["error"]["param"] == param


@pytest.fixture(scope="module")
def thinking() -> Iterator[Running]:
    with running(FakeRunner(chat_template=OPENING, defined_tokens=MARKERS)) as live:
        yield live


def test_three_ways_to_go_on_are_one_prompt(thinking: Running) -> None:
    """By id, in a conversation, and with the whole history: the same tokens, most of them in the cache."""
    fields: dict[str, Any] = {
        "instructions": "Be brief.",
        "tools": [PING],
        "extra": {"reasoning_budget_tokens": 8, "reasoning_min_tokens": 3, "logit_bias": QUIET},
    }
    steps: list[tuple[str, Any]] = [
        ("One?", "none"),
        ("Two?", {"type": "function", "name": "ping"}),
        ("Three?", "none"),
    ]
    with thinking.openai() as client:
        conversation = client.conversations.create()
        previous: str | None = None
        whole: list[Any] = []
        calls: list[str | None] = [None, None, None]  # the open call of each way
        for text, choice in steps:
            ways: list[Response] = []
            for way in range(3):
                call_id = calls[way]
                result = {"type": "function_call_output", "call_id": call_id, "output": "pong"}
                news: list[Any] = [*([result] if call_id else []), {"role": "user", "content": text}]
                where: dict[str, Any] = {"input": news}
                if way == 0 and previous is not None:
                    where["previous_response_id"] = previous
                elif way == 1:
                    where["conversation"] = conversation.id
                elif way == 2:
                    whole += news
                    where = {"input": whole, "store": False}
                answer = ask(client, **fields, **where, tool_choice=choice, max_output_tokens=120)
                calls[way] = next((item.call_id for item in answer.output if item.type == "function_call"), None)
                ways.append(answer)
            previous = ways[0].id
            whole += ways[2].output
            assert len({answer.usage.input_tokens for answer in ways if answer.usage}) == 1
            assert len({answer.output_text for answer in ways}) == 1 and bool(ways[0].output_text) == (choice == "none")
            for answer in ways[1:]:
                assert answer.usage is not None
                assert answer.usage.input_tokens_details.cached_tokens >= answer.usage.input_tokens - 1
        assert ways[0].usage is not None and ways[0].usage.input_tokens_details.cached_tokens > 200
        kinds = [item.type for item in client.conversations.items.list(conversation.id, order="asc", limit=100)]
        assert kinds.count("function_call") == kinds.count("function_call_output") == 1
        assert kinds.count("message") == 3 + 2 and kinds.count("reasoning") == 3


def test_items_can_be_referred_to(client: OpenAI) -> None:
    first = ask(client, max_output_tokens=30)
    given = client.responses.input_items.list(first.id).data[0]
    items: list[Any] = [
        {"type": "item_reference", "id": given.id},
        {"id": first.output[0].id},
        {"role": "user", "content": "More"},
    ]
    by_reference = ask(client, input=items)
    by_id = ask(client, input="More", previous_response_id=first.id)
    assert by_reference.output_text == by_id.output_text
    for id_ in ("msg_x", "msg_" + "0" * 36):
        with pytest.raises(openai.NotFoundError) as caught:
            ask(client, input=[{"type": "item_reference", "id": id_}])
        assert caught.value.param == "input[0].id"


def test_compaction(client: OpenAI) -> None:
    items: list[Any] = []
    for number in range(4):
        items += [
            {"role": "user", "content": f"question {number} " + "about things " * 4},
            {"role": "assistant", "content": f"answer {number} " + "about things " * 4},
        ]
    items.append({"role": "user", "content": "the last question"})
    compacted = client.responses.compact(model=MODEL, input=items, instructions="Be brief.")
    (item,) = compacted.output
    assert item.type == "compaction" and compacted.usage.output_tokens > 0
    go_on: list[Any] = [item, {"role": "user", "content": "Go on"}]
    answer = ask(client, input=go_on, max_output_tokens=10)
    assert answer.usage is not None and answer.usage.input_tokens > compacted.usage.output_tokens
    kept = client.responses.input_items.list(answer.id, order="asc").data
    assert [each.type for each in kept] == ["compaction", "message"]
    again = ask(client, previous_response_id=answer.id, input="And on", max_output_tokens=10)
    assert again.usage is not None and again.usage.input_tokens > answer.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="encrypted_content"):
        ask(client, input=[{"type": "compaction", "encrypted_content": "foreign"}])
    with pytest.raises(openai.BadRequestError, match="nothing"):
        client.responses.compact(model=MODEL, input=[])


def test_background_polled(slow: Running) -> None:
    with slow.openai() as client:
        begun = ask(client, background=True, max_output_tokens=40)
        assert begun.status == "queued" and begun.output == [] and begun.background is True
        done = wait(client, begun.id)
        assert done.status == "incomplete" and done.output_text and done.id == begun.id
        assert done.output_text == ask(client, max_output_tokens=40).output_text
        with pytest.raises(openai.BadRequestError):
            client.responses.cancel(begun.id)


def test_background_goes_on_when_its_client_leaves(slow: Running) -> None:
    with slow.openai() as client:
        fields = {**ASK, "max_output_tokens": 60}
        stream = client.responses.create(**fields, background=True, stream=True, extra_body=EXTRA)
        seen = [next(stream) for _ in range(8)]
        assert [event.type for event in seen[:3]] == ["response.created", "response.queued", "response.in_progress"]
        assert seen[0].type == "response.created" and seen[0].response.status == "queued"
        stream.close()
        id_ = seen[0].response.id
        # Followed by another one, from where the first left off, while it is being made.
        rest = list(client.responses.retrieve(id_, stream=True, starting_after=7))
        numbers = [event.sequence_number for event in [*seen, *rest]]
        assert numbers == list(range(len(numbers))) and rest[-1].type == "response.incomplete"
        assert wait(client, id_).output_text == ask(client, max_output_tokens=60).output_text


def test_foreground_ends_when_its_client_leaves(slow: Running) -> None:
    with slow.openai() as client:
        fields = {**ASK, "max_output_tokens": 4000}
        stream = client.responses.create(**fields, stream=True, extra_body={**EXTRA, "ignore_eos": True})
        first = next(stream)
        assert first.type == "response.created"
        stream.close()
        slow.wait_idle()
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.response.id)


def test_cancel_stops_it(slow: Running) -> None:
    with slow.openai() as client:
        begun = ask(client, **ENDLESS, background=True)
        follower = client.responses.retrieve(begun.id, stream=True)
        while next(follower).type != "response.output_text.delta":
            pass
        stopped = client.responses.cancel(begun.id)
        slow.wait_idle()
        assert stopped.status == "cancelled" and stopped.usage is not None
        assert stopped.usage.output_tokens > 0, "what was written until then"
        assert client.responses.cancel(begun.id).status == "cancelled"
        assert client.responses.retrieve(begun.id) == stopped
        last = list(follower)[-1]
        assert last.type == "response.incomplete" and last.response.status == "cancelled"
        plain = ask(client, max_output_tokens=2)
        with pytest.raises(openai.BadRequestError, match="background"):
            client.responses.cancel(plain.id)


def test_delete_stops_it(slow: Running) -> None:
    with slow.openai() as client:
        begun = ask(client, **ENDLESS, background=True)
        client.responses.delete(begun.id)
        slow.wait_idle()
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(begun.id)


def test_an_unfinished_response_cannot_be_continued(slow: Running) -> None:
    with slow.openai() as client:
        begun = ask(client, **ENDLESS, background=True)
        with pytest.raises(openai.BadRequestError, match="not complete"):
            ask(client, previous_response_id=begun.id)
        client.responses.cancel(begun.id)


def test_objects_belong_to_their_key() -> None:
    keys = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))
    config = Config(api_keys=keys, drain_seconds=0.2)
    with (
        running(FakeRunner(step_seconds=lambda _: 0.02), config) as live,
        live.openai(key="key-of-anna") as anna,
        live.openai(key="key-of-ben") as ben,
    ):
        done = ask(anna, max_output_tokens=10)
        begun = ask(anna, **ENDLESS, background=True)
        conversation = anna.conversations.create()
        item = done.output[0].id
        uses: list[Callable[[str], object]] = [
            ben.responses.retrieve,
            ben.responses.delete,
            ben.responses.cancel,
            lambda id_: ben.responses.retrieve(id_, stream=True),
            lambda id_: ben.responses.input_items.list(id_),
            lambda id_: ask(ben, previous_response_id=id_),
            lambda id_: ben.responses.input_tokens.count(model=MODEL, previous_response_id=id_),
            lambda id_: ben.responses.compact(model=MODEL, previous_response_id=id_),
        ]
        for id_ in (done.id, begun.id):
            for use in uses:
                with pytest.raises(openai.NotFoundError):
                    use(id_)
        for fields in ({"conversation": conversation.id}, {"input": [{"type": "item_reference", "id": item}]}):
            with pytest.raises(openai.NotFoundError):
                ask(ben, **fields)
        assert anna.responses.retrieve(done.id) == done
        assert anna.responses.cancel(begun.id).status == "cancelled"


def test_the_end_of_the_server_ends_what_runs_in_the_background() -> None:
    """What may finish in time does; the rest fails, and says why to whoever follows."""
    last: list[Any] = []
    with running(FakeRunner(step_seconds=lambda _: 0.02), Config(drain_seconds=600)) as live:
        client = live.openai()
        loop = live.server.servers[0].get_loop()
        on = {**EXTRA, "ignore_eos": True}
        short = client.responses.create(**{**ASK, "max_output_tokens": 10}, background=True, stream=True, extra_body=on)
        begun = next(short)
        fields = {**ASK, "max_output_tokens": 4000}
        endless = client.responses.create(**fields, background=True, stream=True, extra_body=on)

        def follow() -> None:
            with pytest.raises(openai.APIError) as caught:
                list(endless)
            last.append(caught.value)

        thread = threading.Thread(target=follow)
        thread.start()
        live.server.should_exit = True
        assert list(short)[-1].type == "response.incomplete" and begun.type == "response.created"
        loop.call_soon_threadsafe(live.server._drain.end)  # as when the time for it is over
        thread.join(HANG_S)
        client.close()
    assert last[0].code == "shutting_down"


def test_what_is_refused_leaves_no_trace() -> None:
    """A response that the queue does not take was never queued."""
    config = Config(api_keys=(ApiKey("anna", "key-of-anna"),), drain_seconds=0.2)
    runner = FakeRunner(lanes=(Lane(1, 1024),), step_seconds=lambda _: 0.05)
    fields: dict[str, Any] = {"background": True, "extra": {"ignore_eos": True}, "max_output_tokens": 900}
    accepted: list[str] = []
    with (
        closing(Store.open(None)) as store,
        running(runner, config, admission=Admission(max_waiting=1), store=store) as live,
        live.openai(key="key-of-anna") as client,
    ):
        with pytest.raises(openai.RateLimitError):
            for _ in range(10):
                accepted.append(ask(client, **fields).id)
        page = asyncio.run(store.list("response", "anna"))
        assert [record.id for record in page.records] == accepted[::-1] != []
        for id_ in accepted:
            client.responses.delete(id_)
        live.wait_idle()


def test_a_call_that_was_cut_off_was_never_made(client: OpenAI) -> None:
    fields: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    for max_tokens in range(1, 100):
        cut = ask(client, **fields, max_output_tokens=max_tokens)
        if cut.output[0].type == "function_call":
            break
    assert cut.output[0].type == "function_call" and cut.output[0].status == "incomplete"
    by_id = ask(client, previous_response_id=cut.id, input="Again", max_output_tokens=3)
    plain = ask(client, input=[{"role": "user", "content": text} for text in ("Hello", "Again")], max_output_tokens=3)
    assert by_id.usage is not None and plain.usage is not None
    assert by_id.usage.input_tokens == plain.usage.input_tokens


def test_a_conversation_remembers_what_is_not_stored(client: OpenAI) -> None:
    conversation = client.conversations.create()
    answer = ask(client, conversation=conversation.id, store=False, max_output_tokens=5)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)
    items = client.conversations.items.list(conversation.id, order="asc").data
    assert [item.type for item in items] == ["message", "message"] and items[1].id == answer.output[0].id
    client.conversations.delete(conversation.id)
    with pytest.raises(openai.NotFoundError):
        ask(client, conversation={"id": conversation.id})


def test_a_whole_answer_ends_when_its_client_leaves(slow: Running) -> None:
    with send_request(slow, "/v1/responses", {**ASK, "max_output_tokens": 4000, "ignore_eos": True}):
        wait_until(lambda: slow.stats.num_running == 1)
    slow.wait_idle()
