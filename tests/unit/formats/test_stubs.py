"""Tools as Python code, for models that call in Python."""

from proxy_inference_engine.formats.convention import Convention
from proxy_inference_engine.formats.gemma3 import GEMMA3
from proxy_inference_engine.formats.stubs import python_stub, required_first
from proxy_inference_engine.interaction import Tool, ToolKind

WEATHER = Tool(
    "get_weather",
    description="Tells the weather.",
    parameters={
        "type": "object",
        "properties": {
            "days": {"type": "integer"},
            "city": {"type": "string", "description": "Where,\n  exactly."},
            "unit": {"enum": ["C", "F"]},
            "places": {"type": "array", "items": {"type": "number"}},
            "any": True,
            "maybe": {"type": ["string", "null"]},
        },
        "required": ["city"],
    },
)


def test_a_tool_is_a_function_without_a_body() -> None:
    assert python_stub(WEATHER) == (
        "def get_weather(city: str, days: int = None, unit: Literal['C', 'F'] = None, places: list[float] = None, "
        "any: Any = None, maybe: str | None = None):\n"
        '    """Tells the weather.\n\n    Args:\n        city: Where, exactly.\n    """'
    )
    assert python_stub(Tool("ping")) == "def ping():\n    ..."
    assert python_stub(Tool("ping", description="Pings.")) == 'def ping():\n    """Pings."""'
    assert python_stub(Tool("note", kind=ToolKind.CUSTOM)) == "def note(input: str):\n    ..."


def test_what_is_required_comes_first() -> None:
    assert required_first(WEATHER)[:2] == ["city", "days"]


def test_gemma_reads_them() -> None:
    assert GEMMA3.calls is not None
    described = Convention(GEMMA3.calls, GEMMA3.result_tags).describe([WEATHER])
    assert "def get_weather(city: str," in described and "```tool_code\nname(parameter=value)\n```" in described
