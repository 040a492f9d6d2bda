"""Stored responses from their beginning to their end: chains, conversations, background, streams, compaction, keys."""

from collections.abc import Iterator
from dataclasses import replace

from tests.golden.case import MODEL, Case, Json, get, user
from tests.golden.cases_responses import call, result
from tests.golden.tools import PING, flat

PATH = "/v1/responses"
ASK: Json = {"model": MODEL, "input": "Hello", "seed": 1, "max_output_tokens": 4}
BASE = Case("", PATH, ASK)
ID, CONVERSATION, ITEM, CALL = r"resp_[0-9a-f]{32}", r"conv_[0-9a-f]{32}", r"msg_[0-9a-f]{36}", r"call_[0-9a-f]{32}"
SEALED = r"gAAAAA[A-Za-z0-9_=-]{20,}"
DONE = '"incomplete_details":{'


def cases() -> Iterator[Case]:
    yield from _stored()
    yield from _chained()
    yield from _background()
    yield from _held()
    yield from _sealed()
    yield from _compacted()
    yield from _keys()


def _stored() -> Iterator[Case]:
    items = [user("One"), {"role": "system", "content": "Two"}, user([{"type": "input_text", "text": "Three"}])]
    ask: Json = {**ASK, "input": items, "metadata": {"a": "b"}, "instructions": "Be brief."}
    yield replace(BASE, name="store", body=ask, keep={"one": ID, "said": ITEM})
    one = f"{PATH}/<<one>>"
    yield get(one, "get")
    for query in ("stream=true", "stream=true&starting_after=3", "stream=true&starting_after=-1",
                  "stream=true&starting_after=1000", "stream=false"):  # fmt: skip
        yield get(f"{one}?{query}", f"get with {query}")
    for query in ("stream=yes", "starting_after=3", "stream=true&starting_after=x", "stream=true&starting_after=-2",
                  "stream=true&starting_after=99999999999", "starting_after=-1"):  # fmt: skip
        yield get(f"{one}?{query}", f"get refuses {query}")
    given = f"{one}/input_items"
    yield get(given, "input items", keep={"last": ITEM})
    for query in ("order=asc", "limit=1", "limit=1&order=asc", "after=<<last>>", "after=<<last>>&order=asc",
                  "include=message.input_image.image_url", "include[]=reasoning.encrypted_content"):  # fmt: skip
        yield get(f"{given}?{query}", f"input items with {query}")
    for query in ("order=up", "limit=0", "after=nothing", "include=nothing", "model=fake", "other=1"):
        yield get(f"{given}?{query}", f"input items refuse {query}")
    hosted: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    yield replace(BASE, name="store hosted items", body={**ASK, "input": [user("Hi"), hosted]}, keep={"hosted": ID})
    yield get(f"{PATH}/<<hosted>>/input_items", "input items without hosted ones")
    twice = [{**user("One"), "id": "msg_1"}, {**user("Two"), "id": "msg_1"}, {**call("c1"), "id": "fc_1"}, result("c1")]
    yield replace(BASE, name="store an id twice", body={**ASK, "input": twice}, keep={"twice": ID})
    yield get(f"{PATH}/<<twice>>/input_items?order=asc", "input items with an id twice")
    yield replace(BASE, name="store a stream", body={**ASK, "stream": True}, keep={"streamed": ID})
    yield get(f"{PATH}/<<streamed>>", "get what was streamed")
    yield get(f"{PATH}/<<streamed>>?stream=true&starting_after=8", "stream it again")
    yield Case("cancel what is not in the background", f"{one}/cancel", None)
    yield replace(BASE, name="refer to what was said", body={
        **ASK, "input": [{"type": "item_reference", "id": "<<said>>"}, {"id": "<<last>>"}, user("And?")],
    }, keep={"referring": ID})  # fmt: skip
    yield get(f"{PATH}/<<referring>>/input_items", "input items that were referred to")
    yield Case("delete", one, method="DELETE")
    yield Case("delete again", one, method="DELETE")
    for path, name in ((one, "get"), (given, "input items"), (f"{one}?stream=true", "stream")):
        yield get(path, f"{name} of what was deleted")
    yield Case("cancel what was deleted", f"{one}/cancel", None)
    yield Case("cancel nobody", f"{PATH}/resp_none/cancel", None)


def _chained() -> Iterator[Case]:
    yield replace(BASE, name="a first turn", keep={"first": ID})
    ask: Json = {**ASK, "input": "And?", "previous_response_id": "<<first>>"}
    yield replace(BASE, name="a second turn", body=ask, keep={"second": ID})
    yield replace(BASE, name="a second turn, streamed", body={**ask, "stream": True, "store": False})
    yield replace(BASE, name="a third turn", body={**ask, "previous_response_id": "<<second>>", "instructions": "Hm."})
    yield Case("count a third turn", f"{PATH}/input_tokens", {"input": "So?", "previous_response_id": "<<second>>"})
    bound: Json = {"tools": [flat(PING)], "tool_choice": "required", "max_tool_calls": 1, "max_output_tokens": 80}
    yield replace(BASE, name="a call", body={**ASK, **bound}, keep={"calling": ID, "call": CALL})
    answer = {**ASK, "previous_response_id": "<<calling>>", "input": [result("<<call>>")]}
    yield replace(BASE, name="its result", body=answer, keep={"answered": ID})
    yield replace(BASE, name="the result of no call", body={**answer, "input": [result("call_none")]})
    cut: Json = {**ASK, **bound, "max_output_tokens": 30}
    yield replace(BASE, name="a call that is cut off", body=cut, keep={"cut": ID})
    yield replace(BASE, name="after a call that was cut off", body={**ask, "previous_response_id": "<<cut>>"})
    yield replace(BASE, name="a previous response that is none", body={**ask, "previous_response_id": "resp_none"})
    yield Case("delete the first turn", f"{PATH}/<<first>>", method="DELETE")
    yield replace(BASE, name="after what was deleted", body=ask)
    yield replace(BASE, name="after what follows what was deleted", body={**ask, "previous_response_id": "<<second>>"})
    yield Case("a conversation", "/v1/conversations", {"items": [user("Hi")]}, keep={"talk": CONVERSATION})
    inside: Json = {**ASK, "conversation": "<<talk>>"}
    yield replace(BASE, name="in a conversation", body=inside, keep={"inside": ID})
    yield replace(
        BASE, name="in it by object, streamed", body={**inside, "conversation": {"id": "<<talk>>"}, "stream": True}
    )
    yield replace(BASE, name="in it, not stored", body={**inside, "store": False})
    yield get("/v1/conversations/<<talk>>/items?order=asc", "what the conversation has")
    both: Json = {**inside, "previous_response_id": "<<second>>"}
    yield replace(BASE, name="a conversation and a response", body=both)
    yield replace(BASE, name="in no conversation", body={**inside, "conversation": "conv_none"})
    yield Case("delete the conversation", "/v1/conversations/<<talk>>", method="DELETE")
    yield replace(BASE, name="after a deleted conversation", body={**ASK, "previous_response_id": "<<inside>>"})


def _background() -> Iterator[Case]:
    ask: Json = {**ASK, "background": True}
    yield replace(BASE, name="in the background", body=ask, keep={"job": ID})
    job = f"{PATH}/<<job>>"
    yield get(job, "until it is over", until=DONE)
    yield get(f"{job}?stream=true", "the events of the background")
    yield get(f"{job}?stream=true&starting_after=2", "the later events of the background")
    yield Case("cancel what is over", f"{job}/cancel", None)
    yield replace(BASE, name="in the background, streamed", body={**ask, "stream": True}, keep={"live": ID})
    yield get(f"{PATH}/<<live>>", "what was streamed from the background", until=DONE)
    yield replace(BASE, name="in the background, not stored", body={**ask, "store": False})
    yield Case("delete the job", job, method="DELETE")


def _held() -> Iterator[Case]:
    held = replace(BASE, server="held")
    ask: Json = {**ASK, "background": True}
    for name in ("cancelled", "deleted"):
        yield replace(held, name=f"to be {name}", body=ask, keep={name: ID})
        yield get(f"{PATH}/<<{name}>>", f"queued, to be {name}", server="held")
    yield get(f"{PATH}/<<cancelled>>/input_items", "input items while it runs", server="held")
    yield replace(held, name="after what still runs", body={**ASK, "previous_response_id": "<<cancelled>>"})
    yield replace(held, name="cancel", path=f"{PATH}/<<cancelled>>/cancel", body=None)
    yield replace(held, name="cancel again", path=f"{PATH}/<<cancelled>>/cancel", body=None)
    yield get(f"{PATH}/<<cancelled>>", "get what was cancelled", server="held")
    yield get(f"{PATH}/<<cancelled>>?stream=true", "stream what was cancelled", server="held")
    yield Case("delete what runs", f"{PATH}/<<deleted>>", method="DELETE", server="held")
    yield get(f"{PATH}/<<deleted>>", "get what ran and was deleted", server="held")

    halting = replace(held, server="halting")
    yield replace(halting, name="to be cancelled later", body=ask, keep={"begun": ID})
    begun = f"{PATH}/<<begun>>"
    yield get(begun, "in progress", server="halting", until='"status":"in_progress"')
    yield replace(halting, name="cancel what has begun", path=f"{begun}/cancel", body=None)
    yield get(begun, "get what had begun", server="halting")
    yield get(f"{begun}?stream=true", "stream what had begun", server="halting")
    go_on: Json = {**ask, "input": "So?", "previous_response_id": "<<begun>>"}
    yield replace(halting, name="go on from what was cancelled", body=go_on, keep={"later": ID})
    yield get(f"{PATH}/<<later>>/input_items", "what goes on from what was cancelled", server="halting")


def _sealed() -> Iterator[Case]:
    ask: Json = {**ASK, "reasoning_budget_tokens": 3, "max_output_tokens": 10, "store": False}
    sealing = replace(BASE, server="opening", name="sealed thoughts")
    sealed: Json = {**ask, "include": ["reasoning.encrypted_content"]}
    yield replace(sealing, body=sealed, keep={"sealed": SEALED})
    thoughts: Json = {"type": "reasoning", "summary": [], "encrypted_content": "<<sealed>>"}
    again = [user("Hello"), thoughts, {"role": "assistant", "content": "Ho"}, user("And?")]
    yield replace(sealing, name="sealed thoughts, sent back", body={**ask, "input": again})
    again[1] = {**thoughts, "encrypted_content": "<<sealed>>x"}
    yield replace(sealing, name="sealed thoughts, changed", body={**ask, "input": again})
    wrong = [{"type": "compaction", "encrypted_content": "<<sealed>>"}]
    yield replace(sealing, name="sealed thoughts as a summary", body={**ask, "input": wrong})


def _compacted() -> Iterator[Case]:
    path = f"{PATH}/compact"
    items = [user("One" * 40), {"role": "assistant", "content": "Two"}, call("c1"), result("c1"), user("Three")]
    ask: Json = {"model": MODEL, "input": items, "seed": 1, "max_output_tokens": 5}
    base = Case("compact", path, ask)
    yield replace(base, keep={"summary": SEALED})
    summary: Json = {"type": "compaction", "encrypted_content": "<<summary>>"}
    yield replace(BASE, name="go on from a summary", body={**ASK, "input": [summary, user("So?")], "store": False})
    again = {**ask, "input": [{**summary, "type": "compaction_summary", "id": "cmp_1"}, user("More"), user("And?")]}
    yield replace(base, name="compact a summary", body=again)
    bound = {"tools": [flat(PING), {"type": "web_search"}], "text": {"format": {"type": "json_object"}}}
    yield replace(base, name="compact with tools", body={**ask, **bound, "reasoning": {"effort": "low"}})
    waiting = [user("One" * 40), call("c1"), user("Meanwhile"), result("c1"), user("Two")]
    yield replace(base, name="compact while a result is waited for", body={**ask, "input": waiting[:4]})
    yield replace(base, name="compact a long last turn", body={**ask, "input": [user("One"), user("Two" * 50)]})
    yield replace(base, name="compact text", body={**ask, "input": "Hello"})
    yield replace(BASE, name="to be compacted", keep={"long": ID})
    yield replace(base, name="compact a response", body={"model": MODEL, "previous_response_id": "<<long>>", "seed": 1})
    yield replace(base, name="compact nothing", body={"model": MODEL})
    yield replace(base, name="compact as a stream", body={**ask, "stream": True})
    yield replace(base, name="compact without a model", body={"input": items, "seed": 1, "max_output_tokens": 5})
    yield replace(base, name="compact what is stored nowhere", body={"model": MODEL, "previous_response_id": "resp_no"})
    yield replace(base, name="compact with store", body={**ask, "store": False})
    yield replace(
        base, name="compact a foreign summary", body={**ask, "input": [{**summary, "encrypted_content": "x"}]}
    )


def _keys() -> Iterator[Case]:
    anna, ben = [("authorization", "bearer key-of-anna")], [("x-api-key", "key-of-ben")]
    own = replace(BASE, server="keyed", headers=anna)
    yield replace(own, name="anna stores", keep={"own": ID, "mine": ITEM})
    for who, headers in (("ben", ben), ("anna", anna)):
        other = replace(own, headers=headers)
        yield replace(other, name=f"{who} reads", method="GET", path=f"{PATH}/<<own>>", body=None)
        yield replace(other, name=f"{who} lists", method="GET", path=f"{PATH}/<<own>>/input_items", body=None)
        yield replace(other, name=f"{who} goes on", body={**ASK, "previous_response_id": "<<own>>", "store": False})
        refer = {**ASK, "input": [{"type": "item_reference", "id": "<<mine>>"}], "store": False}
        yield replace(other, name=f"{who} refers", body=refer)
        yield replace(other, name=f"{who} cancels", path=f"{PATH}/<<own>>/cancel", body=None)
        yield replace(other, name=f"{who} deletes", method="DELETE", path=f"{PATH}/<<own>>", body=None)
