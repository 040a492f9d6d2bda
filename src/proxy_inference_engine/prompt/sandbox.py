"""The language chat templates are written in: Jinja without anything that reaches out or grows without asking.

A template sees plain data, the methods listed here and what `filters.py` lists. What could take long or grow is
rewritten, before compilation, into a call that asks the budget of this rendering.
"""

from collections.abc import Callable, Iterator
from types import BuiltinMethodType
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from proxy_inference_engine.prompt import filters, operations
from proxy_inference_engine.prompt.budget import Budget
from proxy_inference_engine.prompt.filters import RenderContext

_STR_METHODS = """
capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit isidentifier islower
isnumeric isprintable isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind
rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title upper
"""
_DICT_METHODS = "get items keys values"
_LOOP_ATTRIBUTES = "cycle depth depth0 first index index0 last length nextitem previtem revindex revindex0"
_REACHABLE = (
    (str, frozenset(_STR_METHODS.split())),
    (dict, frozenset(_DICT_METHODS.split())),
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


@pass_context
def _finalize(context: RenderContext, value: Any) -> str:
    text = filters.write(context.budget, value)
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
        return operations.formatter(value.__self__)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(obj, operations.check_key(argument))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        assert isinstance(context, RenderContext)
        context.budget.tick()
        operations.check_operation(context.budget, operator, left, right)
        return operations.check_number(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        assert isinstance(__context, RenderContext)
        budget = __context.budget
        budget.tick()
        if getattr(__obj, "__self__", None) is __self:  # one of the guards below
            return __obj(budget, *args)
        if isinstance(__obj, BuiltinMethodType):
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return operations.call_method(budget, __obj, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):
            budget.spend(len(result))
        return result

    def guard_loop(self, budget: Budget, num_chars: int) -> None:
        budget.spend(num_chars)

    def guard_concat(self, budget: Budget, *values: Any) -> str:
        return filters.join(budget, "", values)

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
        return operations.check_key(value)


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
