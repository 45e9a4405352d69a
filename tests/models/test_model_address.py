"""Where requests go: what of an address nobody reads, and an environment that is in the way."""

from __future__ import annotations

import logging
import os

import pytest

from strandline.clock import SystemClock
from strandline.errors import ConfigError
from strandline.models.address import Address
from strandline.models.openai_chat import OpenAIChatModel
from strandline.runtime.model import Failed, ModelEvent, ModelInfo, ModelRequest
from strandline.testing import Reply, ScriptedModelServer

INFO = ModelInfo("p", "m", "openai-completions", 1000, 10)
REQUEST = ModelRequest(INFO, "", [{"role": "user", "content": "hello"}], 10)


async def events_of(url: str) -> list[ModelEvent]:
    model = OpenAIChatModel(url, clock=SystemClock(), connect_timeout_s=5)
    try:
        return [event async for event in model.stream(REQUEST)]
    finally:
        await model.aclose()


def test_an_address_says_where_requests_go_without_its_user_and_password() -> None:
    address = Address.of("https://me:p%40ss@Acme.example:8443/base/?api-version=2")
    assert (
        address.url("/chat?alt=sse") == "https://Acme.example:8443/base/chat?api-version=2&alt=sse"
    )
    assert (address.host, address.server, address.is_here) == (
        "acme.example",
        "Acme.example:8443",
        False,
    )
    assert address.login == {"authorization": "Basic bWU6cEBzcw=="}
    assert Address.of("http://localhost:1/v1").is_here
    assert Address.of("http://127.8.0.1").is_here


def test_its_password_and_the_long_values_of_its_query_are_secrets() -> None:
    secrets = Address.of("https://me:p%40ss@x/v1?key=abc%2Bdefgh&api-version=2024").secrets
    assert {"p%40ss", "p@ss", "abc%2Bdefgh", "abc+defgh"} == {*filter(None, secrets)}
    assert "me:" not in repr(Address.of("https://me:p@x"))


def test_what_is_no_address_is_refused() -> None:
    for text in ("", "x/v1", "ftp://x", "http://", "http://x:0/", "http://x:99999/", "http://é/"):
        with pytest.raises(ConfigError, match="base URL"):
            Address.of(text)


async def test_user_and_password_go_in_a_header_and_in_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ScriptedModelServer([Reply("hello")]) as server, caplog.at_level(logging.DEBUG):
        await events_of(server.base_url.replace("//", "//me:hush-hush@"))
    assert server.requests[0].headers["authorization"] == "Basic bWU6aHVzaC1odXNo"
    assert "hush" not in caplog.text


async def test_a_key_in_the_query_that_a_server_repeats_is_not_told() -> None:
    said = {"error": {"message": "no access with key=abcdefgh123"}}
    with ScriptedModelServer([Reply(status=401, error=said)]) as server:
        [event] = await events_of(f"{server.base_url}?key=abcdefgh123")
    assert isinstance(event, Failed)
    assert "no access with key=***" in str(event.error)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ALL_PROXY", "socks5://me:hush@127.0.0.1:1"),
        ("HTTP_PROXY", "odd://me:hush@x"),
        ("HTTP_PROXY", "me:hush@127.0.0.1:port"),
        ("SSL_CERT_FILE", "/nowhere/hush.pem"),
    ],
)
async def test_a_proxy_or_certificates_that_cannot_be_used_are_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    for name in [*os.environ]:
        if name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv(variable, value)
    [event] = await events_of("http://model.invalid/v1")
    assert isinstance(event, Failed)
    assert event.error.kind == "network"
    assert variable in event.error.remedy
    assert "hush" not in str(event.error)


async def test_a_host_that_the_http_library_refuses_is_one_that_cannot_be_reached() -> None:
    [event] = await events_of("http://256.256.256.256/v1")
    assert isinstance(event, Failed)
    assert "cannot be reached at 256.256.256.256" in str(event.error)
