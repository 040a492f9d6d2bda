"""The address of an image on the web, read so strictly that no two readers could differ about its host."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urljoin

from proxy_inference_engine.images.refusal import Code, ImageRefused

_MAX_CHARS = 8192
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<rest>[/?][a-z0-9._~:/?\[\]@!$&'()*+,;=%|-]*)?",
    re.ASCII | re.IGNORECASE,
)
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)  # as the last label it makes the host an IPv4 address
_MAX_NAME = 253


@dataclass(frozen=True, slots=True)
class Target:
    scheme: str
    host: str  # small letters; an IPv6 address without brackets
    port: int
    path: str  # with the query

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def has_usual_port(self) -> bool:
        return self.port in _PORTS.values()

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def redirected(self, location: str) -> "Target":
        """Where a redirect leads. Raises ImageRefused."""
        try:
            target = parse_target(urljoin(f"{self.scheme}://{self.authority}{self.path}", location))
        except ValueError:
            raise _wrong("it redirects to a URL that cannot be read") from None
        if self.is_secure and not target.is_secure:
            raise _wrong("it redirects from https to http")
        return target


def parse_target(url: str) -> Target:
    """The parts of a URL. Raises ImageRefused."""
    match = _URL.fullmatch(url) if len(url) <= _MAX_CHARS else None
    if match is None:
        raise _wrong(
            "it has to be a data URL, or an http or https URL without credentials, fragment or special characters"
        )
    scheme, host = match["scheme"].lower(), _host(match["host"].lower())
    port = _PORTS[scheme] if match["port"] is None else int(match["port"])
    if not 0 < port < 65536:
        raise _wrong("its port is not valid")
    rest = match["rest"] or "/"
    return Target(scheme, host, port, rest if rest.startswith("/") else f"/{rest}")


def _host(host: str) -> str:
    is_number = _NUMBER.fullmatch(host.rpartition(".")[2]) is not None
    try:
        if host.startswith("["):
            return str(IPv6Address(host[1:-1]))
        if is_number:
            return str(IPv4Address(host))
    except ValueError:
        # Other ways to write an IPv4 address are only used to hide one.
        code: Code = "url_not_allowed" if is_number else "invalid_image_url"
        raise ImageRefused("its host is not valid", code) from None
    if len(host) > _MAX_NAME or not _NAME.fullmatch(host):
        raise _wrong("its host is not valid")
    return host


class AllowedHosts:
    """Hosts that may be asked although they are private, or at an unusual port. None for the port: any."""

    def __init__(self, hosts: Iterable[tuple[str, int | None]] = ()) -> None:
        self._hosts = frozenset((_plain(host.lower()), port) for host, port in hosts)

    def has(self, target: Target) -> bool:
        return (target.host, None) in self._hosts or (target.host, target.port) in self._hosts


def _plain(host: str) -> str:
    try:
        return str(IPv6Address(host))
    except ValueError:
        return host


def _wrong(reason: str) -> ImageRefused:
    return ImageRefused(reason, "invalid_image_url")
