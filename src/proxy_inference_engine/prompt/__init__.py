from proxy_inference_engine.prompt.render import Prompt, PromptRenderer

__all__ = ["Prompt", "PromptRenderer"]
