"""Chat templates of our own, one for each way to write calls, and what they write for the same two calls."""

from dataclasses import dataclass
from functools import cached_property

from proxy_inference_engine.formats import Format, detect
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax
from proxy_inference_engine.prompt.fitted_template import FittedTemplate, fit_template
from proxy_inference_engine.runners.fake import ByteTokenizer

_FRAME = """
{%- if tools %}{{- @TURN(system) + (tools | tojson) + @STOP }}{%- endif %}
{%- for message in messages %}
    {{- @TURN(message.role) }}
    {%- if message.reasoning_content %}{{- @THOUGHT }}{%- endif %}
    {%- if message.content %}{{- (@TEXT) if message.role == 'assistant' else message.content }}{%- endif %}
    {%- if message.tool_calls %}
        @BEGIN
        {%- for call in message.tool_calls %}
            {%- set name, given, number = call.function.name, call.function.arguments, loop.index0 | string %}
            @CALL
            {%- if not loop.last %}@SEPARATOR{%- endif %}
        {%- endfor %}
        @END
    {%- endif %}
    {{- @STOP }}
{%- endfor %}
{%- if add_generation_prompt %}{{- @TURN(assistant) + @PROMPT }}{%- endif %}
"""
_THOUGHT = "'<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n'"


def _print(expression: str) -> str:
    return f"{{{{- {expression} }}}}" if expression else ""


def template(
    call: str,
    begin: str = "",
    end: str = "",
    separator: str = "",
    *,
    turn: tuple[str, str, str] = ("<|role|>", "<|text|>", "<|stop|>"),
    assistant: str = "assistant",
    thought: str = _THOUGHT,
    text: str = "message.content",
    prompt: str = "",
) -> str:
    """A template; `call` is a piece of one, the others are expressions, but for `turn`: what stands before a role,
    behind it, and at the end of a message. `prompt`: what an answer is led to with.
    """
    before, after, stop = map(repr, turn)
    pieces = {
        "TURN(system)": f"{before} + 'system' + {after}",
        "TURN(message.role)": f"{before} + ('{assistant}' if message.role == 'assistant' else message.role) + {after}",
        "TURN(assistant)": f"{before} + '{assistant}' + {after}",
        "STOP": stop,
        "THOUGHT": thought,
        "TEXT": text,
        "PROMPT": prompt or "''",
        "BEGIN": _print(begin),
        "END": _print(end),
        "SEPARATOR": _print(separator),
        "CALL": call,
    }
    written = _FRAME
    for name, piece in pieces.items():
        written = written.replace(f"@{name}", piece)
    return written


def elements(before: str, key: str, after: str) -> str:
    """One element for each argument; all are expressions."""
    value = "value if value is string else value | tojson"
    pair = f"{{%- for key, value in given.items() %}}{_print(key)}{_print(value)}{_print(after)}{{%- endfor %}}"
    return _print(before) + pair


@dataclass(frozen=True)
class Written:
    """A template, and how it writes get_weather(city=Paris, days=3) and get_weather(city="a b")."""

    name: str
    template: str
    calls: str
    style: ArgumentStyle = ArgumentStyle.JSON

    def __str__(self) -> str:
        return self.name

    @cached_property
    def fitted(self) -> FittedTemplate:
        return fit_template(detect(self.template), self.template, ByteTokenizer())

    @property
    def format(self) -> Format:
        return self.fitted.format

    @property
    def syntax(self) -> CallSyntax:
        assert self.format.calls is not None
        return self.format.calls


MARKED = """
{%- macro marked(value) %}
    {%- if value is string %}{{- '<|q|>' + value + '<|q|>' }}
    {%- elif value is mapping %}
        {{- '{' }}{%- for key, each in value.items() %}
        {{- key + ':' + marked(each) + ('' if loop.last else ',') }}{%- endfor %}{{- '}' }}
    {%- elif value is iterable %}
        {{- '[' }}{%- for each in value %}{{- marked(each) + ('' if loop.last else ',') }}{%- endfor %}{{- ']' }}
    {%- else %}{{- value | tojson }}{%- endif %}
{%- endmacro %}
"""
NESTED = """
{%- macro nested(value) %}
    {%- if value is mapping %}
        {%- for key, each in value.items() %}{{- '#<' + key + '>' + nested(each) + '#</' + key + '>' }}{%- endfor %}
    {%- elif value is iterable and value is not string %}
        {%- for each in value %}{{- '#<one>' + nested(each) + '#</one>' }}{%- endfor %}
    {%- else %}{{- value if value is string else value | tojson }}{%- endif %}
{%- endmacro %}
"""
NAMED = "{{- '{\"name\": \"' + name + '\", \"arguments\": ' + given | tojson + '}' }}"
_PARIS, _ROOM = '{"city": "Paris", "days": 3}', '{"city": "a b"}'
_BOTH = f'{{"name": "get_weather", "arguments": {_PARIS}}}, {{"name": "get_weather", "arguments": {_ROOM}}}'
PYTHON = (
    "{{- name + '(' }}{%- for key, value in given.items() %}"
    "{{- key + '=' + (value | string if value is boolean else value | tojson) }}"
    "{{- '' if loop.last else ', ' }}{%- endfor %}{{- ')' }}"
)

CORPUS = (
    Written("a list in tags", template(NAMED, "'<CALLS>['", "']</CALLS>'", "', '"), f"<CALLS>[{_BOTH}]</CALLS>"),
    Written("a bare list", template(NAMED, "'['", "']'", "', '"), f"[{_BOTH}]"),
    Written("a list behind a word", template(NAMED, "'callthem['", "']'", "', '"), f"callthem[{_BOTH}]"),
    Written(
        "each in tags, without lines",
        template("{{- '<a_call>' }}" + NAMED + "{{- '</a_call>' }}"),
        "".join(f"<a_call>{call}</a_call>" for call in _BOTH.replace("}, {", "}|{").split("|")),
    ),
    Written(
        "the id behind",
        template(
            '{{- \'{"name": "\' + name + \'", "arguments": \' + given | tojson + \', "id": "\' + call.id + \'"}\' }}',
            "'[THE_CALLS]['",
            "']'",
            "', '",
        ),
        f'[THE_CALLS][{{"name": "get_weather", "arguments": {_PARIS}, "id": "call00001"}}, '
        f'{{"name": "get_weather", "arguments": {_ROOM}, "id": "call00002"}}]',
    ),
    Written(
        "a number before",
        template(
            '{{- \'\\n  {"call": "\' + number + \'", "tool": "\' + name + \'", "given": \' + given | tojson + \'}\' }}',
            "'<|act|>['",
            "'\\n]<|end_act|>'",
            "','",
        ),
        f'<|act|>[\n  {{"call": "0", "tool": "get_weather", "given": {_PARIS}}},'
        f'\n  {{"call": "1", "tool": "get_weather", "given": {_ROOM}}}\n]<|end_act|>',
    ),
    Written(
        "the name as a key",
        template("{{- '{\"' + name + '\": ' + given | tojson + '}' }}", "'<|call|:>['", "']<|:call|>'", "', '"),
        f'<|call|:>[{{"get_weather": {_PARIS}}}, {{"get_weather": {_ROOM}}}]<|:call|>',
    ),
    Written(
        "the name in the id",
        template(
            "{{- '<|one|>' + call.id + '<|given|>' + given | tojson + '<|one_end|>' }}", "'<|some|>'", "'<|all|>'"
        ),
        f"<|some|><|one|>functions.get_weather:0<|given|>{_PARIS}<|one_end|>"
        f"<|one|>functions.get_weather:1<|given|>{_ROOM}<|one_end|><|all|>",
    ),
    Written(
        "the id between tokens",
        template("{{- '<|one|>' + call.id + '<|name|>' + name + '<|given|>' + given | tojson + '<|one_end|>' }}"),
        f"<|one|>call00001<|name|>get_weather<|given|>{_PARIS}<|one_end|>"
        f"<|one|>call00002<|name|>get_weather<|given|>{_ROOM}<|one_end|>",
    ),
    Written(
        "fenced, arguments as text, no content",
        template(
            "{%- if message.content is none %}{{- '<|one|>' + name + '\\n```json\\n' + given + '\\n```<|one_end|>' }}"
            "{%- endif %}",
            "'<|some|>'",
            "'<|some_end|>'",
            "'\\n'",
        ),
        f"<|some|><|one|>get_weather\n```json\n{_PARIS}\n```<|one_end|>\n"
        f"<|one|>get_weather\n```json\n{_ROOM}\n```<|one_end|><|some_end|>",
    ),
    Written(
        "a name in a tag",
        template("{{- '<do=' + name + '>' + given | tojson + '</do>' }}"),
        f"<do=get_weather>{_PARIS}</do><do=get_weather>{_ROOM}</do>",
    ),
    Written(
        "elements on lines",
        template(
            elements("'<run>\\n<do=' + name + '>\\n'", "'<with=' + key + '>\\n'", "'\\n</with>\\n'")
            + "{{- '</do>\\n</run>' }}",
            separator="'\\n'",
        ),
        "<run>\n<do=get_weather>\n<with=city>\nParis\n</with>\n<with=days>\n3\n</with>\n</do>\n</run>\n"
        "<run>\n<do=get_weather>\n<with=city>\na b\n</with>\n</do>\n</run>",
        ArgumentStyle.TAGS,
    ),
    Written(
        "pairs of elements",
        template(elements("'<run>' + name", "'<k>' + key + '</k><v>'", "'</v>'") + "{{- '</run>' }}"),
        "<run>get_weather<k>city</k><v>Paris</v><k>days</k><v>3</v></run><run>get_weather<k>city</k><v>a b</v></run>",
        ArgumentStyle.TAGS,
    ),
    Written(
        "elements that wrap what is hard",
        template(
            "{{- '<do name=\"' + name + '\">' }}{%- for key, value in given.items() %}{{- '<p name=\"' + key + '\">' }}"
            "{{- '<![RAW[' + value + ']]>' if value is string and ' ' in value else value if value is string "
            "else value | tojson }}{{- '</p>' }}{%- endfor %}{{- '</do>' }}",
            separator="'\\n'",
        ),
        '<do name="get_weather"><p name="city">Paris</p><p name="days">3</p></do>\n'
        '<do name="get_weather"><p name="city"><![RAW[a b]]></p></do>',
        ArgumentStyle.TAGS,
    ),
    Written(
        "elements that say what is text",
        template(
            elements(
                "'<do name=\"' + name + '\">\\n'",
                "'<p name=\"' + key + '\" text=\"' + ('yes' if value is string else 'no') + '\">'",
                "'</p>\\n'",
            )
            + "{{- '</do>\\n' }}",
            "'<|run|>\\n'",
            "'<|end_run|>'",
        ),
        '<|run|>\n<do name="get_weather">\n<p name="city" text="yes">Paris</p>\n<p name="days" text="no">3</p>\n</do>\n'
        '<do name="get_weather">\n<p name="city" text="yes">a b</p>\n</do>\n<|end_run|>',
        ArgumentStyle.TAGS,
    ),
    Written(
        "elements with types and numbers",
        template(
            elements(
                "'<|open|>do name=\"' + name + '\" number=\"' + number + '\"<|sep|>'",
                "'<|open|>p key=\"' + key + '\" type=\"' + "
                "('string' if value is string else 'boolean' if value is boolean else 'number' if value is number "
                "else 'array') + '\"<|sep|>'",
                "'<|close|>p<|sep|>'",
            )
            + "{{- '<|close|>do<|sep|>' }}",
            "'<|open|>run<|sep|>'",
            "'<|close|>run<|sep|>'",
        ),
        '<|open|>run<|sep|><|open|>do name="get_weather" number="0"<|sep|><|open|>p key="city" type="string"<|sep|>'
        'Paris<|close|>p<|sep|><|open|>p key="days" type="number"<|sep|>3<|close|>p<|sep|><|close|>do<|sep|>'
        '<|open|>do name="get_weather" number="1"<|sep|><|open|>p key="city" type="string"<|sep|>a b<|close|>p<|sep|>'
        "<|close|>do<|sep|><|close|>run<|sep|>",
        ArgumentStyle.TAGS,
    ),
    Written(
        "elements within elements",
        NESTED
        + template("{{- '#<do name=\"' + name + '\">' + nested(given) + '#</do>\\n' }}", "'#<run>\\n'", "'#</run>'"),
        '#<run>\n#<do name="get_weather">#<city>Paris#</city>#<days>3#</days>#</do>\n'
        '#<do name="get_weather">#<city>a b#</city>#</do>\n#</run>',
        ArgumentStyle.TAGS,
    ),
    Written(
        "pairs between signs",
        template(
            elements("'<|run|>do:' + name + '{'", "key + ':<esc>'", "'<esc>' + ('' if loop.last else ',')")
            + "{{- '}<|end_run|>' }}"
        ),
        "<|run|>do:get_weather{city:<esc>Paris<esc>,days:<esc>3<esc>}<|end_run|>"
        "<|run|>do:get_weather{city:<esc>a b<esc>}<|end_run|>",
        ArgumentStyle.TAGS,
    ),
    Written(
        "strings between marks",
        MARKED + template("{{- '<|run>do:' + name + marked(given) + '<run|>' }}"),
        "<|run>do:get_weather{city:<|q|>Paris<|q|>,days:3}<run|><|run>do:get_weather{city:<|q|>a b<|q|>}<run|>",
        ArgumentStyle.MARKED,
    ),
    Written(
        "Python in tokens",
        template(PYTHON, "'<|py|>['", "']<|end_py|>'", "', '"),
        '<|py|>[get_weather(city="Paris", days=3), get_weather(city="a b")]<|end_py|>',
        ArgumentStyle.PYTHON,
    ),
    Written(
        "Python on lines of a fence",
        template(PYTHON, "'<|run|>\\n```python\\n'", "'\\n```\\n<|end_run|>'", "'\\n'"),
        '<|run|>\n```python\nget_weather(city="Paris", days=3)\nget_weather(city="a b")\n```\n<|end_run|>',
        ArgumentStyle.PYTHON,
    ),
    Written(
        "bare Python",
        template(PYTHON, "'['", "']'", "', '"),
        '[get_weather(city="Paris", days=3), get_weather(city="a b")]',
        ArgumentStyle.PYTHON,
    ),
)
