"""Other servers' words for what this one does, in one table, and how a body that uses them is read.

A word is another name for one of our fields, a value of a field that means the same as another, or a wish that asks for
nothing at its neutral value. Looked at only where a body is refused as it is: a plain request pays nothing for it.
`scripts/synonyms.py` makes docs/synonyms.md of the table.
"""

import re
from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.apis.shared import readings
from proxy_inference_engine.server.apis.shared.readings import NotRead, OtherBody, OurFields

# Our fields, from a value and the body it stands in; None: it changes nothing here, and is named as ignored.
ReadWord = Callable[[Any, OtherBody], OurFields | None]


class Word(NamedTuple):
    name: str
    servers: str
    means: str  # for the documents
    read: ReadWord
    neutral: tuple[Any, ...] = ()  # values that ask for nothing


def _called(field: str, servers: str, *names: str, neutral: tuple[Any, ...] = ()) -> Iterable[Word]:
    """Other names of a field of ours."""
    for name in names:
        yield Word(name, servers, f"`{field}`", lambda value, _body: {field: value}, neutral)


def _asks_nothing(servers: str, **neutral: Any) -> Iterable[Word]:
    """Accepted at this value only."""
    for name, value in neutral.items():
        yield Word(name, servers, "", readings.refuse, tuple(value) if isinstance(value, tuple) else (value,))


def _skipped(servers: str, **neutral: Any) -> Iterable[Word]:
    """Has no effect here: accepted, and named in the header unless it is at this value."""
    for name, value in neutral.items():
        yield Word(name, servers, "skipped, and named in `X-PIE-Ignored`", readings.skip, (value,))


_LLAMA, _VLLM, _OLD_VLLM, _SGLANG = "llama.cpp", "vLLM", "vLLM before 0.12", "SGLang"
_WEBUI, _TABBY, _ROUTERS, _OLD_OPENAI = "text-generation-webui", "TabbyAPI", "OpenRouter, LiteLLM", "OpenAI before 2023"

WORDS: dict[str, Word] = {
    word.name: word
    for word in (
        # The shape of the answer
        Word("structured_outputs", _VLLM, "`response_format`", readings.structured_outputs),
        Word("guided_json", _OLD_VLLM, "`response_format` of type `json_schema`", readings.json_schema),
        Word("json_schema", f"{_LLAMA}, {_SGLANG}", "`response_format` of type `json_schema`", readings.json_schema),
        Word("guided_regex", _OLD_VLLM, "`response_format` of type `grammar`", readings.regex),
        Word("regex", _SGLANG, "`response_format` of type `grammar`", readings.regex),
        Word("guided_choice", _OLD_VLLM, "`response_format` of type `choice`", readings.choice),
        Word("guided_grammar", _OLD_VLLM, "`response_format` of type `grammar` (GBNF or Lark)", readings.grammar),
        Word("ebnf", _SGLANG, "`response_format` of type `grammar` (GBNF)", readings.grammar),
        Word("grammar", _LLAMA, "`response_format` of type `grammar` (GBNF)", readings.grammar, ("",)),
        Word(
            "response_format",
            f"{_LLAMA}, TGI",
            "a `schema` beside the type, or no `name`: `response_format` of type `json_schema`",
            readings.response_format,
        ),
        *_skipped(_OLD_VLLM, guided_decoding_backend="auto", guided_whitespace_pattern=""),
        # Tools
        Word("functions", _OLD_OPENAI, "`tools`; the answer has `function_call`", readings.functions, ([],)),
        Word("function_call", _OLD_OPENAI, "`tool_choice`", readings.function_call, ()),
        Word("tool_choice", "Mistral, Anthropic", '`"any"` and other forms: `tool_choice`', readings.tool_choice),
        *_asks_nothing(_LLAMA, parse_tool_calls=True, thinking_forced_open=False, reasoning_in_content=False),
        # The length
        Word("n_predict", _LLAMA, "`max_tokens`; below 0: no limit", readings.max_tokens),
        Word("max_new_tokens", f"{_WEBUI}, {_SGLANG}", "`max_tokens`", readings.max_tokens),
        Word("max_tokens", "several", "below 0: no limit", readings.unlimited),
        Word("max_completion_tokens", "several", "below 0: no limit", readings.unlimited),
        *_called("n", _LLAMA, "n_cmpl"),
        *_called("min_tokens", f"{_WEBUI}, {_SGLANG}", "min_new_tokens"),
        Word("stop", "several", "empty strings are left out", readings.stop, ("",)),
        *_called("ignore_eos", f"{_WEBUI}, {_TABBY}", "ban_eos_token"),
        # Sampling
        *_called("repetition_penalty", f"{_LLAMA}, Ollama", "repeat_penalty"),
        Word("repeat_last_n", _LLAMA, "`repetition_window`; −1: all", readings.window),
        *_called("repetition_window", f"{_WEBUI}, {_TABBY}", "repetition_penalty_range", "penalty_range"),
        *_called("typical_p", _TABBY, "typical"),
        *_called("mirostat", f"{_WEBUI}, {_TABBY}", "mirostat_mode"),
        *_called("top_n_sigma", _TABBY, "nsigma"),
        *_called("banned_strings", _VLLM, "bad_words"),
        Word("top_k", f"{_VLLM}, {_SGLANG}", "−1: off", readings.top_k),
        Word("top_n_sigma", _LLAMA, "−1: off", readings.top_n_sigma),
        Word("do_sample", _WEBUI, "false: `temperature` 0", readings.do_sample, (True,)),
        Word("n_probs", _LLAMA, "`logprobs`, `top_logprobs`", readings.n_probs, (0,)),
        Word("logit_bias", _LLAMA, "a list of pairs; `false`: −100", readings.logit_bias, ([], "")),
        *_asks_nothing(_LLAMA, tfs_z=1, min_keep=0, n_indent=0, post_sampling_probs=False, return_tokens=False),
        *_asks_nothing(_LLAMA, t_max_predict_ms=(0, -1), t_max_prompt_ms=(0, -1), multimodal_data=([],)),
        *_asks_nothing(_LLAMA, adaptive_target=-1, adaptive_decay=0.9, reasoning_budget_message=""),
        *_asks_nothing(_LLAMA, grammar_lazy=False, grammar_triggers=([],), preserved_tokens=([],)),
        Word("lora", _LLAMA, "at scales of 0: asks for nothing; refused otherwise", readings.lora, ([],)),
        *_asks_nothing(_WEBUI, tfs=1, top_a=0, smoothing_factor=0, smoothing_curve=1, epsilon_cutoff=0, eta_cutoff=0),
        *_asks_nothing(_WEBUI, encoder_repetition_penalty=1, no_repeat_ngram_size=0, penalty_alpha=0, num_beams=1),
        *_asks_nothing(_WEBUI, guidance_scale=1, negative_prompt="", custom_token_bans="", temperature_last=False),
        *_asks_nothing(_TABBY, cfg_scale=1, skew=0, token_healing=False),
        *_asks_nothing(_VLLM, use_beam_search=False, length_penalty=1, early_stopping=False),
        *_asks_nothing(_VLLM, skip_special_tokens=True, spaces_between_special_tokens=True, logits_processors=([],)),
        *_asks_nothing(_VLLM, detokenize=True, include_stop_str_in_output=False, return_tokens_as_token_ids=False),
        *_asks_nothing(_VLLM, truncate_prompt_tokens=-1, include_reasoning=True, echo=False, return_token_ids=False),
        *_asks_nothing(_VLLM, add_special_tokens=False, return_token_offsets=False, return_prompt_text=False),
        *_asks_nothing(_VLLM, return_assistant_tokens_mask=False, routed_experts_prompt_start=0, documents=([],)),
        *_asks_nothing(_SGLANG, separate_reasoning=True, stream_reasoning=True, return_hidden_states=False),
        *_asks_nothing(_SGLANG, no_stop_trim=False, lora_path="", json_object=False, use_audio_in_video=False),
        *_asks_nothing(_SGLANG, return_routed_experts=False, routed_experts_start_len=0, return_meta_info=False),
        *_asks_nothing(_SGLANG, return_cached_tokens_details=False, return_spec_tokens_details=False),
        *_asks_nothing(_SGLANG, return_prompt_token_ids=False, return_sampling_mask=False),
        *_skipped(_LLAMA, samplers=[], penalize_nl=False, dry_penalty_last_n=-1, n_keep=0, n_discard=0),
        *_skipped(_TABBY, dry_range=0, sampler_priority=[], sampler_order=[]),
        # The server
        *_skipped(_LLAMA, cache_prompt=True, id_slot=-1, verbose=False, response_fields=[], reasoning_format="auto"),
        *_skipped(_LLAMA, **{"speculative.n_max": 16, "speculative.n_min": 0, "speculative.p_min": 0.75}),
        *_skipped(_LLAMA, **{"speculative.type": "none", "speculative.ngram_min_hits": 1}),
        *_skipped(_LLAMA, **{"speculative.ngram_size_n": 12, "speculative.ngram_size_m": 48}),
        *_skipped(_LLAMA, backend_sampling=False, reasoning_control=False),
        *_skipped(_LLAMA, n_cache_reuse=0, sse_ping_interval=30),
        *_asks_nothing("several", store=False, response_prefix=""),
        *_skipped(_VLLM, request_id="", kv_transfer_params={}, mm_processor_kwargs={}, ec_transfer_params={}),
        *_skipped(_VLLM, media_io_kwargs={}, vllm_xargs={}, stream_interval=1),
        *_skipped(f"{_VLLM}, {_SGLANG}", session_id=""),
        *_skipped(_SGLANG, rid="", session_params={}, custom_params={}, images_config={}),
        *_skipped(_ROUTERS, provider={}, route="", plugins=[], transforms=[], usage={"include": True}, models=[]),
        Word("stream_options", _VLLM, "without `continuous_usage_stats`", readings.stream_options),
        # Prompts
        Word("add_bos_token", f"{_TABBY}, {_WEBUI}", "`add_special_tokens`", readings.add_bos_token, (True,)),
        Word("reasoning", _ROUTERS, "`reasoning_effort`, `reasoning_budget_tokens`", readings.reasoning, ({},)),
        Word("thinking", _ROUTERS, "`enable_thinking`, `reasoning_budget_tokens`", readings.thinking, ({},)),
        *_called("reasoning_budget_tokens", "Qwen", "thinking_budget", neutral=(-1,)),
        *_called("reasoning_budget_tokens", _VLLM, "thinking_token_budget", neutral=(-1,)),
        *_called("reasoning_budget_tokens", _LLAMA, "thinking_budget_tokens", "reasoning_budget", neutral=(-1,)),
    )
}  # fmt: skip


class Translated(NamedTuple):
    body: dict[str, Any]
    words: frozenset[str]  # those that were read
    ignored: tuple[str, ...]  # those that change nothing here
    sources: dict[str, str]  # which word each field of ours comes from

    def client_name(self, param: str) -> str:
        """How the client calls a parameter; below a word of its own it is that word."""
        ours = re.split(r"[.\[]", param, maxsplit=1)[0]
        word = self.sources.get(ours, ours)
        return param if word == ours else word


def translate(body: OtherBody, known: Set[str], place: Callable[[OurFields], OurFields]) -> Translated | None:
    """A body in our own words, for a schema that has the fields `known`; None where it has no other's.

    The table has the fields of a chat: `place` puts them where this API has them.
    Raises InvalidRequest where two words contradict each other, or a grammar cannot be read.
    """
    said, words, ignored, sources = dict(body), set(), [], {}
    for name, value in body.items():
        word = WORDS.get(name)
        if word is None or (name in known and word.read in (readings.skip, readings.refuse)):
            continue  # unknown, or a field that this API has itself
        try:
            fields = _read(word, value, body)
        except NotRead:
            continue
        fields = place(fields) if fields else fields
        if not known >= set(fields or ()):
            continue  # this API has nothing of the kind
        del said[name]
        words.add(name)
        if fields is None:
            ignored.append(name)
        for key, new in (fields or {}).items():
            if not _agree(said.setdefault(key, new), new):
                raise InvalidRequest(f"{name!r} and {key!r} say different things of the same.", param=name)
            said[key] = {**said[key], **new} if isinstance(new, dict) else new
            sources[key] = name
    return Translated(said, frozenset(words), tuple(ignored), sources) if words else None


def _read(word: Word, value: Any, body: OtherBody) -> OurFields | None:
    if any(_is_same(value, neutral) for neutral in word.neutral):
        return {}
    return word.read(value, body)


def _agree(old: Any, new: Any) -> bool:
    """Whether both can be said at once: the same, or objects that say different things."""
    return bool(old == new) or (isinstance(old, dict) and isinstance(new, dict) and not old.keys() & new.keys())


def _is_same(value: Any, neutral: Any) -> bool:
    """1 is 1.0, but not true."""
    return isinstance(value, bool) is isinstance(neutral, bool) and bool(value == neutral)
