"""Chat templates of our own in the syntax of families that people run, and what their models answer.

Each answer reasons where the family's templates write that, then calls get_weather(city=Paris, days=3), and
get_weather(city="a b").
"""

from dataclasses import dataclass
from functools import cached_property

from proxy_inference_engine.formats import detect
from proxy_inference_engine.formats.syntax import CallSyntax
from proxy_inference_engine.prompt.fitted_template import FittedTemplate, fit_template
from proxy_inference_engine.runners.fake import ByteTokenizer
from tests.unit.formats.derived.corpus import MARKED, NAMED, NESTED, PYTHON, elements, template

_PARIS, _ROOM = '{"city": "Paris", "days": 3}', '{"city": "a b"}'
_ONE = f'{{"name": "get_weather", "arguments": {_PARIS}}}'
_OTHER = f'{{"name": "get_weather", "arguments": {_ROOM}}}'
_LIST = f"[{_ONE}, {_OTHER}]"

_CHATML = ("<|im_start|>", "\n", "<|im_end|>\n")
_LLAMA3 = ("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>")
_LLAMA4 = ("<|header_start|>", "<|header_end|>\n\n", "<|eot|>")
_GRANITE = ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n")
_COHERE = ("<|START_OF_TURN_TOKEN|><|", "_TOKEN|>", "<|END_OF_TURN_TOKEN|>")
_DEEPSEEK = ("<｜", "｜>", "<｜end▁of▁sentence｜>")
_BARS = ("<|", "|>", "<|end|>\n")
_MINIMAX = ("]~b]", "\n", "[e~[\n")


@dataclass(frozen=True)
class Family:
    name: str
    template: str
    calls: str
    reasoning: str = ""  # how an answer with "I look." goes up to its calls, behind what the prompt has written of it

    def __str__(self) -> str:
        return self.name

    @cached_property
    def fitted(self) -> FittedTemplate:
        return fit_template(detect(self.template), self.template, ByteTokenizer())

    @property
    def syntax(self) -> CallSyntax:
        assert self.fitted.format.calls is not None
        return self.fitted.format.calls


def _thought(opening: str, closing: str) -> str:
    return f"{opening!r} + message.reasoning_content + {closing!r}"


def _dsml(word: str) -> str:
    """Elements that say whether they are text, as DeepSeek has them."""
    call = elements(
        "'<｜DSML｜invoke name=\"' + name + '\">\\n'",
        "'<｜DSML｜parameter name=\"' + key + '\" string=\"' + ('true' if value is string else 'false') + '\">'",
        "'</｜DSML｜parameter>\\n'",
    )
    return template(
        call + "{{- '</｜DSML｜invoke>\\n' }}",
        f"'<｜DSML｜{word}>\\n'",
        f"'</｜DSML｜{word}>'",
        turn=_DEEPSEEK,
        assistant="Assistant",
        thought=_thought("<think>", "</think>\n\n"),
        prompt="'<think>'",
    )


def _dsml_calls(word: str) -> str:
    return (
        f'<｜DSML｜{word}>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">a b</｜DSML｜parameter>\n'
        f"</｜DSML｜invoke>\n</｜DSML｜{word}>"
    )


def _cohere(text: str, prompt: str = "") -> str:
    call = (
        '{{- \'\\n    {"tool_call_id": "\' + number + \'", "tool_name": "\' + name + \'", "parameters": \' '
        "+ given | tojson + '}' }}"
    )
    return template(
        call,
        "'<|START_ACTION|>['",
        "'\\n]<|END_ACTION|>'",
        "','",
        turn=_COHERE,
        assistant="CHATBOT",
        thought=_thought("<|START_THINKING|>", "<|END_THINKING|>"),
        text=f"'<|START_{text}|>' + message.content + '<|END_{text}|>'",
        prompt=prompt,
    )


_COHERE_CALLS = (
    f'<|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {_PARIS}}},\n'
    f'    {{"tool_call_id": "1", "tool_name": "get_weather", "parameters": {_ROOM}}}\n]<|END_ACTION|>'
)
_WITH_PARAMETERS = "{{- '{\"name\": \"' + name + '\", \"parameters\": ' + given | tojson + '}' }}"
_TAGGED = "{{- '<tool_call>\\n' }}" + NAMED + "{{- '\\n</tool_call>' }}"
_ON_LINES = elements(
    "'<tool_call>\\n<function=' + name + '>\\n'", "'<parameter=' + key + '>\\n'", "'\\n</parameter>\\n'"
)
_ON_LINES_CALLS = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>\n"
    "<tool_call>\n<function=get_weather>\n<parameter=city>\na b\n</parameter>\n</function>\n</tool_call>"
)
_SINGLE_QUOTED = PYTHON.replace("value | tojson", "('\\'' + value + '\\'' if value is string else value | tojson)")

FAMILIES = (
    Family(
        "Gemma 4",
        MARKED.replace("<|q|>", '<|"|>')
        + template(
            "{{- '<|tool_call>call:' + name + marked(given) + '<tool_call|>' }}",
            turn=("<|turn>", "\n", "<turn|>\n"),
            assistant="model",
            thought=_thought("<|channel>thought\n", "\n<channel|>"),
        ),
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>'
        '<|tool_call>call:get_weather{city:<|"|>a b<|"|>}<tool_call|>',
        "<|channel>thought\nI look.\n<channel|>",
    ),
    Family(
        "FunctionGemma",
        template(
            elements(
                "'<start_function_call>call:' + name + '{'",
                "key + ':<escape>'",
                "'<escape>' + ('' if loop.last else ',')",
            )
            + "{{- '}<end_function_call>' }}",
            turn=("<start_of_turn>", "\n", "<end_of_turn>\n"),
            assistant="model",
            thought="''",
        ),
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:<escape>3<escape>}<end_function_call>"
        "<start_function_call>call:get_weather{city:<escape>a b<escape>}<end_function_call>",
    ),
    Family(
        "Kimi K2",
        template(
            "{{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' + given | tojson "
            "+ '<|tool_call_end|>' }}",
            "'<|tool_calls_section_begin|>'",
            "'<|tool_calls_section_end|>'",
            turn=("<|im_", "|>", "<|im_end|>"),
            thought=_thought("<think>", "</think>"),
        ),
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{_PARIS}"
        f"<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{_ROOM}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        "<think>I look.</think>",
    ),
    Family(
        "Kimi K3",
        template(
            elements(
                "'<|open|>call tool=\"' + name + '\" index=\"' + loop.index | string + '\"<|sep|>'",
                "'<|open|>argument key=\"' + key + '\" type=\"' + ('string' if value is string else 'boolean' "
                "if value is boolean else 'number' if value is number else 'array') + '\"<|sep|>'",
                "'<|close|>argument<|sep|>'",
            )
            + "{{- '<|close|>call<|sep|>' }}",
            "('' if message.content else '<|open|>response<|sep|><|close|>response<|sep|>') + '<|open|>tools<|sep|>'",
            "'<|close|>tools<|sep|>'",
            turn=('<|open|>message role="', '"<|sep|>', "<|close|>message<|sep|><|end_of_msg|>"),
            thought=_thought("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
            text="'<|open|>response<|sep|>' + message.content + '<|close|>response<|sep|>'",
            prompt="'<|open|>think<|sep|>'",
        ),
        "<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>"
        '<|open|>call tool="get_weather" index="1"<|sep|>'
        '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>'
        '<|open|>call tool="get_weather" index="2"<|sep|><|open|>argument key="city" type="string"<|sep|>a b'
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
        "I look.<|close|>think<|sep|>",
    ),
    Family(
        "MiniMax M1",
        template(
            NAMED,
            "'<tool_calls>\\n'",
            "'\\n</tool_calls>'",
            "'\\n'",
            turn=("<beginning_of_sentence>", "\n", "<end_of_sentence>\n"),
            assistant="ai name=assistant",
            thought="''",
        ),
        f"<tool_calls>\n{_ONE}\n{_OTHER}\n</tool_calls>",
    ),
    Family(
        "MiniMax M2",
        template(
            elements("'<invoke name=\"' + name + '\">\\n'", "'<parameter name=\"' + key + '\">'", "'</parameter>\\n'")
            + "{{- '</invoke>\\n' }}",
            "'<minimax:tool_call>\\n'",
            "'</minimax:tool_call>'",
            turn=_MINIMAX,
            assistant="ai",
            prompt="'<think>\\n'",
        ),
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="get_weather">\n'
        '<parameter name="city">a b</parameter>\n</invoke>\n</minimax:tool_call>',
        "I look.\n</think>\n\n",
    ),
    Family(
        "MiniMax M3",
        NESTED.replace("#<", "]<]minimax[>[<").replace("<one>", "<item>").replace("</one>", "</item>")
        + template(
            "{{- ']<]minimax[>[<invoke name=\"' + name + '\">' + nested(given) + ']<]minimax[>[</invoke>\\n' }}",
            "']<]minimax[>[<tool_call>\\n'",
            "']<]minimax[>[</tool_call>'",
            turn=_MINIMAX,
            assistant="ai",
            thought=_thought("<mm:think>", "</mm:think>"),
        ),
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris]<]minimax[>[</city>'
        "]<]minimax[>[<days>3]<]minimax[>[</days>]<]minimax[>[</invoke>\n"
        ']<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>a b]<]minimax[>[</city>]<]minimax[>[</invoke>\n'
        "]<]minimax[>[</tool_call>",
        "<mm:think>I look.</mm:think>",
    ),
    Family(
        "Llama 4",
        template(_WITH_PARAMETERS, turn=_LLAMA4, thought="''"),
        f'{{"name": "get_weather", "parameters": {_PARIS}}}{{"name": "get_weather", "parameters": {_ROOM}}}',
    ),
    Family(
        "Llama 4, as Python",
        template(PYTHON, "'['", "']'", "', '", turn=_LLAMA4, thought="''"),
        '[get_weather(city="Paris", days=3), get_weather(city="a b")]',
    ),
    Family(
        "Command R7B, Command A",
        _cohere("RESPONSE"),
        _COHERE_CALLS,
        "<|START_THINKING|>I look.<|END_THINKING|>",
    ),
    Family("Cohere 2", _cohere("TEXT", "'<|START_THINKING|>'"), _COHERE_CALLS, "I look.<|END_THINKING|>"),
    Family(
        "Granite 3",
        template(NAMED, "'<|tool_call|>['", "']'", "', '", turn=_GRANITE, thought="''"),
        f"<|tool_call|>{_LIST}",
    ),
    Family(
        "Granite 4",
        template(_TAGGED, separator="'\\n'", turn=_GRANITE, thought="''"),
        f"<tool_call>\n{_ONE}\n</tool_call>\n<tool_call>\n{_OTHER}\n</tool_call>",
    ),
    Family(
        "Seed-OSS",
        template(
            elements(
                "'<seed:tool_call>\\n<function=' + name + '>\\n'", "'<parameter=' + key + '>'", "'</parameter>\\n'"
            )
            + "{{- '</function>\\n</seed:tool_call>' }}",
            separator="'\\n'",
            turn=("<seed:bos>", "\n", "<seed:eos>"),
            thought=_thought("<seed:think>", "</seed:think>\n"),
        ),
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n<parameter=days>3</parameter>\n"
        "</function>\n</seed:tool_call>\n"
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>a b</parameter>\n</function>\n</seed:tool_call>",
        "<seed:think>I look.</seed:think>\n",
    ),
    Family(
        "Apertus",
        template(
            "{{- '{\"' + name + '\": ' + given | tojson + '}' }}",
            "'<|tools_prefix|>['",
            "']<|tools_suffix|>'",
            "', '",
            turn=("<|", "_start|>", "<|end|>"),
            thought=_thought("<|inner_prefix|>", "<|inner_suffix|>"),
        ),
        f'<|tools_prefix|>[{{"get_weather": {_PARIS}}}, {{"get_weather": {_ROOM}}}]<|tools_suffix|>',
        "<|inner_prefix|>I look.<|inner_suffix|>",
    ),
    Family(
        "Apriel",
        template(
            NAMED,
            "'\\n<tool_calls>['",
            "']</tool_calls>'",
            "', '",
            turn=("<|begin_", "|>\n", "<|end|>\n"),
            thought=_thought("", "\n[BEGIN FINAL RESPONSE]\n"),
            prompt="'Here are my reasoning steps:\\n'",
        ),
        f"\n<tool_calls>{_LIST}</tool_calls>",
        "I look.\n[BEGIN FINAL RESPONSE]\n",
    ),
    Family(
        "Nemotron Nano 2",
        template(NAMED, "'<TOOLCALL>['", "']</TOOLCALL>'", "', '", turn=("<SPECIAL_11>", "\n", "\n<SPECIAL_12>")),
        f"<TOOLCALL>{_LIST}</TOOLCALL>",
        "<think>\nI look.\n</think>\n\n",
    ),
    Family(
        "Nemotron Nano 3",
        template(
            _ON_LINES + "{{- '</function>\\n</tool_call>\\n' }}",
            turn=_CHATML,
            thought=_thought("<think>\n", "\n</think>\n"),
            prompt="'<think>\\n'",
        ),
        f"{_ON_LINES_CALLS}\n",
        "I look.\n</think>\n",
    ),
    Family(
        "GigaChat 3",
        template(
            "{{- '<|function_call|>' }}" + NAMED,
            turn=("", "<|role_sep|>\n", "<|message_sep|>\n\n"),
            thought="''",
        ),
        f"<|function_call|>{_ONE}<|function_call|>{_OTHER}",
    ),
    Family(
        "Hunyuan",
        template(
            NAMED,
            "'<tool_calls>['",
            "']</tool_calls>'",
            "', '",
            turn=("<|hy_", "|>", "<|eos|>"),
            thought=_thought("<think>\n", "\n</think>\n"),
            text="'<answer>\\n' + message.content + '\\n</answer>'",
        ),
        f"<tool_calls>{_LIST}</tool_calls>",
        "<think>\nI look.\n</think>\n",
    ),
    Family(
        "Jamba",
        template(
            NAMED,
            "'<tool_calls>[\\n    '",
            "'\\n]</tool_calls>'",
            "',\\n    '",
            turn=("<|bom|><|", "|> ", "<|eom|>"),
            thought="''",
        ),
        f"<tool_calls>[\n    {_ONE},\n    {_OTHER}\n]</tool_calls>",
    ),
    Family(
        "Phi-4-mini",
        template(NAMED, "'<|tool_call|>['", "']<|/tool_call|>'", "', '", turn=_BARS, thought="''"),
        f"<|tool_call|>{_LIST}<|/tool_call|>",
    ),
    Family(
        "Solar Open",
        template(
            "{{- '<|tool_call:begin|>' + call.id + '<|tool_call:name|>' + name + '<|tool_call:args|>' "
            "+ given | tojson + '<|tool_call:end|>' }}",
            "'<|tool_calls|>'",
            turn=("<|begin|>", "", "<|end|>"),
            thought=_thought("<|think|>", "<|end|><|begin|>assistant"),
            text="'<|content|>' + message.content",
        ),
        f"<|tool_calls|><|tool_call:begin|>call00001<|tool_call:name|>get_weather<|tool_call:args|>{_PARIS}"
        f"<|tool_call:end|><|tool_call:begin|>call00002<|tool_call:name|>get_weather<|tool_call:args|>{_ROOM}"
        "<|tool_call:end|>",
        "<|think|>I look.<|end|><|begin|>assistant",
    ),
    Family(
        "DeepSeek V3.1",
        template(
            "{{- '<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + given | tojson + '<｜tool▁call▁end｜>' }}",
            "'<｜tool▁calls▁begin｜>'",
            "'<｜tool▁calls▁end｜>'",
            turn=_DEEPSEEK,
            assistant="Assistant",
            thought=_thought("<think>", "</think>"),
            prompt="'<think>'",
        ),
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{_PARIS}<｜tool▁call▁end｜>"
        f"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{_ROOM}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "I look.</think>",
    ),
    Family("DeepSeek V3.2", _dsml("function_calls"), _dsml_calls("function_calls"), "I look.</think>\n\n"),
    Family("DeepSeek V4", _dsml("tool_calls"), _dsml_calls("tool_calls"), "I look.</think>\n\n"),
    Family(
        "LFM2",
        template(PYTHON, "'<|tool_call_start|>['", "']<|tool_call_end|>'", "', '", turn=_CHATML, thought="''"),
        '<|tool_call_start|>[get_weather(city="Paris", days=3), get_weather(city="a b")]<|tool_call_end|>',
    ),
    Family(
        "LFM2.5",
        template(
            _SINGLE_QUOTED,
            "'<|tool_call_start|>['",
            "']<|tool_call_end|>'",
            "', '",
            turn=_CHATML,
            thought=_thought("<think>", "</think>"),
        ),
        "<|tool_call_start|>[get_weather(city='Paris', days=3), get_weather(city='a b')]<|tool_call_end|>",
        "<think>I look.</think>",
    ),
    Family(
        "MiniCPM 3",
        template(
            PYTHON,
            "'<|tool_call_start|>\\n```python\\n'",
            "'\\n```\\n<|tool_call_end|>'",
            "'\\n'",
            turn=_CHATML,
            thought=_thought("<|thought_start|>\n", "\n<|thought_end|>\n"),
        ),
        '<|tool_call_start|>\n```python\nget_weather(city="Paris", days=3)\nget_weather(city="a b")\n```\n'
        "<|tool_call_end|>",
        "<|thought_start|>\nI look.\n<|thought_end|>\n",
    ),
    Family(
        "MiniCPM 5",
        template(
            elements("'<function name=\"' + name + '\">'", "'<param name=\"' + key + '\">'", "'</param>'")
            + "{{- '</function>' }}",
            separator="'\\n'",
            turn=_CHATML,
            prompt="'<think>\\n'",
        ),
        '<function name="get_weather"><param name="city">Paris</param><param name="days">3</param></function>\n'
        '<function name="get_weather"><param name="city">a b</param></function>',
        "I look.\n</think>\n\n",
    ),
    Family(
        "InternLM 2",
        template(
            "{{- '<|action_start|><|plugin|>\\n' }}" + _WITH_PARAMETERS + "{{- '<|action_end|>' }}",
            turn=_CHATML,
            thought="''",
        ),
        f'<|action_start|><|plugin|>\n{{"name": "get_weather", "parameters": {_PARIS}}}<|action_end|>'
        f'<|action_start|><|plugin|>\n{{"name": "get_weather", "parameters": {_ROOM}}}<|action_end|>',
    ),
    Family("xLAM over Qwen", template(NAMED, "'['", "']'", "', '", turn=_CHATML, thought="''"), _LIST),
    Family("xLAM over Llama", template(NAMED, "'['", "']'", "', '", turn=_LLAMA3, thought="''"), _LIST),
    Family(
        "Functionary 3.1",
        template("{{- '<function=' + name + '>' + given | tojson + '</function>' }}", turn=_LLAMA3, thought="''"),
        f"<function=get_weather>{_PARIS}</function><function=get_weather>{_ROOM}</function>",
    ),
    Family(
        "Functionary 3.2",
        template(
            "{{- '>>>' + name + '\\n' + given | tojson }}",
            turn=_LLAMA3,
            thought="''",
            text="'>>>all\\n' + message.content",
            prompt="'>>>'",
        ),
        f"get_weather\n{_PARIS}>>>get_weather\n{_ROOM}",
    ),
    Family(
        "Hy3",
        template(
            elements(
                "'<tool_call:opensource>' + name + '<tool_sep:opensource>\\n'",
                "'<arg_key:opensource>' + key + '</arg_key:opensource>\\n<arg_value:opensource>'",
                "'</arg_value:opensource>\\n'",
            )
            + "{{- '</tool_call:opensource>\\n' }}",
            "'<tool_calls:opensource>\\n'",
            "'</tool_calls:opensource>'",
            turn=("<｜hy_", ":opensource｜>", "<｜hy_eos:opensource｜>"),
            assistant="Assistant",
            thought=_thought("<think:opensource>", "</think:opensource>"),
        ),
        "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
        "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Paris</arg_value:opensource>\n"
        "<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>3</arg_value:opensource>\n"
        "</tool_call:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
        "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>a b</arg_value:opensource>\n"
        "</tool_call:opensource>\n</tool_calls:opensource>",
        "<think:opensource>I look.</think:opensource>",
    ),
    Family(
        "Laguna S",
        template(
            elements("'<tool_call>' + name", "'<arg_key>' + key + '</arg_key><arg_value>'", "'</arg_value>'")
            + "{{- '</tool_call>' }}",
            turn=("<", ">", "</turn>\n"),
            thought=_thought("<think>", "</think>"),
        ),
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key>"
        "<arg_value>3</arg_value></tool_call>"
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a b</arg_value></tool_call>",
        "<think>I look.</think>",
    ),
    Family(
        "GLM 4.7, GLM 5",
        template(
            elements("'<tool_call>' + name", "'<arg_key>' + key + '</arg_key><arg_value>'", "'</arg_value>'")
            + "{{- '</tool_call>' }}",
            turn=("<|", "|>", ""),
            thought=_thought("<think>", "</think>"),
            prompt="'<think>'",
        ),
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key>"
        "<arg_value>3</arg_value></tool_call>"
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a b</arg_value></tool_call>",
        "I look.</think>",
    ),
    Family(
        "Qwen 3.5",
        template(
            _ON_LINES + "{{- '</function>\\n</tool_call>' }}", separator="'\\n'", turn=_CHATML, prompt="'<think>\\n'"
        ),
        _ON_LINES_CALLS,
        "I look.\n</think>\n\n",
    ),
)
