"""The address of a provider's server: where requests go, and what in it nobody is to read.

A base URL may carry a user with a password, and a query that every request gets. Both may
be keys: the user goes into a header, so that no log of requests shows it, and what could be
a key is told to whoever writes errors.
"""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from strandline.errors import ConfigError

SHORTEST_SECRET = 8
"""A value in a query that is shorter is no key, but a version or a number."""


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """A base URL taken apart, such as ``https://api.openai.com/v1``."""

    parts: SplitResult

    @classmethod
    def of(cls, base_url: str) -> Address:
        """The address. Raises `ConfigError` for what is none."""
        text = base_url.strip()
        try:
            parts = urlsplit(text)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
            usable = usable and parts.port != 0 and text.isascii() and text.isprintable()
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(
                "the base URL of a model provider is not an address",
                remedy="write it like https://api.openai.com/v1",
            )
        return cls(parts)

    @property
    def host(self) -> str:
        """The name or number of the server, in lower case."""
        return self.parts.hostname or ""

    @property
    def path(self) -> str:
        """The path, without a slash at its end."""
        return self.parts.path.rstrip("/")

    @property
    def server(self) -> str:
        """Host and port, as people may read them."""
        return self.parts.netloc.rpartition("@")[2]

    @property
    def is_here(self) -> bool:
        """Whether that is this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may be a key: the password, and long values of the query."""
        pairs = (pair.partition("=")[2] for pair in self.parts.query.split("&"))
        written = [self.parts.password or "", *(v for v in pairs if len(v) >= SHORTEST_SECRET)]
        return tuple(dict.fromkeys([*written, *map(unquote, written)]))

    @property
    def login(self) -> dict[str, str]:
        """The header of the user and password, if there are any."""
        if not (self.parts.username or self.parts.password):
            return {}
        user = f"{unquote(self.parts.username or '')}:{unquote(self.parts.password or '')}"
        return {"authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}

    def url(self, method: str) -> str:
        """The URL of `method`, which is a path with a query, without user and password."""
        path, _, query = method.partition("?")
        query = "&".join(filter(None, (self.parts.query, query)))
        whole = self.parts._replace(netloc=self.server, path=self.path + path, query=query)
        return whole.geturl()
