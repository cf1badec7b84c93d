"""Where requests go: an address as people write it, and the bytes of a request to it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from outlay import __version__

_SCHEMES = {"http": (80, False), "https": (443, True), "ws": (80, False), "wss": (443, True)}
_DEFAULT_SCHEME = "http://"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")

Header = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed URL. `path` holds the query too, and is `/` when none was given."""

    host: str
    port: int
    path: str
    tls: bool
    websocket: bool

    @property
    def authority(self) -> str:
        """Host and port as a Host header has them: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address in one spelling."""
        scheme = ("ws" if self.websocket else "http") + ("s" if self.tls else "")
        return f"{scheme}://{self.authority}{self.path}"


def parse_address(text: str) -> Address:
    """`https://host[:port]/path`; without a scheme it is `http://`, and ws:// and wss:// are WebSockets.

    Raises ValueError, for people, for anything else, and for an address with a user or a password in it.
    """
    given = text if "://" in text else _DEFAULT_SCHEME + text
    if _UNSAFE.search(given) or " " in given:
        raise ValueError(f"{text!r} holds characters that no address has")
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not an address: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address must hold no user and no password: put a key into an environment variable")
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ValueError(f"{text!r} is not an address; write http://host:port/path, or https, ws, wss")
    usual, tls = _SCHEMES[parts.scheme]
    path = parts.path or "/"
    return Address(
        host=parts.hostname,
        port=usual if port is None else port,
        path=f"{path}?{parts.query}" if parts.query else path,
        tls=tls,
        websocket=parts.scheme.startswith("ws"),
    )


def check_header(name: str, value: str) -> Header:
    """The header itself. Raises ValueError for one that HTTP cannot carry; its value is not repeated."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a header's name")
    if _UNSAFE.search(value) or not value.isascii():
        raise ValueError(f"the value of header {name} holds characters that a header cannot carry")
    return name, value


def request_bytes(method: str, address: Address, path: str, headers: Iterable[Header], body: bytes) -> bytes:
    """The whole request. `headers` come after Host and User-Agent; the length is added."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {address.authority}",
        f"User-Agent: outlay/{__version__}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    if body or method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
