"""The OpenClaw command on a state directory of ours: it lists, it goes on, and so do we.

It starts slowly, so one conversation shows everything. Source: spec 1; spec 2, On disk.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager
from strandline.clock import SystemClock
from strandline.sessions.rows import new_row
from strandline.stores.rows_file import RowsFile, transcript_path
from strandline.testing import Reply, ScriptedModelServer

RUN_S = 300
"""Ten seconds are usual; a machine that does other things besides may need more."""

KEY = "agent:main:explicit:harbour"


class OpenClaw:
    """The command, in a home and a state directory of its own."""

    def __init__(self, installed: Path, folder: Path) -> None:
        self.state, self.workspace = folder / "state", folder / "workspace"
        self.sessions_dir = self.state / "agents" / "main" / "sessions"
        for place in (self.sessions_dir, self.workspace, folder / "home"):
            place.mkdir(parents=True)
        modules = installed / "node_modules"
        self._command = [modules / "node/bin/node", modules / "openclaw/openclaw.mjs"]
        self._environment = {
            "PATH": f"{modules / 'node/bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(folder / "home"),
            "OPENCLAW_STATE_DIR": str(self.state),
        }

    def configure(self, base_url: str) -> None:
        """One model, which is the scripted server."""
        model = {
            "id": "fake-1",
            "name": "Loopback",
            "contextWindow": 200_000,
            "maxTokens": 2000,
            "input": ["text"],
            "cost": dict.fromkeys(("input", "output"), 1),
        }
        provider = {"baseUrl": base_url, "apiKey": "sk-none", "api": "openai-completions"}
        config = {
            "models": {"providers": {"fake": {**provider, "models": [model]}}},
            "agents": {
                "defaults": {
                    "model": {"primary": "fake/fake-1"},
                    "workspace": str(self.workspace),
                }
            },
            "gateway": {"mode": "local"},
        }
        (self.state / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")

    def __call__(self, *words: str) -> dict[str, Any]:
        """Run it; what it prints is JSON."""
        done = subprocess.run(
            [*self._command, *words],
            env=self._environment,
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed: dict[str, Any] = json.loads(done.stdout)
        return printed


@pytest.fixture
def command(openclaw_dir: Path, tmp_path: Path) -> OpenClaw:
    return OpenClaw(openclaw_dir, tmp_path)


@pytest.fixture
def model() -> Iterator[ScriptedModelServer]:
    replies = [Reply("High water is at six."), Reply("Low water is at noon.")]
    with ScriptedModelServer(replies) as server:
        yield server


def user(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"role": "user", "content": content, "timestamp": SystemClock().now_ms()}


def assistant(text: str) -> dict[str, Any]:
    usage = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 1)
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "api": "openai-completions",
        "provider": "fake",
        "model": "fake-1",
        "usage": {**usage, "cost": dict.fromkeys((*usage, "total"), 0)},
        "stopReason": "stop",
        "timestamp": SystemClock().now_ms(),
    }


def begin(session: SessionManager) -> None:
    """A conversation with everything that could lead a reader astray."""
    session.append_model_change("fake", "fake-1")
    session.append_message(user("ALPHA, long ago"))
    session.append_message(assistant("ALPHA answered"))
    kept = session.append_message(user("BRAVO, kept, half an emoji \ud83d"))
    session.append_message(assistant("BRAVO answered"))
    session.append_label(kept, "here")
    session.append_compaction("SUMMARY of long ago.", kept, 100)
    session.append_message(user("CHARLIE"))
    stay = session.append_message(assistant("CHARLIE answered"))
    session.append_message(user("DELTA, a way that is left"))
    session.append_message(assistant("DELTA answered"))
    session.append_session_info("Harbour")
    session.branch(stay)


def said_to(model: ScriptedModelServer) -> str:
    """The conversation in the last request, as one text."""
    messages = model.requests[-1].body["messages"]
    return json.dumps([m for m in messages if m["role"] in {"user", "assistant"}])


def test_openclaw_continues_our_session_and_we_continue_after_it(
    command: OpenClaw, model: ScriptedModelServer
) -> None:
    command.configure(model.base_url)
    rows = RowsFile(command.sessions_dir / "sessions.json")
    ours = new_row("harbour", SystemClock().now_ms())
    rows.patch(KEY, lambda _: ours)
    with SessionManager.create(
        cwd=command.workspace, session_dir=command.sessions_dir, session_id="harbour"
    ) as session:
        begin(session)

    listed = command("sessions", "--json")
    assert [(row["key"], row["sessionId"]) for row in listed["sessions"]] == [(KEY, "harbour")]

    speak(command, "ECHO, when is high water?", "High water is at six.")
    heard = said_to(model)
    assert in_order(heard, "SUMMARY", "BRAVO", "CHARLIE", "CHARLIE answered", "ECHO")
    assert "ALPHA" not in heard
    assert "DELTA" not in heard

    row = rows.get(KEY)
    assert row is not None
    assert row.session_id == "harbour"
    path = transcript_path(command.sessions_dir, row)
    go_on_after_openclaw(path)

    speak(command, "GOLF, and low water?", "Low water is at noon.")
    assert in_order(said_to(model), "SUMMARY", "CHARLIE", "ECHO", "at six", "FOXTROT", "GOLF")
    with SessionManager.open(path) as session:
        assert texts(session)[-2:] == ["GOLF, and low water?", "Low water is at noon."]
        assert session.name == "Harbour"
        assert list(session.labels().values()) == ["here"]
        assert session.verify() == []


def speak(command: OpenClaw, text: str, answer: str) -> None:
    words = ("--local", "--session-id", "harbour", "--message", text, "--json")
    replied = command("agent", *words)
    assert [payload["text"] for payload in replied["payloads"]] == [answer]


def go_on_after_openclaw(path: Path) -> None:
    with SessionManager.open(path) as session:
        assert session.verify() == []
        assert texts(session) == [
            "SUMMARY of long ago.",
            *("BRAVO, kept, half an emoji \ud83d", "BRAVO answered"),
            *("CHARLIE", "CHARLIE answered"),
            *("ECHO, when is high water?", "High water is at six."),
        ]
        session.append_message(user("FOXTROT, thank you"))
        session.append_message(assistant("FOXTROT answered"))


def texts(session: SessionManager) -> list[str]:
    """What was said, message by message."""
    return [text_of(message) for message in session.build_context().messages]


def text_of(message: Mapping[str, Any]) -> str:
    return str(message.get("summary") or message["content"][0]["text"])


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return places == sorted(places) and places[0] >= 0
