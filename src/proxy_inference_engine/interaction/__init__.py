from proxy_inference_engine.interaction.content import Content, ContentType
from proxy_inference_engine.interaction.interaction import Interaction
from proxy_inference_engine.interaction.role import Role
from proxy_inference_engine.interaction.tool import TextGrammar, Tool, ToolCall, ToolKind

__all__ = ["Content", "ContentType", "Interaction", "Role", "TextGrammar", "Tool", "ToolCall", "ToolKind"]
