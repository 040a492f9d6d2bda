"""Tools as clients of the Responses API write them: flat, in namespaces, or to be searched for. Shape only."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag

from proxy_inference_engine.server.apis.shared.fields import Nullable, never
from proxy_inference_engine.server.apis.shared.tools import (
    MAX_TOOLS,
    Definition,
    JsonSchemaObject,
    Syntax,
    TextFormat,
    ToolName,
    bounded_together,
    by_type,
)
from proxy_inference_engine.server.http.wire import dumps

NamespaceName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]


class Namespaced(Nullable):
    namespace: NamespaceName | None = None


class _Deferrable(Nullable):
    defer_loading: bool | None = None  # everything is loaded at once
    allowed_callers: Annotated[None, never(["direct"], ["direct", "programmatic"])] = None


class FlatFunction(_Deferrable):
    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: JsonSchemaObject | None = None
    strict: bool | None = None
    output_schema: dict[str, Any] | None = None  # what the tool gives is the client's affair
    async_: Annotated[None, never(False)] = Field(None, alias="async")

    @property
    def num_schema_bytes(self) -> int:
        return len(dumps(self.parameters).encode())


class FlatGrammar(Nullable):
    type: Literal["grammar"]
    syntax: Syntax
    definition: Definition


class FlatCustom(_Deferrable):
    type: Literal["custom"]
    name: ToolName
    description: str | None = None
    format: (
        Annotated[
            Annotated[TextFormat, Tag("<text>")] | Annotated[FlatGrammar, Tag("<grammar>")],
            by_type("text", "grammar"),
        ]
        | None
    ) = None

    @property
    def num_schema_bytes(self) -> int:
        return len(self.format.definition.encode()) if isinstance(self.format, FlatGrammar) else 0


class HostedTool(Nullable):
    """A tool, or a choice of one, that some other server hosts."""

    model_config = ConfigDict(extra="allow")
    type: Annotated[str, Field(min_length=1, max_length=64)]

    @property
    def num_schema_bytes(self) -> int:
        return 0


def of_type(*types: str) -> Discriminator:
    def tag(value: object) -> str:
        # It also tells apart what is checked already, when that is written out.
        kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return f"<{kind}>" if isinstance(kind, str) and kind in types else "<other>"

    return Discriminator(tag)


InnerTool = Annotated[
    Annotated[FlatFunction, Tag("<function>")]
    | Annotated[FlatCustom, Tag("<custom>")]
    | Annotated[HostedTool, Tag("<other>")],
    of_type("function", "custom"),
]


class NamespaceTool(Nullable):
    """Tools that belong together, such as those of an MCP server."""

    type: Literal["namespace"]
    name: NamespaceName
    description: str | None = None
    tools: Annotated[list[InnerTool], Field(max_length=MAX_TOOLS, fail_fast=True)]

    @property
    def num_schema_bytes(self) -> int:
        return sum(tool.num_schema_bytes for tool in self.tools)


class ToolSearch(Nullable):
    """A search for tools. One that the client makes is a tool itself; another has nothing to find: all are offered."""

    type: Literal["tool_search"]
    execution: Literal["client", "server"] | None = None
    description: str | None = None
    parameters: JsonSchemaObject | None = None

    @property
    def num_schema_bytes(self) -> int:
        return len(dumps(self.parameters).encode())


AnyTool = FlatFunction | FlatCustom | NamespaceTool | ToolSearch | HostedTool
FlatTool = Annotated[
    Annotated[FlatFunction, Tag("<function>")]
    | Annotated[FlatCustom, Tag("<custom>")]
    | Annotated[NamespaceTool, Tag("<namespace>")]
    | Annotated[ToolSearch, Tag("<tool_search>")]
    | Annotated[HostedTool, Tag("<other>")],
    of_type("function", "custom", "namespace", "tool_search"),
]


FlatTools = Annotated[list[FlatTool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(bounded_together)]
