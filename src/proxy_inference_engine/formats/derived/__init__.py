from proxy_inference_engine.formats.derived.fit import Specials, fit
from proxy_inference_engine.formats.derived.probe import Render

__all__ = ["Render", "Specials", "fit"]
