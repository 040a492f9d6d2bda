"""The page's files as they are served. What is needed before the first paint stands in the HTML itself.

Browsers paint nothing until style sheets and plain scripts in the head have come, each with a request of its own. So
both are put in their places here, allowed by their hashes. The other files have the digest of all of them in their
paths: a browser asks for each once, until one of them changes. Announcing the modules in the head (modulepreload) was
measured too: the box to type in came sooner, and the first paint later.
"""

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "files"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
INDEX, DOCS = "index.html", "docs.html"
_STYLE = re.compile(r'<link rel="stylesheet" href="page/([\w.]+)">')
_SCRIPT = re.compile(r'<script src="page/([\w.]+)"></script>')


class PageFile(NamedTuple):
    data: bytes
    packed: bytes  # by gzip
    media_type: str
    tag: str
    # Hashes of what is inline, as a Content-Security-Policy names them.
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, data: bytes) -> "PageFile":
        tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        return cls(data, gzip.compress(data, mtime=0), _TYPES[Path(name).suffix], tag)


def _digest(files: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, data in files.items():
        whole.update(f"{name} {len(data)} ".encode() + data)
    return whole.hexdigest()[:12]


def _inlined(html: str, texts: Mapping[str, str]) -> PageFile:
    styles, scripts = ([f"\n{texts[name]}" for name in way.findall(html)] for way in (_STYLE, _SCRIPT))
    html = _STYLE.sub(lambda found: f"<style>\n{texts[found[1]]}</style>", html)
    html = _SCRIPT.sub(lambda found: f"<script>\n{texts[found[1]]}</script>", html)
    html = re.sub(r'(src|href)="page/', rf'\1="page/{VERSION}/', html)
    made = PageFile.of(INDEX, html.encode())
    return made._replace(scripts=tuple(map(_hash, scripts)), styles=tuple(map(_hash, styles)))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_RAW = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir())}
VERSION = _digest(_RAW)
_TEXTS = {name: data.decode() for name, data in _RAW.items()}
PAGE = {
    name: _inlined(_TEXTS[name], _TEXTS) if name in (INDEX, DOCS) else PageFile.of(name, data)
    for name, data in _RAW.items()
}
