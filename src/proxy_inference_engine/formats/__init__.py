from proxy_inference_engine.formats.base import Format, ToolPlace
from proxy_inference_engine.formats.detect import FORMATS, by_name, choose_format, detect

__all__ = ["FORMATS", "Format", "ToolPlace", "by_name", "choose_format", "detect"]
