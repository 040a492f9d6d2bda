from proxy_inference_engine.interaction.content import Content, ContentType
from proxy_inference_engine.interaction.interaction import Interaction
from proxy_inference_engine.interaction.role import Role

__all__ = ["Content", "ContentType", "Interaction", "Role"]
