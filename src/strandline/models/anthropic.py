"""Models behind Anthropic's Messages: Anthropic itself and the servers that speak alike.

What leaves is in `strandline.models.anthropic_wire`, what comes back in
`strandline.models.anthropic_answer`. Source: spec 4, A turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

from strandline.models.address import Address
from strandline.models.anthropic_answer import Answer
from strandline.models.anthropic_wire import request_body
from strandline.models.failures import Failures
from strandline.models.http import HttpModel, HttpOptions
from strandline.runtime.model import ModelRequest

API = "anthropic-messages"
"""The name of this format in transcripts and in the catalog."""

VERSION = "2023-06-01"
"""The version of the format; the only one that is served."""

_LOGIN_KEY = "sk-ant-oat"  # how the access token of a login begins, which is no API key
_LOGIN_BETA = "oauth-2025-04-20"


@dataclass(frozen=True, slots=True)
class AnthropicDialect:
    """Messages. `messages_path` is what follows the base URL."""

    messages_path: str = "/v1/messages"

    @classmethod
    def of_base(cls, base_url: str) -> AnthropicDialect:
        """For a base URL with or without ``/v1``. Raises `ConfigError` for no address."""
        base = Address.of(base_url).path
        return cls("/messages" if base.endswith("/v1") else "/v1/messages")

    def path(self, request: ModelRequest) -> str:
        """The one address."""
        del request
        return self.messages_path

    def headers(self, api_key: str) -> Mapping[str, str]:
        """The version, and the key or the token of a login."""
        version = {"anthropic-version": VERSION}
        if api_key.startswith(_LOGIN_KEY):
            login = {"authorization": f"Bearer {api_key}", "anthropic-beta": _LOGIN_BETA}
            return version | login
        return version | ({"x-api-key": api_key} if api_key else {})

    def body(self, request: ModelRequest) -> bytes:
        """See `strandline.models.anthropic_wire`."""
        return request_body(request)

    def answer(self, request: ModelRequest, timestamp_ms: int, failures: Failures) -> Answer:
        """See `strandline.models.anthropic_answer`."""
        return Answer(request.model, timestamp_ms, failures)


class AnthropicModel(HttpModel):
    """`HttpModel` for Messages, with a base URL like ``https://api.anthropic.com``."""

    def __init__(self, base_url: str, api_key: str = "", **options: Unpack[HttpOptions]) -> None:
        super().__init__(base_url, api_key, AnthropicDialect.of_base(base_url), **options)
