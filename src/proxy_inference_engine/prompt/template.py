"""A chat template: compiled once in a sandbox, rendered under a budget. Knows nothing of interactions or tokens.

The language is Jinja without anything that reaches out or grows without asking: a template sees plain data, the methods
listed here and what `filters.py` lists. What could take long or grow is rewritten, before compilation, into a call that
asks the budget of this rendering.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import StrictUndefined, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.prompt import filters
from proxy_inference_engine.prompt.budget import (
    MAX_CPU_SECONDS,
    Budget,
    BudgetExceeded,
    RenderContext,
    call_method,
    check_key,
    check_number,
    check_operation,
    formatter,
    join,
    weigh,
    write,
)

_MAX_SOURCE_CHARS = 1 << 20
_MAX_MESSAGE_CHARS = 500
_STR_METHODS = """
capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit isidentifier islower
isnumeric isprintable isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind
rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title upper
"""
_DICT_METHODS = "get items keys values"
_LIST_METHODS = "append extend insert pop"  # of lists that the template itself made
_LOOP_ATTRIBUTES = "cycle depth depth0 first index index0 last length nextitem previtem revindex revindex0"
_REACHABLE = (
    (str, frozenset(_STR_METHODS.split())),
    (dict, frozenset(_DICT_METHODS.split())),
    (list, frozenset(_LIST_METHODS.split())),
    (LoopContext, frozenset(_LOOP_ATTRIBUTES.split())),
)
_REFUSED_NODES = (
    nodes.Block,
    nodes.EvalContextModifier,
    nodes.Extends,
    nodes.FromImport,
    nodes.Import,
    nodes.Include,
    nodes.ScopedEvalContextModifier,
)


class Template:
    """Safe to render from several threads at once. Every failure is an InvalidRequest with code `template_error`."""

    def __init__(self, source: str, *, cpu_seconds: float = MAX_CPU_SECONDS) -> None:
        if len(source) > _MAX_SOURCE_CHARS:
            _fail(f"the chat template is longer than {_MAX_SOURCE_CHARS} characters")
        self.source = source
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


@pass_context
def _finalize(context: RenderContext, value: Any) -> str:
    text = write(context.budget, value)
    context.budget.spend(len(text))
    return text


class GenerationTag(Extension):
    """`{% generation %}` marks answers for training; for us its body is just text."""

    tags = {"generation"}  # noqa: RUF012 (declared so by Jinja)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """Compile what `parse_guarded` returns, and render it with a RenderContext."""

    context_class = RenderContext
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # the optimiser computes constants at compile time, past the budget
            extensions=[LoopControlExtension, GenerationTag],
            finalize=_finalize,
        )
        self.filters = dict(filters.FILTERS)
        self.tests = dict(filters.TESTS)
        self.globals = dict(filters.GLOBALS)

    def parse_guarded(self, source: str) -> nodes.Template:
        template = self.parse(source)
        _Guard().visit(template)
        return template

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind, names in _REACHABLE:
            if isinstance(obj, kind):
                return attr in names
        return type(obj) is Namespace and not attr.startswith("_")

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        # Strict, so that it cannot even be printed.
        return StrictUndefined(f"{attribute!r} is not available in chat templates", obj, attribute, SecurityError)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        if value.__name__ != "format":
            raise SecurityError(f"{value.__name__} is not available in chat templates")
        return formatter(value.__self__)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(obj, check_key(argument))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        assert isinstance(context, RenderContext)
        context.budget.tick()
        check_operation(context.budget, operator, left, right)
        return check_number(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        assert isinstance(__context, RenderContext)
        budget = __context.budget
        budget.tick()
        if getattr(__obj, "__self__", None) is __self:  # one of the guards below
            return __obj(budget, *args)
        if isinstance(__obj, BuiltinMethodType):
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            if isinstance(__obj.__self__, list) and __context.is_given(__obj.__self__):
                raise SecurityError("a chat template may change only lists of its own")
            return call_method(budget, __obj, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):
            budget.spend(len(result))
        return result

    def guard_loop(self, budget: Budget, num_chars: int) -> None:
        budget.spend(num_chars)

    def guard_concat(self, budget: Budget, *values: Any) -> str:
        return join(budget, "", values)

    def guard_slice(self, budget: Budget, value: Any, *bounds: Any) -> Any:
        if not isinstance(value, str | list | tuple | range | Undefined):
            raise SecurityError(f"a {type(value).__name__} cannot be sliced")
        result = value[slice(*bounds)]
        budget.spend(len(result) if isinstance(result, str) else 8 * len(result))
        return result

    def guard_operand(self, budget: Budget, value: Any) -> Any:
        value = list(value) if isinstance(value, Iterator) else value
        budget.weigh(value)
        return value

    def guard_key(self, budget: Budget, value: Any) -> Any:
        return check_key(value)


class _Guard(NodeTransformer):
    """Puts a call to one of the sandbox's guards where Jinja would act without asking."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        if isinstance(node, _REFUSED_NODES):
            raise TemplateSyntaxError(f"{type(node).__name__.lower()} is not available in chat templates", node.lineno)
        return super().generic_visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        num_chars = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        tick = _guard("guard_loop", node, nodes.Const(num_chars))
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _guard("guard_concat", node, *node.nodes)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        return _guard("guard_slice", node, node.node, *(bound or nodes.Const(None) for bound in bounds))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        sides = (node.expr, node.ops[0].expr)
        # Against a constant only the first level is looked at.
        if len(node.ops) > 1 or not any(isinstance(side, nodes.Const) for side in sides):
            node.expr = _guard("guard_operand", node, node.expr)
            for operand in node.ops:
                operand.expr = _guard("guard_operand", node, operand.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _guard("guard_key", node, node.key)
        return node


def _guard(name: str, node: nodes.Node, *args: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None, lineno=node.lineno)
