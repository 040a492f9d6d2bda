"""Templates that come with a model file are code of strangers: robustness.md, G2 and the render budget."""

import time
from datetime import datetime
from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.prompt.template import Template

resource = pytest.importorskip("resource")

NOW = datetime(2026, 7, 26)
DATA: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
CPU_SECONDS = 0.1

BIG = "{% set s = 'ab' * 400000 %}"
HOARD = BIG + "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ns.l + [ITEM] %}{% endfor %}"
LISTS = "{% set a = [1] %}{% set b = [1] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60
TUPLES = "{% set a = (1,) %}" + "{% set a = (a, a) %}" * 60

ESCAPES = """
{{ cycler.__init__.__globals__ }}
{{ lipsum.__globals__ }}
{{ lipsum(n=1000000) }}
{{ ''|attr('format') }}
{{ ''.format_map({}) }}
{{ '{0.__class__}'.format(1) }}
{{ ''.__class__.__mro__ }}
{{ ''['__class__'].mro() }}
{{ messages.append(1) }}
{{ messages[0].update({}) }}
{{ messages[0].pop('role') }}
{{ raise_exception.__globals__ }}
{{ self.__dict__ }}
{{ ''.__class__ ~ '' }}
{{ strftime_now.__func__.x }}
{{ namespace.__init__.__globals__ }}
{{ self._TemplateReference__context.x }}
{{ (messages|map('upper')).gi_frame.f_back }}
{% include 'x' %}
{% import 'x' as y %}
{% from 'x' import y %}
{% extends 'x' %}
{% block a %}{{ self.a() }}{% endblock %}
{% autoescape true %}{{ '<' }}{% endautoescape %}
""".strip().splitlines()

BOMBS = [
    "{{ range(10**9)|list }}",
    "{% for i in range(10**9) %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ 10**9 * 'a' }}",
    "{{ [0] * 10**9 }}",
    "{{ 9 ** 9999999 }}",
    "{% set ns = namespace(n=2) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{{ 'a' * 100 }}{% endfor %}",
    "{% for i in range(100000) %}" + "a" * 100 + "{% endfor %}",
    "{% set x %}{% for i in range(100000) %}" + "a" * 10000 + "{% endfor %}{% endset %}",
    "{{ range(100000)|map('string')|map('upper')|map('lower')|map('trim')|map('length')|list|length }}",
    "{% set a = 'x' * 1000 %}" + "{% set a = a ~ a %}" * 60,
    "{% set a = 'x' * 1000 %}" + "{% set a = a + a %}" * 60,
    "{% set a = [1] %}" + "{% set a = a + a %}" * 60,
    *(LISTS + use for use in ("{{ a }}", "{{ a|tojson }}", "{{ a|string|length }}", "{{ a ~ '' }}", "{{ [a]|join }}")),
    *(LISTS + use for use in ("{{ a == b }}", "{{ a is eq(b) }}", "{{ a in [b] }}", "{{ [a, b]|sort }}")),
    *(
        LISTS + use
        for use in ("{{ [a, b]|unique|list }}", "{{ [a, b]|max }}", "{{ a is lower }}", "{{ '{}'.format(a) }}")
    ),
    *(LISTS + use for use in ("{{ raise_exception(a) }}", "{{ namespace(a=a) }}", "{{ [a]|select('in', [b])|list }}")),
    *(TUPLES + use for use in ("{{ {a: 1} }}", "{{ {}[a] }}", "{{ {}.get(a) }}", "{{ a in {} }}")),
    *(TUPLES + use for use in ("{{ [a]|unique|list }}", "{{ dict([(a, a)]) }}", "{{ namespace([(a, a)]) }}")),
    *(BIG + use for use in ("{{ s.replace('a', s) }}", "{{ s|replace('', s) }}", "{{ range(100000)|join(s) }}")),
    *(BIG + use for use in ("{{ ([s] * 100000)|join }}", "{{ ([s] * 1000)|tojson }}", "{{ s.join([''] * 1000) }}")),
    *(
        BIG + use
        for use in ("{{ s.rfind('ab' * 200000 + 'b') }}", "{{ s.strip('c' * 300000 + 'ab') }}", "{{ s }}{{ s }}")
    ),
    *(BIG + "{{ '" + "{0}" * 100 + "'.format(s) }}", BIG + "{{ ('\n' * 1000)|indent(s) }}"),
    "{{ 'a'.ljust(10**9) }}",
    "{{ '\\t'.expandtabs(10**9) }}",
    "{{ 'a'|center(10**9) }}",
    "{{ 'a\nb'|indent(10**9) }}",
    "{{ [1]|tojson(indent=10**9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%1000000000s' % missing }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '%1000000000d' is odd }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ strftime_now('%Y' * 100000) }}",
    "{{ 1.5|round(10**9, 'ceil') }}",
    "{{ ([[1]] * 10000)|sum(start=[]) }}",
    "{{ messages[0].keys() - messages[0].keys() }}",
    *(HOARD.replace("ITEM", item) for item in ("s[1:]", "s|upper", "s.upper()", "s ~ i", "s.split('b')", "s|list")),
    *(HOARD.replace("ITEM", item) for item in ("range(100000)|list", "s.partition('b')", "s.replace('a', 'b')")),
    HOARD.replace("{% for", "{% macro m() %}{{ s }}{% endmacro %}{% for").replace("ITEM", "m()"),
    "{% set ns = namespace(l=[1] * 9000) %}{% for i in range(900) %}{% set ns.l = [ns.l] %}{% endfor %}"
    "{{ ns.l|tojson(indent=64) }}",
    "{{ " + "(" * 6000 + "1" + ")" * 6000 + " }}",
    "{% if 1 %}" * 6000 + "{% endif %}" * 6000,
    "{{ 1" + "+1" * 20000 + " }}",
    "{{ " + "9" * 100000 + " }}",
]


def fails(source: str, cpu_seconds: float = CPU_SECONDS) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Template(source, cpu_seconds=cpu_seconds).render(DATA, NOW)
    assert caught.value.code == "template_error"
    assert len(caught.value.message) <= 500


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    fails(source)


@pytest.mark.parametrize("source", BOMBS, ids=lambda source: source[-40:])
def test_bombs_end_in_an_error_soon_and_small(source: str) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.thread_time()
    fails(source)
    assert time.thread_time() - start < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300_000  # KiB


def test_the_whole_second_is_granted_and_no_more() -> None:
    start = time.thread_time()
    fails("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", cpu_seconds=1.0)
    assert 0.9 < time.thread_time() - start < 30


def test_output_may_be_four_times_the_input_and_a_mebibyte() -> None:
    content = "x" * (1 << 20)
    template = Template("{% for i in range(n) %}{{ messages[0].content }}{% endfor %}")
    data: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
    assert len(template.render(data | {"n": 5}, NOW)) == 5 << 20
    with pytest.raises(InvalidRequest, match="writes too much"):
        template.render(data | {"n": 6}, NOW)
