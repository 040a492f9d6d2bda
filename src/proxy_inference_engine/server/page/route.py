"""GET / and /page/…: the playground. It needs no key to be read; what it asks of the API does, where there are keys."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

_FILES = Path(__file__).parent / "files"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
INDEX, DOCS = "index.html", "docs.html"
SETTINGS = "settings.json"
# Nothing from another host, nothing inline, in no other page's frame.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'{others}; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)


class PageFile(NamedTuple):
    data: bytes
    media_type: str
    tag: str

    @classmethod
    def of(cls, name: str, data: bytes) -> "PageFile":
        return cls(data, _TYPES[Path(name).suffix], f'"{hashlib.sha256(data).hexdigest()[:16]}"')


PAGE = {path.name: PageFile.of(path.name, path.read_bytes()) for path in sorted(_FILES.iterdir())}
PATHS = ("/", f"/page/{SETTINGS}", *(f"/page/{name}" for name in PAGE if name != INDEX))


class Playground:
    """The files, from memory: a request's path is looked up, never opened. The page may call `mcp_servers` as well."""

    def __init__(self, mcp_servers: Sequence[str] = ()) -> None:
        settings = json.dumps({"mcp_servers": list(mcp_servers)}).encode()
        self._files = {**PAGE, SETTINGS: PageFile.of(SETTINGS, settings)}
        self._headers = {
            "content-security-policy": _POLICY.format(others="".join(f" {address}" for address in mcp_servers)),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",
        }

    async def get(self, http: HttpRequest) -> Response:
        return self._answer(http, http.path_params.get("name", INDEX))

    async def get_docs(self, http: HttpRequest) -> Response:
        """What reads /openapi.json to a person."""
        return self._answer(http, DOCS)

    def _answer(self, http: HttpRequest, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            raise HTTPException(404)
        headers = {**self._headers, "etag": found.tag}
        if http.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.data, media_type=found.media_type, headers=headers)
