"""A body with every field for each API: what `mutations.py` makes wrong, one value at a time."""

from tests.golden.case import MODEL, Json, assistant, user
from tests.golden.cases_responses import call, result
from tests.golden.tools import PING, SHELL, WEATHER, allowed, anthropic, called, flat, json_schema, named

SMALL: Json = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
SAMPLING: Json = {
    "model": MODEL,
    "seed": 1,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 3,
    "min_p": 0.1,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "repetition_penalty": 1.1,
    "repetition_window": 8,
    "dry_multiplier": 0.1,
    "dry_base": 1.5,
    "dry_allowed_length": 2,
    "dry_sequence_breakers": ["\n"],
    "xtc_probability": 0.1,
    "xtc_threshold": 0.2,
    "logit_bias": {"5": 1},
    "stop": ["stop"],
    "stop_token_ids": [3],
    "min_tokens": 0,
    "ignore_eos": False,
    "stream": False,
    "user": "anna",
    "safety_identifier": "a",
    "metadata": {"a": "b"},
    "client_metadata": {"a": "b"},
    "service_tier": "auto",
    "prompt_cache_key": "a",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "implicit", "ttl": "a"},
}
CHAT: Json = {
    **SAMPLING,
    "messages": [user("a")],
    "n": 1,
    "best_of": 1,
    "verbosity": "low",
    "max_completion_tokens": 2,
    "logprobs": True,
    "top_logprobs": 1,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "parallel_tool_calls": False,
    "enable_thinking": False,
    "reasoning_effort": "none",
    "reasoning_budget_tokens": 0,
    "reasoning_min_tokens": 0,
    "chat_template_kwargs": {},
    "prediction": {"type": "content", "content": [{"type": "text", "text": "b"}]},
    "store": False,
    "audio": None,
    "function_call": "none",
    "functions": [],
    "modalities": ["text"],
    "moderation": None,
    "web_search_options": None,
}
MESSAGES: Json = {
    "model": MODEL,
    "max_tokens": 2,
    "messages": [
        {"role": "system", "name": "s", "content": "a"},
        {"role": "user", "name": "anna", "content": [{"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "c"}],
            "refusal": "d",
            "reasoning_content": "e",
            "reasoning": "e",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "h"}},
            ],
            "annotations": [],
            "audio": None,
            "function_call": None,
        },
        {"role": "tool", "tool_call_id": "c2", "name": "g", "content": "i"},
        {"role": "function", "name": "f", "content": "j"},
    ],
}
STREAM: Json = {
    "model": MODEL,
    "messages": [user("a")],
    "max_tokens": 1,
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
}
TOOLS: Json = {
    "model": MODEL,
    "messages": [user("a")],
    "max_tokens": 3,
    "tools": [{**WEATHER, "function": {**WEATHER["function"], "parameters": SMALL, "strict": True}}, SHELL, PING],
    "tool_choice": allowed("required", WEATHER, SHELL),
}
NAMED: Json = {"model": MODEL, "messages": [user("a")], "max_tokens": 3, "tools": [PING], "tool_choice": named(PING)}
CUSTOM: Json = {"model": MODEL, "messages": [user("a")], "max_tokens": 3, "tools": [SHELL], "tool_choice": named(SHELL)}
FORMATS: dict[str, Json] = {
    f"chat, {format_['type']}": {"model": MODEL, "messages": [user("a")], "max_tokens": 3, "response_format": format_}
    for format_ in (
        {"type": "text"},
        {"type": "json_object"},
        json_schema(SMALL, strict=True, description="a"),
        {"type": "grammar", "syntax": "regex", "definition": "a"},
        {"type": "choice", "choices": ["a", "b"]},
    )
}
BATCH: Json = {
    "model": MODEL,
    "messages": [[user("a")], [user("b"), assistant("c"), user("d")]],
    "max_tokens": [1, 2],
    "temperature": [0.5, None],
    "stop": [["x"], None],
    "seed": 1,
}
COMPLETION: Json = {**SAMPLING, "prompt": "a", "max_tokens": 2, "n": 1, "best_of": 1, "echo": True, "logprobs": 1}
COMPLETION |= {"suffix": "", "response_format": {"type": "text"}, "verbosity": "low"}
PROMPTS: Json = {"model": MODEL, "prompt": [[97], [98]], "max_tokens": 1}
RESPONSE: Json = {
    **SAMPLING,
    "input": [user("a")],
    "instructions": "a",
    "n": 1,
    "parallel_tool_calls": True,
    "text": {"format": json_schema(SMALL)["json_schema"] | {"type": "json_schema", "strict": True}, "verbosity": "low"},
    "reasoning": {
        "effort": "none",
        "summary": "auto",
        "generate_summary": "auto",
        "context": "auto",
        "mode": "standard",
    },
    "truncation": "auto",
    "max_output_tokens": 2,
    "max_tool_calls": 1,
    "enable_thinking": False,
    "reasoning_budget_tokens": 0,
    "reasoning_min_tokens": 0,
    "chat_template_kwargs": {},
    "prompt": None,
    "moderation": None,
    "store": False,
    "background": False,
    "include": ["reasoning.encrypted_content"],
    "top_logprobs": 1,
    "context_management": [],
    "previous_response_id": None,
    "conversation": None,
}
ITEMS: list[Json] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}], "id": "msg_1",
     "status": "completed", "phase": "commentary"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []},
                                      {"type": "refusal", "refusal": "c"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "d"}], "status": "completed",
     "content": [{"type": "reasoning_text", "text": "e"}]},
    call("c1", namespace="n", id="fc_1", status="completed"),
    {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "h", "namespace": "n"},
    result("c1", [{"type": "input_text", "text": "i"}], name="ping"),
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "j"},
    {"type": "web_search_call", "id": "ws_1"},
]  # fmt: skip
RESPONSE_ITEMS: Json = {"model": MODEL, "input": ITEMS, "max_output_tokens": 1, "store": False}
RESPONSE_TOOLS: Json = {
    "model": MODEL,
    "input": "a",
    "max_output_tokens": 2,
    "store": False,
    "tools": [
        {**flat(PING), "parameters": SMALL, "strict": True, "defer_loading": True, "allowed_callers": ["direct"],
         "description": "a", "output_schema": {}},
        {**flat(SHELL), "description": "a"},
        {"type": "web_search", "more": 1},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ping"}]},
}  # fmt: skip
MESSAGE: Json = {
    "model": MODEL,
    "max_tokens": 2,
    "messages": [user("a")],
    "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    "tools": [{**anthropic(PING), "type": "custom", "description": "a", "strict": True, "cache_control": None}],
    "tool_choice": {"type": "tool", "name": "ping", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 5, "display": "omitted"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SMALL}},
    "cache_control": {},
    "stop_sequences": ["stop"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "stream": False,
    "metadata": {"user_id": "a"},
    "service_tier": "auto",
}
BLOCKS: Json = {
    "model": MODEL,
    "max_tokens": 1,
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "a"}]},
        user([{"type": "text", "text": "b", "cache_control": {}}]),
        assistant(
            [
                {"type": "thinking", "thinking": "c", "signature": "d"},
                {"type": "redacted_thinking", "data": "e"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"g": 1}, "cache_control": {}},
            ]
        ),
        user(
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "h"}],
                    "is_error": True,
                },
                {"type": "text", "text": "i"},
            ]
        ),
    ],
}
TEMPLATE: Json = {"messages": [user("a"), assistant(tool_calls=called(("c", "f", "{}")))], "tools": [PING]}
EMBEDDING: Json = {"model": MODEL, "input": ["a"], "encoding_format": "base64", "dimensions": 2, "user": "a"}
RANKING: Json = {"model": MODEL, "query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True}
BODIES: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat, messages": ("/v1/chat/completions", MESSAGES),
    "chat, stream": ("/v1/chat/completions", STREAM),
    "chat, tools": ("/v1/chat/completions", TOOLS),
    "chat, named": ("/v1/chat/completions", NAMED),
    "chat, custom": ("/v1/chat/completions", CUSTOM),
    "chat, conversations": ("/v1/chat/completions", BATCH),
    **{name: ("/v1/chat/completions", body) for name, body in FORMATS.items()},
    "template": ("/apply-template", TEMPLATE),
    "completion": ("/v1/completions", COMPLETION),
    "prompts": ("/v1/completions", PROMPTS),
    "response": ("/v1/responses", RESPONSE),
    "response, items": ("/v1/responses", RESPONSE_ITEMS),
    "response, tools": ("/v1/responses", RESPONSE_TOOLS),
    "input_tokens": ("/v1/responses/input_tokens", {"model": MODEL, "input": "a", "tools": [flat(PING)], "text": {}}),
    "conversation": ("/v1/conversations", {"items": ITEMS, "metadata": {"a": "b"}}),
    "message": ("/v1/messages", MESSAGE),
    "message, blocks": ("/v1/messages", BLOCKS),
    "count_tokens": ("/v1/messages/count_tokens", {"model": MODEL, "messages": [user("a")], "system": "b"}),
    "embeddings": ("/v1/embeddings", EMBEDDING),
    "rerank": ("/v1/rerank", RANKING),
    "tokenize": ("/tokenize", {"model": MODEL, "prompt": "a", "add_special_tokens": True, "return_token_strs": True}),
    "tokenize, messages": ("/tokenize", {"messages": [user("a")], "add_generation_prompt": True,
                                         "continue_final_message": False, "chat_template_kwargs": {}, "tools": []}),
    "detokenize": ("/detokenize", {"model": MODEL, "tokens": [97]}),
}  # fmt: skip
