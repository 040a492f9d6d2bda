"""What SDKs, proxies and users of other servers send, with their bodies: honoured, or dropped and named."""

import json
from typing import Any

import anthropic
import httpx
import httpx2
import pytest
from anthropic import Anthropic, beta_tool
from openai import OpenAI

from proxy_inference_engine.config import ApiKey, Config
from tests.api.running import HELLO, MODEL, Running, on_every_runner, running

CHAT = "/v1/chat/completions"
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def chat(http: httpx.Client, **fields: Any) -> httpx.Response:
    response = http.post(CHAT, json={"messages": HELLO, "max_tokens": 8, "seed": 1, **fields})
    assert response.status_code == 200, response.text
    return response


def said(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


# What comes back in history


def test_a_round_trip_through_litellm(http: httpx.Client) -> None:
    """The assistant's message as LiteLLM hands it to whoever sends it back."""
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**CALL, "index": 0}],
        "function_call": None,
        "provider_specific_fields": {"refusal": None, "stop_reason": "tool_use"},
        "annotations": [{"type": "url_citation"}],
    }
    result = {"role": "tool", "tool_call_id": "call_1", "name": "f", "content": "4"}
    response = chat(http, messages=[*HELLO, message, result], tools=[TOOL], tool_choice="none")
    names = response.headers["x-pie-ignored"].split(", ")
    assert names == ["messages.provider_specific_fields", "messages.annotations", "messages.tool_calls.index"]


def test_a_parsed_answer_of_the_openai_client_is_sent_back(client: OpenAI, http: httpx.Client) -> None:
    """`parse` adds `parsed` to the message and `parsed_arguments` to its calls."""
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    strict = {"type": "function", "function": {"name": "f", "parameters": nothing, "strict": True}}
    ask: dict[str, Any] = {"model": MODEL, "messages": HELLO, "tools": [strict], "max_tokens": 60}
    parsed = client.chat.completions.parse(**ask, tool_choice="required").choices[0].message
    message = parsed.model_dump()
    calls = message["tool_calls"]
    assert "parsed" in message and "parsed_arguments" in calls[0]["function"]
    calls[0]["function"]["parsed_arguments"] = {"x": 1}
    result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "4"}
    body = {**ask, "messages": [*HELLO, message, result], "max_tokens": 4, "tool_choice": "none"}
    response = http.post(CHAT, json=body)
    assert response.status_code == 200
    assert "messages.tool_calls.function.parsed_arguments" in response.headers["x-pie-ignored"]


def test_parsed_items_of_the_openai_client_are_sent_back(http: httpx.Client) -> None:
    """`client.responses.parse` adds what it made of texts and arguments; its users send the output back."""
    text = {"type": "output_text", "text": "{}", "annotations": [], "parsed": {"a": 1}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}},
        {"type": "function_call_output", "call_id": "c", "output": "4", "provider_specific_fields": {"a": 1}},
    ]
    response = http.post("/v1/responses", json={"input": history, "max_output_tokens": 16})
    assert response.status_code == 200, response.text
    ignored = "input.content.parsed, input.parsed_arguments, input.provider_specific_fields"
    assert response.headers["x-pie-ignored"] == ignored
    kept = http.get(f"/v1/responses/{response.json()['id']}/input_items").text
    assert "parsed" not in kept and "provider_specific_fields" not in kept
    made = http.post("/v1/conversations", json={"items": history})
    assert made.status_code == 200 and made.headers["x-pie-ignored"] == ignored.replace("input.", "items.")


def test_an_assistant_that_said_nothing(http: httpx.Client) -> None:
    silent: list[dict[str, Any]] = [{"content": None}, {}, {"content": None, "tool_calls": []}, {"content": []}]
    for nothing in silent:
        chat(http, messages=[*HELLO, {"role": "assistant", **nothing}, *HELLO])


@pytest.mark.parametrize(
    ("call", "param"),
    [({"name": 5, "arguments": "{}"}, "function_call.name"), ({"name": "f"}, "function_call.arguments")],
)
def test_a_call_of_the_first_form_that_is_wrong_is_named(http: httpx.Client, call: dict[str, Any], param: str) -> None:
    """And not the text that is missing beside it."""
    messages = [*HELLO, {"role": "assistant", "content": None, "function_call": call}, *HELLO]
    refused = http.post(CHAT, json={"messages": messages})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == f"messages[1].{param}"


def test_a_tool_that_returns_nothing(http: httpx.Client) -> None:
    """As MCP has it: a list of no parts, beside an answer of calls alone."""
    called = {"role": "assistant", "content": [], "tool_calls": [CALL]}
    prompts = []
    nothings: list[Any] = [[], ""]
    for content in nothings:
        result = {"role": "tool", "tool_call_id": CALL["id"], "content": content}
        prompts.append(http.post("/apply-template", json={"messages": [*HELLO, called, result]}).json())
    assert prompts[0] == prompts[1] and "prompt" in prompts[0]


def test_the_first_form_of_calls(http: httpx.Client) -> None:
    function = TOOL["function"]
    asked = {"functions": [function], "function_call": {"name": "f"}, "max_tokens": 60}
    choice = chat(http, **asked).json()["choices"][0]
    assert choice["message"]["function_call"] == {"name": "f", "arguments": "{}"}
    assert "tool_calls" not in choice["message"] and choice["finish_reason"] == "stop"
    history = [*HELLO, choice["message"], {"role": "function", "name": "f", "content": "4"}]
    chat(http, messages=history, functions=[function], function_call="none")
    streamed = http.post(CHAT, json={"messages": HELLO, **asked, "stream": True}).text
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in streamed.split("\n\n") if '"delta"' in line]
    calls = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert calls[0]["name"] == "f" and "".join(call["arguments"] for call in calls) == "{}"


# Other servers' words


def test_structured_outputs_of_vllm(client: OpenAI) -> None:
    words: list[dict[str, Any]] = [
        {"structured_outputs": {"choice": ["red", "green"]}},
        {"guided_choice": ["red", "green"], "guided_decoding_backend": "xgrammar"},
        {"guided_regex": "red|green"},
        {"guided_grammar": 'root ::= "red" | "green"'},
        {"ebnf": 'root ::= "red" | "green"'},
    ]
    for extra in words:
        answer = client.chat.completions.create(model=MODEL, messages=HELLO, extra_body=extra)  # type: ignore[arg-type]
        assert answer.choices[0].message.content in ("red", "green")


def test_a_schema_of_llama_cpp(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}
    for fields in (
        {"response_format": {"type": "json_object", "schema": schema}},
        {"json_schema": schema},
        {"guided_json": schema},
    ):
        assert said(chat(http, max_tokens=30, **fields)) == '{"a":1}'


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_prompt": True, "mirostat": 0, "lora": [], "typical_p": 1, "tfs_z": 1.0},
        {"skip_special_tokens": True, "use_beam_search": False, "top_k": -1, "stop": ""},
        {"n_predict": 8, "repeat_penalty": 1.0, "repeat_last_n": 64},
    ],
)
def test_what_asks_for_nothing_changes_nothing(http: httpx.Client, fields: dict[str, Any]) -> None:
    response = chat(http, **fields)
    assert said(response) == said(chat(http)) and "x-pie-ignored" not in response.headers


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_words_that_have_no_meaning_here_are_named(http: httpx.Client, path: str) -> None:
    prompt = {"messages": HELLO} if "chat" in path else {"prompt": "Hello"}
    response = http.post(path, json={**prompt, "max_tokens": 2, "id_slot": 3, "samplers": ["top_k"]})
    assert response.status_code == 200 and response.headers["x-pie-ignored"] == "id_slot, samplers"


def test_responses_know_the_same_words(http: httpx.Client) -> None:
    """And need no model where one is served."""
    asked = {"input": "Hi", "max_output_tokens": 16, "seed": 1}
    plain = http.post("/v1/responses", json=asked)
    fields = {"top_k": -1, "cache_prompt": True, "mirostat_mode": 0, "repeat_penalty": 1.0, "id_slot": 3}
    response = http.post("/v1/responses", json={**asked, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["x-pie-ignored"] == "id_slot"
    assert response.json()["model"] == plain.json()["model"] == MODEL
    assert response.json()["output"][0]["content"] == plain.json()["output"][0]["content"]
    bound = http.post("/v1/responses", json={"input": "Hi", "guided_json": {"const": {"a": 1}}, "n_predict": 20}).json()
    assert bound["output"][0]["content"][0]["text"] == '{"a":1}' and bound["max_output_tokens"] == 20
    refused = http.post("/v1/responses", json={**asked, "use_beam_search": True}).json()["error"]
    assert refused["param"] == "use_beam_search"


def test_reasoning_effort_where_there_is_no_reasoning(http: httpx.Client) -> None:
    response = chat(http, reasoning_effort="high", chat_template_kwargs={"thinking": True})
    assert response.headers["x-pie-ignored"] == "reasoning_effort, chat_template_kwargs.thinking"


def test_a_prefix_of_the_answer(http: httpx.Client) -> None:
    begun = said(chat(http, response_prefix="So"))
    last = {"role": "assistant", "content": "So"}
    assert begun == said(chat(http, messages=[*HELLO, last], continue_final_message=True)) != said(chat(http))


@on_every_runner
@pytest.mark.parametrize(
    "fields",
    [
        {"typical_p": 0.5},
        {"top_n_sigma": 1.0},
        {"dynatemp_range": 0.5},
        {"mirostat": 1, "mirostat_tau": 2.0},
        {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.2},
    ],
)
def test_samplers_of_other_servers(http: httpx.Client, server: Running, fields: dict[str, Any]) -> None:
    first = said(chat(http, max_tokens=24, **fields))
    assert first == said(chat(http, max_tokens=24, **fields))


@on_every_runner
def test_banned_strings_never_come(http: httpx.Client, server: Running) -> None:
    wanting = {"logit_bias": server.bias({"t": 100, "e": 90, "a": 80}), "max_tokens": 30}
    assert "t" in said(chat(http, **wanting))
    for path, fields in ((CHAT, {"messages": HELLO}), ("/v1/completions", {"prompt": "x"})):
        body = {**fields, **wanting, "banned_strings": ["tt", "TE"], "seed": 1}
        choice = http.post(path, json=body).json()["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert "t" in text and not {"tt", "te"} & {text[i : i + 2].lower() for i in range(len(text))}
    formatted = {"messages": HELLO, "banned_strings": ["a"], "response_format": {"type": "json_object"}}
    both = http.post(CHAT, json=formatted)
    assert both.status_code == 400 and both.json()["error"]["param"] == "banned_strings"


# Anthropic's clients


def claude(live: Running, **options: Any) -> Anthropic:
    return Anthropic(base_url=live.url, max_retries=0, timeout=60, **{"api_key": "none", **options})


def test_threads_are_refused_so_that_runners_fall_back(server: Running) -> None:
    with claude(server) as client, pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model=MODEL, max_tokens=5, messages=HELLO, extra_body={"thread": {"type": "create"}})  # type: ignore[arg-type]
    error = caught.value.body["error"]  # type: ignore[index]
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_the_tool_runner_goes_through_its_whole_loop(server: Running) -> None:
    """It begins with a thread, is refused, and goes on with the whole conversation. The model only ever calls."""
    called = []
    seen: list[tuple[Any, int, int]] = []

    def note(response: httpx2.Response) -> None:
        body = json.loads(response.request.content)
        seen.append((body.get("thread"), response.status_code, len(body["messages"])))

    @beta_tool
    def ping() -> str:
        """Say pong."""
        called.append(1)
        return "pong"

    with claude(server, http_client=httpx2.Client(event_hooks={"response": [note]})) as client:
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 60, "max_iterations": 2, "messages": HELLO}
        messages = list(client.beta.messages.tool_runner(**options, tools=[ping], tool_choice={"type": "any"}))
    assert called and all(message.stop_reason == "tool_use" for message in messages)
    assert seen == [({"type": "create"}, 400, 1), (None, 200, 1), (None, 200, 3)]


def test_models_in_both_forms(server: Running, http: httpx.Client) -> None:
    with claude(server, _strict_response_validation=True) as client:
        (model,) = client.models.list().data
        assert (model.id, model.type, model.display_name) == (MODEL, "model", MODEL) and model.created_at.year > 2000
        assert client.models.retrieve(MODEL).id == MODEL


def test_batches_are_refused_in_their_own_shape(server: Running) -> None:
    with claude(server) as client, pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.batches.list()
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]


ANNA, BEN = ApiKey("anna", "a" * 40), ApiKey("ben", "b" * 40)


@pytest.mark.parametrize(
    ("token", "key", "status"),
    [
        (ANNA.key, ANNA.key, 200),
        (ANNA.key, "placeholder", 200),
        ("placeholder", ANNA.key, 200),
        (ANNA.key, BEN.key, 401),
        ("placeholder", "placeholder", 401),
    ],
)
def test_both_headers_of_a_key(token: str, key: str, status: int) -> None:
    with running(config=Config(api_keys=(ANNA, BEN), drain_seconds=0.2)) as live, live.http() as http:
        headers = {"authorization": f"Bearer {token}", "x-api-key": key}
        assert http.get("/v1/models", headers=headers).status_code == status


# Kept prefixes


def test_a_prompt_can_be_computed_ahead(http: httpx.Client) -> None:
    long = [{"role": "user", "content": "A long story. " * 20}]
    first = chat(http, messages=long, prewarm=True).json()
    assert first["choices"][0]["message"]["content"] == "" and first["usage"]["completion_tokens"] == 0
    usage = chat(http, messages=long).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 1
    body = {"max_tokens": 0, "messages": [{"role": "user", "content": "Another story. " * 20}]}
    message = http.post("/v1/messages", json=body)
    assert message.status_code == 200 and message.json()["usage"]["output_tokens"] == 0


def test_marks_of_what_is_to_be_kept_are_honoured(http: httpx.Client) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    parts = [{"type": "text", "text": "Hello", **mark}]
    tool = {**TOOL, **mark}
    response = chat(http, messages=[{"role": "user", "content": parts, **mark}], tools=[tool], tool_choice="none")
    assert "x-pie-ignored" not in response.headers


MARK = {"cache_control": {"type": "ephemeral"}}
FAKE_BYTES_PER_TOKEN = 64
FIRST = "A story of moss. " * 12
PINNING: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": [{"role": "user", "content": FIRST}], **MARK}),
    (CHAT, {"messages": [{"role": "user", "content": FIRST, **MARK}]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": FIRST, **MARK}]}]}),
    (CHAT, {"messages": [{"role": "user", "content": FIRST}], "tools": [{**TOOL, **MARK}], "tool_choice": "none"}),
    (CHAT, {"messages": [{"role": "user", "content": FIRST}], "prewarm": True}),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": FIRST, **MARK}]}]}),
]


@pytest.mark.parametrize(("path", "body"), PINNING)
@pytest.mark.parametrize("is_marked", [True, False])
def test_a_prompt_that_is_to_be_kept_outlives_others(path: str, body: dict[str, Any], is_marked: bool) -> None:
    """In a cache that has room for three or four of them, while five others come."""
    first = {"max_tokens": 4, **(body if is_marked else without_marks(body))}
    texts = [f"{number} is another story. " * 10 for number in range(5)]
    others = [{"messages": [{"role": "user", "content": text}], "max_tokens": 4} for text in texts]
    with running(max_cache_bytes=900 * FAKE_BYTES_PER_TOKEN) as live, live.http() as http:
        responses = [http.post(path, json=each) for each in (first, *others, first)]
    assert {response.status_code for response in responses} == {200}
    usage = responses[-1].json()["usage"]
    if path == CHAT:
        num_new = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    else:
        num_new = usage["input_tokens"]
    assert (num_new <= 1) is is_marked


def without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [without_marks(each) for each in value]
    if isinstance(value, dict):
        return {key: without_marks(each) for key, each in value.items() if key not in ("cache_control", "prewarm")}
    return value
