"""How every wire format says that there is an image: where it is, and how errors name it."""

from proxy_inference_engine.interaction import Content, ContentType
from proxy_inference_engine.prompt.pictures import PARAM

URL = "url"


def image_content(url: str, detail: str | None, param: str) -> Content:
    return Content(ContentType.IMAGE, data={URL: url, "detail": detail, PARAM: param})
