"""GET / and /page/…: the playground. It needs no key to be read; what it asks of the API does, where there are keys."""

import json
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.server.http.access import visit_of
from proxy_inference_engine.server.page.content import DOCS, INDEX, PAGE, VERSION, PageFile

SETTINGS = "settings.json"
# Nothing from another host, nothing inline but what has one of these hashes, in no other page's frame.
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src 'self' data: blob:; "
    "connect-src 'self'{others}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
PATHS = (
    *("/", "/docs", f"/page/{SETTINGS}"),
    *(f"/page/{VERSION}/{name}" for name in PAGE if name not in (INDEX, DOCS)),
)
_ASK_AGAIN, _KEEP = "no-cache", "public, max-age=31536000, immutable"


class Playground:
    """The files, from memory: a request's path is looked up, never opened. The page may call `mcp_servers` as well."""

    def __init__(self, mcp_servers: Sequence[str] = ()) -> None:
        self._settings = PageFile.of(SETTINGS, json.dumps({"mcp_servers": list(mcp_servers)}).encode())
        self._others = "".join(f" {address}" for address in mcp_servers)

    async def get(self, http: HttpRequest) -> Response:
        return self._answer(http, PAGE[INDEX], _ASK_AGAIN)

    async def get_docs(self, http: HttpRequest) -> Response:
        """What reads /openapi.json to a person."""
        return self._answer(http, PAGE[DOCS], _ASK_AGAIN)

    async def get_settings(self, http: HttpRequest) -> Response:
        return self._answer(http, self._settings, _ASK_AGAIN)

    async def get_file(self, http: HttpRequest) -> Response:
        """A file of the page, of this version alone: modules of two versions do not go together."""
        visit_of(http.scope).is_routine = True
        found = PAGE.get(http.path_params["name"])
        if found is None or found.scripts or http.path_params["version"] != VERSION:
            raise HTTPException(404)
        return self._answer(http, found, _KEEP)

    def _answer(self, http: HttpRequest, file: PageFile, caching: str) -> Response:
        headers = {
            "content-security-policy": _POLICY.format(
                scripts=" ".join(("'self'", *file.scripts)),
                styles=" ".join(("'self'", *file.styles)),
                others=self._others,
            ),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": caching,
            "etag": file.tag,
            "vary": "accept-encoding",
        }
        if file.tag in http.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" not in http.headers.get("accept-encoding", ""):
            return Response(file.data, media_type=file.media_type, headers=headers)
        return Response(file.packed, media_type=file.media_type, headers={**headers, "content-encoding": "gzip"})
