import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.prompt.template import Template

NOW = datetime(2026, 7, 26, 12, 30)
DATA: dict[str, Any] = {
    "messages": [{"role": "user", "content": " Hi <b> "}, {"role": "assistant", "content": "é"}],
    "tool": {"name": "f", "parameters": {"b": [1, None, True], "a": "<é>'\""}},
    "empty": [],
}


def render(source: str, **variables: Any) -> str:
    return Template(source).render(DATA | variables, NOW)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ m.role }}:{{ m['content'] | trim }};{% endfor %}", "user:Hi <b>;assistant:é;"),
        ("{% for m in messages %}\n  {% if true %}\nx\n  {% endif %}\n{% endfor %}\n", "x\nx\n"),
        ("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ loop.index }}{% endfor %}", "1"),
        ("{% for m in messages if m.role == 'user' %}{{ loop.length }}{% else %}none{% endfor %}", "1"),
        ("{% for m in empty %}{% else %}none{% endfor %}", "none"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{% macro tag(x, end='>') %}<{{ x }}{{ end }}{% endmacro %}{{ tag('a') ~ tag('b', end='/>') }}", "<a><b/>"),
        ("{% set x %}{{ 1 + 1 }}!{% endset %}{{ x }}", "2!"),
        ("{% macro wrap() %}[{{ caller() }}]{% endmacro %}{% call wrap() %}in{% endcall %}", "[in]"),
        ("{% generation %}a{% for m in messages %}{{ loop.index }}{% endfor %}{% endgeneration %}b", "a12b"),
        ("{{ '%s=%s, %d%%' | format('a', tool.name, 7) }} {{ '%(x)s' | format(x=1) }}", "a=f, 7% 1"),
        ("{{ ('{\"a\": [1, null]}' | from_json).a[0] }}{{ (tool | fromjson).name }}", "1f"),
        (
            "{% set found = [] %}{% for m in messages %}{{ found.append(m.role) or '' }}{% endfor %}"
            "{{ found | join(',') }}{% set _ = found.pop(0) %}{{ found | length }}",
            "user,assistant1",
        ),
        ("{{ messages[1:][0].role }} {{ messages[::-1][0].content }} {{ 'abc'[-2:] }}", "assistant é bc"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user, assistant"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        (
            "{{ messages | rejectattr('role', 'in', ['user']) | first | tojson }}",
            '{"role": "assistant", "content": "é"}',
        ),
        ("{{ (tool | items | list)[0] }} {{ tool | dictsort | length }}", "('name', 'f') 2"),
        ("{% for k, v in tool.parameters | dictsort %}{{ k }}{% endfor %}", "ab"),
        ("{% for k, v in tool.items() %}{{ k }},{% endfor %}{{ tool.get('x', 'd') }}", "name,parameters,d"),
        ("{{ 'a-b'.split('-') | last }}{{ '-'.join(['x', 'y']) }}{{ 'aXa'.replace('a', 'b') }}", "bx-ybXb"),
        ("{{ '<{}|{name}>'.format('a', name=1) }}", "<a|1>"),
        ("{{ 'x'.startswith(('x', 'y')) }} {{ ' x '.strip() }} {{ 'Ab' | upper }}{{ 'Ab'.lower() }}", "True x ABab"),
        ("{{ missing | default('d') }}{{ missing }}{{ none }}{{ 1.5 }}{{ [1, 'a'] }}", "dNone1.5[1, 'a']"),
        (
            "{{ (1, 2) == (1, 2) }} {{ messages[0] == messages[1] }} {{ 3 in [1, 3] }} {{ 1 < 2 < 3 }}",
            "True False True True",
        ),
        ("{{ tool is mapping }}{{ 'x' is string }}{{ 4 is even }}{{ missing is not defined }}", "TrueTrueTrueTrue"),
        ("{{ {'a': 1, 'b': {'c': 2}}.b.c }}{{ {'a' ~ 1: 2}['a1'] }}", "22"),
        ("{{ 'a\nb' | indent(2) }}{{ [3, 1, 2] | sort }}{{ ['a', 'a'] | unique | list }}", "a\n  b[1, 2, 3]['a']"),
        ("{{ '-' * 3 }}{{ [0] * 2 }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ -3 | abs }}", "---[0, 0]3310243"),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2026"),
        ("{% for m in messages %}{% set day = '%d' %}{{ strftime_now(day) }}{% endfor %}", "2626"),
        ("{{ 'abab' | replace('a', 'x', 1) }}{{ 'abc' | reverse }}{{ [1, 2] | reverse | list }}", "xbabcba[2, 1]"),
        (
            "{{ dict(a=1) }}{{ [[1], [2]] | list }}{{ 'it is' | title }}{{ 'x' | capitalize }}",
            "{'a': 1}[[1], [2]]It IsX",
        ),
        ("{{ '<a>' | safe + '<b>' }}{{ '<' | e }}", "<a><b>&lt;"),
        ("{{ range(3) | list }}{{ [1, 2] | sum }}{{ 2.567 | round(1) }}{{ '7' | int + 1 }}", "[0, 1, 2]32.68"),
    ],
)
def test_templates_render_as_on_hugging_face(source: str, expected: str) -> None:
    assert render(source) == expected


@pytest.mark.parametrize("options", ["", "indent=2", "ensure_ascii=true", "sort_keys=true", "separators=(',', ':')"])
def test_tojson_is_json_dumps_without_html_escapes(options: str) -> None:
    names: dict[str, Any] = {"indent=2": {"indent": 2}, "ensure_ascii=true": {"ensure_ascii": True}}
    names |= {"sort_keys=true": {"sort_keys": True}, "separators=(',', ':')": {"separators": (",", ":")}}
    expected = json.dumps(DATA["tool"], **{"ensure_ascii": False} | names.get(options, {}))
    assert render(f"{{{{ tool | tojson({options}) }}}}") == expected


def test_variables_are_what_the_template_reads() -> None:
    template = Template("{% set a = 1 %}{{ a }}{{ messages }}{% if enable_thinking %}{{ range(2) }}{% endif %}")
    assert template.variables == {"messages", "enable_thinking"}


def test_the_template_says_itself_what_is_wrong() -> None:
    with pytest.raises(InvalidRequest, match=r"^roles must alternate$") as caught:
        render("{{ raise_exception('roles must alternate') }}")
    assert caught.value.code == "template_error" and caught.value.status == 400


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ tool.missing.deeper }}", "'dict object' has no attribute 'missing'"),
        ("{{ 'a' + none }}", r"cannot compute str \+ NoneType"),
        ("{{ tool[1:] }}", "a dict cannot be sliced"),
        ("{{ 1 / 0 }}", "failed on this conversation"),
        ("{{ messages[0].content.index('secret') }}", "failed on this conversation"),
        ("{{ messages[0].content | tojson(nonsense=1) }}", "failed on this conversation"),
    ],
)
def test_errors_are_plain_and_quote_nothing(source: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        render(source)
    assert caught.value.code == "template_error"
    assert "Hi <b>" not in caught.value.message and len(caught.value.message) <= 500
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize(
    "source",
    ["{% for %}", "{{ x | nosuchfilter }}", "{{ x is nosuchtest }}", "{{ 'x", "{% if x %}", "a" * ((1 << 20) + 1)],
)
def test_broken_templates_are_refused_when_they_are_read(source: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Template(source)
    assert caught.value.code == "template_error"


def test_one_template_renders_in_many_threads() -> None:
    template = Template(
        "{% set ns = namespace(s='') %}{% for i in range(50) %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.s }}"
    )
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: template.render({"x": str(x)}, NOW), range(64)))
    assert results == [str(x) * 50 for x in range(64)]


def test_a_long_conversation_fits_the_budget() -> None:
    messages = [{"role": "user", "content": "x" * 200}] * 4096
    source = (
        "{% for m in messages %}{% if loop.index0 == messages | length - 1 %}!{% endif %}{{ m.content }}{% endfor %}"
    )
    assert len(render(source, messages=messages)) == 4096 * 200 + 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ messages.append(1) }}", "only lists of its own"),
        ("{{ messages[0].parts.append(1) }}", "only lists of its own"),
        ("{% set x = messages %}{{ x.pop() }}", "only lists of its own"),
        ("{{ '%999999999s' | format('a') }}", "plain fields"),
        ("{{ '%*d' | format(9, 1) }}", "plain fields"),
        ("{{ '[' | from_json }}", "no JSON"),
        ("{% set x = [] %}{{ x.append(x) }}{{ x }}", "too large"),
        ("{% set x = [1] %}{% for i in x %}{{ x.append(i) }}{% endfor %}", "too "),
        ("{{ [].__class__ }}", "not available"),
        ("{{ [3].sort() }}", "not available"),
    ],
)
def test_lists_and_formats_stay_within_bounds(source: str, reason: str) -> None:
    given = {"messages": [{"role": "user", "parts": [1]}]}
    with pytest.raises(InvalidRequest) as raised:
        Template(source).render(given, NOW)
    assert reason in raised.value.message
    assert given == {"messages": [{"role": "user", "parts": [1]}]}
