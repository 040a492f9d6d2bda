"""Recorded outputs of every family, and what they mean."""

from tests.unit.output.parsing import Call, Parsed, Recording

PARIS = Call("get_weather", '{"city": "Paris", "days": 3}')
ROME = Call("get_weather", '{"city": "Rome"}')
HARD = r'{"city": "a\"}]) </tool_call> \\", "options": {"x": [{}, "{\u00e9\ud83d\ude00\n"]}}'
HERMES = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'


def hermes(*calls: Call) -> str:
    return "\n".join(HERMES % (call.name, call.arguments) for call in calls)


def _harmony(*messages: str) -> str:
    return "<|end|><|start|>assistant".join(messages)


_HERMES = [
    Recording("text", "chatml", "Hello  world\n", Parsed("Hello  world\n")),
    Recording("space around", "chatml", "  hi \n\n", Parsed("  hi \n\n")),
    Recording("nothing", "chatml", "", Parsed()),
    Recording("a call", "chatml", hermes(PARIS), Parsed(calls=(PARIS,))),
    Recording("two calls", "chatml", hermes(PARIS, ROME), Parsed(calls=(PARIS, ROME))),
    Recording("text, call", "chatml", f"Let me see.\n\n{hermes(PARIS)}", Parsed("Let me see.", calls=(PARIS,))),
    Recording("space, call", "chatml", f"\n {hermes(PARIS)}\n", Parsed(calls=(PARIS,))),
    Recording(
        "a name that begins another",
        "chatml",
        hermes(Call("get_weather_time", "{}")),
        Parsed(calls=(Call("get_weather_time", "{}"),)),
    ),
    Recording(
        "hard strings",
        "chatml",
        hermes(Call("get_weather", HARD), ROME),
        Parsed(calls=(Call("get_weather", HARD), ROME)),
    ),
    Recording(
        "thinking in a call",
        "qwen3",
        hermes(Call("get_weather", '{"city": "<think>x</think>"}')),
        Parsed(calls=(Call("get_weather", '{"city": "<think>x</think>"}'),)),
    ),
    Recording(
        "custom",
        "chatml",
        hermes(Call("note", r'{"input": "a\"b\\n\n\u00e9\ud83d\ude00 </tool_call>"}')),
        Parsed(calls=(Call("note", 'a"b\\n\né😀 </tool_call>'),)),
    ),
    Recording(
        "custom, by a grammar",
        "chatml",
        hermes(Call("query", 'SELECT "a" }'), ROME),
        Parsed(calls=(Call("query", 'SELECT "a" }'), ROME)),
    ),
    Recording("reasoning, call", "qwen3", f"<think>\nHm.\n</think>\n\n{hermes(PARIS)}", Parsed("", "Hm.", (PARIS,))),
    Recording(
        "reasoning, text, call",
        "qwen3",
        f"<think>\nHm.\n</think>\n\nSo:\n{hermes(PARIS)}",
        Parsed("So:", "Hm.", (PARIS,)),
    ),
    Recording(
        "call in reasoning", "qwen3", f"<think>\nHm. I call\n{hermes(PARIS)}", Parsed("", "Hm. I call", (PARIS,))
    ),
    Recording(
        "call in open reasoning",
        "qwen3",
        f"Hm.\n{hermes(PARIS, ROME)}\n</think>\n\n",
        Parsed("", "Hm.", (PARIS, ROME)),
        starts_in_reasoning=True,
    ),
]
_TAGS = [
    Recording(
        "tags in reasoning",
        "glm45",
        "<think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
        "<arg_value>l<tool_cal </tool_cal> </think</arg_value>\n</tool_call>",
        Parsed("", "", (Call("get_weather", '{"city": "l<tool_cal </tool_cal> </think"}'),)),
    ),
    Recording(
        "grammar in reasoning",
        "qwen3",
        "<think>\nSo " + hermes(Call("query", "SELECT a"), ROME) + "\n</think>\n\n",
        Parsed("", "So", (Call("query", "SELECT a"), ROME)),
    ),
    Recording(
        "tags",
        "qwen3_coder",
        'Sure.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis "x"\n\\ é\n</parameter>\n'
        "<parameter=days>\n3\n</parameter>\n<parameter=unit>\nC\n</parameter>\n"
        '<parameter=options>\n{"a": ["</function>", null]}\n</parameter>\n</function>\n</tool_call>',
        Parsed(
            "Sure.",
            calls=(
                Call(
                    "get_weather",
                    r'{"city": "Paris \"x\"\n\\ é", "days": 3, "unit": "C", "options": {"a": ["</function>", null]}}',
                ),
            ),
        ),
    ),
    Recording(
        "tags, empty",
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=get_weather_time>\n</function>\n</tool_call>",
        Parsed(calls=(Call("get_weather", '{"city": ""}'), Call("get_weather_time", "{}"))),
    ),
    Recording(
        "tags, custom",
        "qwen3_coder",
        '<tool_call>\n<function=note>\n<parameter=input>\nx = "1"\n</para\n</parameter>\n</function>\n</tool_call>',
        Parsed(calls=(Call("note", 'x = "1"\n</para'),)),
    ),
    Recording(
        "tags, grammar",
        "qwen3_coder",
        "<tool_call>\n<function=query>\n<parameter=input>\nSELECT 1\n</parameter>\n</function>\n</tool_call>",
        Parsed(calls=(Call("query", "SELECT 1"),)),
    ),
    Recording(
        "glm",
        "glm45",
        "<think>Hm</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Pa</arg_valu\nris</arg_value>\n"
        "<arg_key>is_exact</arg_key>\n<arg_value>true</arg_value>\n</tool_call>\n"
        "<tool_call>get_weather_time\n</tool_call>",
        Parsed(
            "",
            "Hm",
            (Call("get_weather", r'{"city": "Pa</arg_valu\nris", "is_exact": true}'), Call("get_weather_time", "{}")),
        ),
    ),
]
_OTHERS = [
    Recording(
        "python",
        "gemma3",
        'I call.\n```tool_code\nget_weather(city="a\\"), \\u00e9", days=-3, is_exact=True, '
        'options={"x": [None, False, "True", 1.5e3], "y": {}})\n```',
        Parsed(
            "I call.",
            calls=(
                Call(
                    "get_weather",
                    r'{"city": "a\"), \u00e9", "days": -3, "is_exact": true, '
                    r'"options": {"x": [null, false, "True", 1.5e3], "y": {}}}',
                ),
            ),
        ),
    ),
    Recording(
        "python, several",
        "gemma3",
        '```tool_code\nget_weather_time()\n```\n```tool_code\nget_weather(city="Rome")\n```',
        Parsed(calls=(Call("get_weather_time", "{}"), ROME)),
    ),
    Recording(
        "python, custom", "gemma3", '```tool_code\nnote(input="a\\n)")\n```', Parsed(calls=(Call("note", "a\n)"),))
    ),
    Recording(
        "python, grammar",
        "gemma3",
        "```tool_code\nquery(input=SELECT f(1))\n```",
        Parsed(calls=(Call("query", "SELECT f(1)"),)),
    ),
    Recording("code that is no call", "gemma3", "```python\nprint(1)\n```", Parsed("```python\nprint(1)\n```")),
    Recording("llama", "llama3", '{"name": "get_weather", "parameters": {"city": "Rome"}}', Parsed(calls=(ROME,))),
    Recording(
        "llama, python tag",
        "llama3",
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Rome"}}; '
        '{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}',
        Parsed(calls=(ROME, PARIS)),
    ),
    Recording(
        "llama, not at the start",
        "llama3",
        'So {"name": "get_weather", "parameters": {}}',
        Parsed('So {"name": "get_weather", "parameters": {}}'),
    ),
    Recording("llama, another object", "llama3", '{"name": "Bob", "age": 3}', Parsed('{"name": "Bob", "age": 3}')),
    Recording(
        "mistral",
        "mistral",
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}, '
        '{"name": "get_weather", "arguments": {"city": "Rome"}}]',
        Parsed(calls=(PARIS, ROME)),
    ),
    Recording(
        "mistral, text before",
        "mistral",
        'Well, [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome"}}]',
        Parsed("Well,", calls=(ROME,)),
    ),
    Recording(
        "mistral, args",
        "mistral_args",
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 3}[TOOL_CALLS]get_weather_time[ARGS]{}',
        Parsed(calls=(PARIS, Call("get_weather_time", "{}"))),
    ),
    Recording(
        "mistral, args, grammar",
        "mistral_args",
        "[TOOL_CALLS]query[ARGS]SELECT [1][TOOL_CALLS]get_weather_time[ARGS]{}",
        Parsed(calls=(Call("query", "SELECT [1]"), Call("get_weather_time", "{}"))),
    ),
    Recording(
        "mistral, args, grammar last",
        "mistral_args",
        "[TOOL_CALLS]query[ARGS]SELECT 1",
        Parsed(calls=(Call("query", "SELECT 1"),)),
    ),
    Recording(
        "deepseek",
        "deepseek_r1",
        "Hm.\n</think>\n\nI call.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        '```json\n{"city": "Paris", "days": 3}\n```<｜tool▁call▁end｜>\n'
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather_time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        Parsed("I call.", "Hm.", (PARIS, Call("get_weather_time", "{}"))),
        starts_in_reasoning=True,
    ),
]
_CHANNELS = [
    Recording(
        "harmony",
        "harmony",
        _harmony("<|channel|>analysis<|message|>Hm. ", "<|channel|>final<|message|>Hi\n"),
        Parsed("Hi\n", "Hm."),
    ),
    Recording(
        "harmony, call",
        "harmony",
        _harmony(
            "<|channel|>analysis<|message|>Hm",
            '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}',
        ),
        Parsed("", "Hm", (ROME,)),
    ),
    Recording(
        "harmony, aside, call",
        "harmony",
        _harmony(
            "<|channel|>analysis<|message|>Hm",
            "<|channel|>commentary<|message|>I look.",
            '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Rome"}',
        ),
        Parsed("I look.", "Hm", (ROME,)),
    ),
    Recording(
        "harmony, recipient first",
        "harmony",
        ' to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Rome"}',
        Parsed(calls=(ROME,)),
    ),
    Recording(
        "harmony, recipient after start",
        "harmony",
        _harmony(
            "<|channel|>analysis<|message|>Hm",
            ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Rome"}',
        ),
        Parsed("", "Hm", (ROME,)),
    ),
    Recording(
        "harmony, custom",
        "harmony",
        '<|channel|>commentary to=functions.note <|constrain|>json<|message|>{"input": "a\\nb"}',
        Parsed(calls=(Call("note", "a\nb"),)),
    ),
    Recording(
        "harmony, grammar",
        "harmony",
        "<|channel|>commentary to=functions.query <|constrain|>json<|message|>SELECT {",
        Parsed(calls=(Call("query", "SELECT {"),)),
    ),
    Recording(
        "harmony, two thoughts",
        "harmony",
        _harmony(
            "<|channel|>analysis<|message|>One", "<|channel|>analysis<|message|>Two", "<|channel|>final<|message|>x"
        ),
        Parsed("x", "One\n\nTwo"),
    ),
    Recording(
        "harmony, open",
        "harmony",
        _harmony("Hm", "<|channel|>final<|message|>x"),
        Parsed("x", "Hm"),
        starts_in_reasoning=True,
    ),
    Recording("harmony, no header", "harmony", "Hello", Parsed("Hello")),
    Recording(
        "harmony, unknown recipient", "harmony", "<|channel|>commentary to=functions.other<|message|>{}", Parsed("{}")
    ),
]
RECORDINGS = [*_HERMES, *_TAGS, *_OTHERS, *_CHANNELS]
