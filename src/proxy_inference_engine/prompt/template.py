"""A chat template: compiled once, rendered under a budget. Knows nothing of interactions or tokens."""

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.prompt.budget import MAX_CPU_SECONDS, Budget, BudgetExceeded, weigh
from proxy_inference_engine.prompt.filters import RenderContext
from proxy_inference_engine.prompt.sandbox import Sandbox

_MAX_SOURCE_CHARS = 1 << 20
_MAX_MESSAGE_CHARS = 500


class Template:
    """Safe to render from several threads at once. Every failure is an InvalidRequest with code `template_error`."""

    def __init__(self, source: str, *, cpu_seconds: float = MAX_CPU_SECONDS) -> None:
        if len(source) > _MAX_SOURCE_CHARS:
            _fail(f"the chat template is longer than {_MAX_SOURCE_CHARS} characters")
        self._cpu_seconds = cpu_seconds
        sandbox = Sandbox()
        try:
            self.variables = frozenset(find_undeclared_variables(sandbox.parse(source)))
            self._template = sandbox.from_string(sandbox.parse_guarded(source))
        except TemplateSyntaxError as error:
            _fail(f"the chat template cannot be read: {error.message} (line {error.lineno})")
        except TemplateError as error:
            _fail(f"the chat template cannot be read: {error.message}")
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            _fail("the chat template cannot be read: it is too deep or too large")

    def render(self, variables: Mapping[str, Any], now: datetime) -> str:
        try:
            return self._render(variables, now)
        except TemplateError as error:
            _fail(str(error.message or "the chat template failed"))
        except RecursionError:
            _fail("the chat template nests too deeply")
        except Exception:
            # The interpreter's own messages may quote the conversation.
            _fail("the chat template failed on this conversation")

    def _render(self, variables: Mapping[str, Any], now: datetime) -> str:
        context = self._template.new_context(dict(variables))
        assert isinstance(context, RenderContext)
        budget = Budget(weigh(list(variables.values()), sys.maxsize), self._cpu_seconds)
        context.budget, context.now = budget, now
        pieces = []
        num_chars = 0
        for piece in self._template.root_render_func(context):
            num_chars += len(piece)
            if num_chars > budget.max_size:
                raise BudgetExceeded("the chat template writes too much")
            pieces.append(piece)
        return "".join(pieces)


def _fail(message: str) -> NoReturn:
    raise InvalidRequest(message[:_MAX_MESSAGE_CHARS], code="template_error") from None
