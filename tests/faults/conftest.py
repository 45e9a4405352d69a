"""A conversation on real files with real servers, and the real command in this process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from strandline.cli.main import main
from strandline.clock import RandomIds, SystemClock
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.conversation import Conversation
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.retrying import RetrySettings
from strandline.runtime.tools import Tool, Toolbox
from strandline.sessions.rows import transcript_name
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile
from strandline.testing import Script, ScriptedModelServer

KEY = "agent:main:main"

# -- conversations -------------------------------------------------------------------------


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedModelServer]]:
    """Starts strict servers, and closes them."""
    with ExitStack() as stack:

        def start(script: Script = (), **options: Any) -> ScriptedModelServer:
            return stack.enter_context(ScriptedModelServer(script, **options))

        yield start


@pytest.fixture
def agent_of() -> Callable[..., Agent]:
    """Makes an agent of a backend and tools; the offline summariser, no flush, no retries."""

    def make(backend: Backend, *tools: Tool, **more: Any) -> Agent:
        tokens = MessageTokens(HeuristicCounter())
        return Agent(
            "main",
            backend.model,
            backend.info,
            more.pop("summarizer", None) or OfflineSummarizer(tokens.counter),
            more.pop("tokens", None) or tokens,
            SystemClock(),
            toolbox=Toolbox(tools),
            **{"system_prompt": "Be brief.", "retry": RetrySettings(attempts=1), **more},
        )

    return make


@pytest.fixture
def registry(tmp_path: Path) -> SessionRegistry:
    """The conversations of a folder."""
    rows = RowsFile(tmp_path / "sessions.json", clock=SystemClock())
    return SessionRegistry(
        "main", rows, JsonlStore(tmp_path), cwd="/", clock=SystemClock(), ids=RandomIds()
    )


@pytest.fixture
async def talk_of(registry: SessionRegistry) -> AsyncIterator[Callable[..., Conversation]]:
    """Opens the conversation of an agent, or goes on with it; closes them all."""
    opened: list[Conversation] = []

    def make(agent: Agent, key: str = KEY) -> Conversation:
        opened.append(Conversation(registry, agent, key, holder="a test"))
        return opened[-1]

    yield make
    for talk in opened:
        await talk.close()


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[Conversation], Path]:
    """The transcript of a conversation."""
    return lambda talk: tmp_path / transcript_name(talk.row)


def entry_line(kind: str, entry_id: str, parent: str | None, **body: Any) -> str:
    """An entry as another program writes it."""
    stamp = "2025-06-01T10:00:00.000Z"
    entry = {"type": kind, "id": entry_id, "parentId": parent, "timestamp": stamp, **body}
    return json.dumps(entry) + "\n"


@pytest.fixture
def write_chain() -> Callable[..., str]:
    """Appends entries, each the child of the one before, to a transcript; gives the last id.

    An entry is a message, or ``(type, body)``; ids count up from ``e00000``.
    """

    def write(path: Path, entries: list[Any], parent: str | None = None) -> str:
        with path.open("a", encoding="utf-8") as file:
            for number, entry in enumerate(entries):
                entry_id = f"e{number:05}"
                kind, body = ("message", {"message": entry}) if isinstance(entry, dict) else entry
                file.write(entry_line(kind, entry_id, parent, **body))
                parent = entry_id
        return str(parent)

    return write


# -- the command ---------------------------------------------------------------------------


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one JSON object that was printed."""
        assert self.code in {0, 1}, self.err
        return json.loads(self.out)


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs ``strandline`` with arguments, in a state directory of its own."""
    state = tmp_path_factory.mktemp("home") / "state"
    monkeypatch.setenv("STRANDLINE_STATE_DIR", str(state))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("STRANDLINE_DEBUG", raising=False)
    time.tzset()

    def go(*args: object, **options: Any) -> Ran:
        result = CliRunner().invoke(main, [str(arg) for arg in args], **options)
        assert "Traceback" not in result.stderr
        return Ran(result.exit_code, result.stdout, result.stderr)

    yield go
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def state(run: Any) -> Path:
    """The state directory that commands use."""
    path = Path(os.environ["STRANDLINE_STATE_DIR"])
    path.mkdir()
    return path


@pytest.fixture
def setup(state: Path) -> Callable[..., None]:
    """Writes settings with the models ``mine/one`` and ``mine/two`` at a server.

    `window` is theirs, `windows` says it for one of them; the rest are the agents' defaults.
    """

    def write(
        server: ScriptedModelServer,
        *,
        window: int = 16_000,
        windows: dict[str, int] | None = None,
        **defaults: Any,
    ) -> None:
        sizes = {"one": window, "two": window, **(windows or {})}
        models = [{"id": n, "contextWindow": w, "maxTokens": 1_000} for n, w in sizes.items()]
        provider = {"baseUrl": server.base_url, "apiKey": "a key", "models": models}
        settings = {
            "models": {"providers": {"mine": provider}, "retry": {"minDelayMs": 10}},
            "agents": {"defaults": {"model": {"primary": "mine/one"}, **defaults}},
        }
        (state / "strandline.json").write_text(json.dumps(settings))

    return write
