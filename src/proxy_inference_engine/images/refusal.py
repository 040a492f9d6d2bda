"""Why an image is not taken. The words are for the client: no path, no address, nothing of a library's own."""

from typing import Literal

Code = Literal["invalid_image", "invalid_image_url", "url_not_allowed", "too_many_images"]


class ImageRefused(Exception):
    """`index` says which of the images of a request it is; the loader knows."""

    def __init__(self, reason: str, code: Code = "invalid_image") -> None:
        super().__init__(reason)
        self.reason = reason
        self.code: Code = code
        self.index = 0
