"""The real command, run in this process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from click.testing import CliRunner

from strandline.cli.main import main
from strandline.testing import ScriptedModelServer


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one JSON object that was printed."""
        assert self.code in {0, 1}, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs ``strandline`` with arguments, in a state directory that does not exist yet."""
    state = tmp_path_factory.mktemp("home") / "state"
    monkeypatch.setenv("STRANDLINE_STATE_DIR", str(state))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("STRANDLINE_DEBUG", raising=False)
    time.tzset()

    def go(*args: object, **options: Any) -> Ran:
        result = CliRunner().invoke(main, [str(arg) for arg in args], **options)
        assert "Traceback" not in result.stderr
        return Ran(result.exit_code, result.stdout, result.stderr)

    yield go
    monkeypatch.undo()
    time.tzset()


SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of vectors and fixtures beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("../shared with its vectors and fixtures is not here")
    return SHARED


def line(kind: str, entry_id: str, parent: str | None, **body: Any) -> str:
    """An entry line; `at` is its minute."""
    stamp = f"2025-06-01T10:{body.pop('at', 0):02d}:00.000Z"
    return json.dumps(
        {"type": kind, "id": entry_id, "parentId": parent, "timestamp": stamp, **body}
    )


def said(entry_id: str, parent: str | None, role: str, content: Any, **more: Any) -> str:
    """A message line."""
    at = more.pop("at", 0)
    message = {"role": role, "content": content, "timestamp": 0, **more}
    return line("message", entry_id, parent, message=message, at=at)


HEADER = (
    '{"type":"session","version":3,"id":"talk","timestamp":"2025-06-01T10:00:00.000Z",'
    '"cwd":"/home/user/project"}'
)


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A session with a tool call, a branch, labels, a compaction and a name."""
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "src/a.py"}}
    text = [{"type": "text", "text": "one\ntwo\nthree"}]
    model = {"provider": "anthropic", "model": "claude"}
    answer = [{"type": "thinking", "thinking": "hmm"}, {"type": "text", "text": "Hi!"}, call]
    path = tmp_path / "talk.jsonl"
    lines = [
        HEADER,
        said("user0001", None, "user", "Hello"),
        said("asst0001", "user0001", "assistant", answer, **model, at=1),
        said("tool0001", "asst0001", "toolResult", text, toolName="read", toolCallId="t1", at=2),
        said("aside001", "tool0001", "user", "Or not", at=3),
        line("leaf", "leaf0001", "tool0001", targetId="tool0001", at=4),
        said("user0002", "tool0001", "user", "Go on\x1b[31m in red\x07", at=5),
        line("label", "label001", "user0002", targetId="aside001", label="side way", at=6),
        line(
            "compaction",
            "compact1",
            "label001",
            summary="They said hello.",
            firstKeptEntryId="user0002",
            tokensBefore=12345,
            at=7,
        ),
        line("session_info", "name0001", "compact1", name="A short talk", at=8),
        said("asst0002", "name0001", "assistant", "Done.", **model, at=9),
    ]
    path.write_text("".join(each + "\n" for each in lines))
    return path


PATHS = {
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "anthropic-messages": "",
    "google-generative-ai": "/v1beta",
}
"""The formats that are spoken, and where each begins on a `ScriptedModelServer`."""

SECRETS = ("sk-secret-of-the-test", "header-secret-of-the-test")


@pytest.fixture
def state(run: Run) -> Path:
    """The state directory that commands use."""
    path = Path(os.environ["STRANDLINE_STATE_DIR"])
    path.mkdir()
    return path


class Setup(Protocol):
    """Writes settings whose model ``mine/one`` is at a server."""

    def __call__(
        self,
        server: ScriptedModelServer,
        *,
        api: str = ...,
        window: int = ...,
        **defaults: Any,
    ) -> None:
        """`defaults` are those of agents."""
        ...


@pytest.fixture
def setup(state: Path) -> Setup:
    """Writes the settings of the state directory."""

    def write(
        server: ScriptedModelServer,
        *,
        api: str = "openai-completions",
        window: int = 16_000,
        **defaults: Any,
    ) -> None:
        provider = {
            "baseUrl": server.root_url + PATHS[api],
            "apiKey": SECRETS[0],
            "api": api,
            "headers": {"x-more": SECRETS[1]},
            "models": [
                {"id": "one", "contextWindow": window, "maxTokens": 1000, "reasoning": True},
                {"id": "two", "contextWindow": window, "maxTokens": 1000},
            ],
        }
        models = {"providers": {"mine": provider}, "retry": {"minDelayMs": 10}}
        agents = {"defaults": {"model": {"primary": "mine/one"}, **defaults}}
        (state / "strandline.json").write_text(json.dumps({"models": models, "agents": agents}))

    return write
