"""Who may call, as the operator writes it: hosts, origins of pages, proxies, and the path they put before ours."""

import ipaddress
import re
from typing import NamedTuple, Protocol

from proxy_inference_engine.config.keys import ApiKey
from proxy_inference_engine.errors import StartupError

MAX_ENTRIES = 1000
ANY = "*"
OPAQUE = "null"  # what a browser sends for pages without an origin: files, and frames in a sandbox
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\*|[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::(?P<port>\*|[0-9]{1,5}))?", re.ASCII
)
# What a browser's policy can name: nothing that would end it or begin another rule.
_ADDRESS = re.compile(
    r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]*)?", re.ASCII | re.IGNORECASE
)
_NAME = re.compile(r"[a-z0-9._-]{1,253}", re.ASCII)
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)+", re.ASCII)
_WEB = frozenset({"http", "https"})
_PORTS = {"http": "80", "https": "443"}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AllowedOrigin(NamedTuple):
    """Pages that may call. `*` as a host stands for all of a scheme that is no web, as a port for every port."""

    scheme: str
    host: str
    port: str | None = None


def parse_origins(value: object) -> object:
    """`scheme://host`, `scheme://host:port`, `*` or `null`, in a list or with commas between them."""
    return tuple(
        part if isinstance(part, AllowedOrigin) else parse_origin(str(part)) for part in _parts(value, "origins")
    )


def parse_origin(text: str) -> AllowedOrigin:
    if text in (ANY, OPAQUE):
        return AllowedOrigin(text, ANY)
    match = _ORIGIN.fullmatch(text.lower().rstrip("/"))
    if match is None:
        raise ValueError(f"{text[:64]!r} is no origin; write scheme://host or scheme://host:port, without a path")
    scheme, host, port = match["scheme"], match["host"], match["port"]
    if host == ANY and scheme in _WEB:
        raise ValueError(f"{text[:64]!r} stands for every site: list those that may call")
    # A browser leaves out the port that everybody knows.
    return AllowedOrigin(scheme, host, None if port == _PORTS.get(scheme) else port)


def parse_names(value: object) -> object:
    """Names or addresses under which clients reach the server, in a list or with commas between them."""
    names = []
    for part in map(str, _parts(value, "hosts")):
        name = part.lower().strip("[]")
        if not _NAME.fullmatch(name) and not _is_address(name):
            raise ValueError(f"{part[:64]!r} is no host; write a name or an address, without a port")
        names.append(name)
    return tuple(names)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def parse_networks(value: object) -> object:
    """Addresses or networks such as 10.0.0.0/8, in a list or with commas between them."""
    networks = []
    for part in map(str, _parts(value, "addresses")):
        try:
            networks.append(ipaddress.ip_network(part, strict=False))
        except ValueError:
            raise ValueError(f"{part[:64]!r} is no address; write one, or a network such as 10.0.0.0/8") from None
    return tuple(networks)


def parse_addresses(value: object) -> object:
    """Addresses such as `http://localhost:3000/mcp`, in a list or with commas between them."""
    addresses = tuple(map(str, _parts(value, "addresses")))
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"{address[:64]!r} is no address; write http://host:port/path, without a query")
    return addresses


def parse_prefix(value: object) -> object:
    """A path such as `/pie`, or nothing."""
    text = str(value).rstrip("/")
    if text and not _PREFIX.fullmatch(text):
        raise ValueError("should be a path such as /pie")
    return text


def _parts(value: object, what: str) -> list[object]:
    """Texts without blanks around them; what is no text has been parsed already."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError(f"should be {what}, several separated by commas")
    if len(parts) > MAX_ENTRIES:
        raise ValueError(f"should have at most {MAX_ENTRIES} {what}")
    stripped = (part.strip() if isinstance(part, str) else part for part in parts)
    return [part for part in stripped if part != ""]


class PageCallers(Protocol):
    """The part of a Config that decides which pages may call."""

    @property
    def api_keys(self) -> tuple[ApiKey, ...]: ...

    @property
    def allowed_origins(self) -> tuple[AllowedOrigin, ...]: ...


def check_origins(config: PageCallers) -> None:
    """Every page of the web could use a server that lets every page call and wants no key. Raises StartupError."""
    for origin in config.allowed_origins:
        if origin.scheme in (ANY, OPAQUE) and not config.api_keys:
            raise StartupError(f"allowed_origins: {origin.scheme!r} needs API keys: any page could call without one")
