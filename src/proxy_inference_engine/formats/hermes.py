"""The most common way to write calls: JSON inside `<tool_call>` tags. Shared by several families."""

from proxy_inference_engine.formats.syntax import CallSyntax

HERMES_CALLS = CallSyntax(
    opening="<tool_call>",
    before_name='<tool_call>\n{"name": "',
    between='", "arguments": ',
    after="}\n</tool_call>",
)
HERMES_TOKENS = frozenset({"<tool_call>", "</tool_call>"})
