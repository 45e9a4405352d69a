"""``agent``, ``chat``, ``sessions`` and ``status``, against a model server on loopback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.testing import Reply, ScriptedModelServer

Run = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer(lambda request: Reply(f"heard {len(request.body['messages'])}")) as up:
        yield up


def configure(state: Path, server: ScriptedModelServer, *, window: int = 16_000) -> None:
    """Settings with one provider, in JSON5 as a person writes them."""
    (state / "strandline.json").write_text(
        f"""{{
  // the server of a test
  models: {{ providers: {{ mine: {{
    baseUrl: "{server.base_url}", apiKey: "sk-secret-of-the-test", api: "openai-completions",
    models: [{{ id: "one", contextWindow: {window}, maxTokens: 500, cost: {{ input: 1 }} }}],
  }} }} }},
  agents: {{ defaults: {{ model: {{ primary: "mine/one" }}, workspace: "/srv" }} }},
}}"""
    )


def test_one_turn_reports_everything_that_was_asked_for(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server)
    report = run("agent", "--message", "Hello", "--json").json()
    assert report["reply"] == "heard 2"
    assert report["sessionKey"] == "agent:main:main"
    assert report["model"] == "mine/one"
    assert report["usage"]["input"] > 0
    assert report["compactions"] == 0
    assert 0 < report["contextTokens"] < report["contextWindow"] == 16_000
    assert report["durationMs"] >= 0
    transcript = state / "agents/main/sessions" / f"{report['sessionId']}.jsonl"
    assert json.loads(transcript.read_text().splitlines()[0])["cwd"] == "/srv"


def test_turns_go_on_by_key_and_by_id(run: Run, state: Path, server: ScriptedModelServer) -> None:
    configure(state, server)
    first = run("agent", "-m", "one", "--session-id", "demo1", "--json").json()
    assert first["sessionKey"] == "agent:main:explicit:demo1"
    assert first["sessionId"] == "demo1"
    again = run("agent", "-m", "two", "--session-key", first["sessionKey"], "--json").json()
    assert (again["sessionId"], again["reply"]) == ("demo1", "heard 4")


def test_a_key_says_which_agent_it_is_of(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server)
    run("agent", "-m", "one", "--session-key", "agent:ops:main", "--json").json()
    assert (state / "agents/ops/sessions/sessions.json").exists()
    assert not (state / "agents/main").exists()
    assert run("sessions", "--all-agents", "--json").json()["totalCount"] == 1


def test_small_windows_are_compacted_and_the_report_says_so(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server, window=8_000)
    reports = [
        run("agent", "-m", f"{n}: " + "lantern harbor " * 900, "--json").json() for n in range(5)
    ]
    assert sum(report["compactions"] for report in reports) >= 1
    receipt = next(r for each in reports for r in each["compactionReceipts"])
    assert receipt["tokensAfter"] < receipt["tokensBefore"]
    listed = run("sessions", "--json").json()["sessions"]
    assert listed[0]["compactionCount"] == sum(report["compactions"] for report in reports)


def test_a_pipe_is_answered_line_by_line_and_ends(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server)
    ran = run("chat", input="one\n\ntwo\n/status\n/tree\n")
    assert ran.code == 0
    assert ran.out.startswith("heard 2\nheard 4\n")
    assert "🧹 Compactions: 0" in ran.out
    assert "user: two" in ran.out


def test_an_empty_pipe_is_no_conversation_and_no_error(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server)
    ran = run("chat", input="")
    assert (ran.code, ran.out) == (0, "")


def test_commands_of_a_chat_branch_label_reset_and_begin_anew(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server)
    lines = ["one", "/label start of it", "two", "/branch start of it", "three", "/branch"]
    ran = run("chat", input="\n".join([*lines, "/reset", "four", "/new", "five", "/quit", "six"]))
    assert ran.code == 0
    replies = [each for each in ran.out.splitlines() if each.startswith("heard")]
    assert replies == ["heard 2", "heard 4", "heard 4", "heard 2", "heard 2"]
    assert len(list((state / "agents/main/sessions").glob("*.reset.*"))) == 1
    keys = [each["key"] for each in run("sessions", "--json").json()["sessions"]]
    assert len(keys) == 2
    assert any(key.startswith("agent:main:tui-") for key in keys)


def test_an_unknown_command_is_told_and_the_chat_goes_on(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server)
    ran = run("chat", input="/nope\n/label\n/compact\nhello\n")
    assert ran.code == 1, "something went wrong in it"
    assert "there is no command /nope" in ran.err
    assert "heard 2" in ran.out


def test_a_model_that_fails_is_one_line_and_exit_1(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server)
    server.script = [Reply(status=401), Reply("fine")]
    ran = run("agent", "-m", "Hello", "--json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert "mine/one" in ran.err
    assert "sk-secret" not in ran.err
    assert run("agent", "-m", "again", "--json").json()["reply"] == "fine"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["agent", "-m", " "], "empty"),
        (["agent", "-m", "x", "--session-key", "a/../b"], "key"),
        (["agent", "-m", "x", "--session-key", "k", "--session-id", "i"], "not both"),
        (["agent", "-m", "x", "--model", "mine/two"], "mine/one"),
        (["agent", "-m", "x", "--agent", "a", "--session-key", "agent:b:main"], "of agent b"),
        (["agent", "-m", "x", "--agent", "../x"], "agent"),
        (["sessions", "--limit", "0"], "above 0"),
        (["sessions", "--store", "/nowhere/sessions.json"], "/nowhere"),
    ],
)
def test_wrong_use_is_told_with_the_remedy_and_exit_2(
    run: Run, state: Path, server: ScriptedModelServer, arguments: list[str], told: str
) -> None:
    configure(state, server)
    ran = run(*arguments)
    assert ran.code == 2, ran.err
    assert told in ran.err
    assert ran.err.count("\n") == 1


def test_a_wrong_key_in_the_settings_is_told_with_its_place_and_the_nearest_name(
    run: Run, state: Path
) -> None:
    (state / "strandline.json").write_text("{\n  agents: { defaults: { compactoin: {} } },\n}\n")
    ran = run("agent", "-m", "x")
    assert ran.code == 2
    assert "strandline.json:2:" in ran.err
    assert "'compaction'" in ran.err


def test_listing_an_openclaw_state_changes_nothing_in_it(
    run: Run, shared: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "openclaw"
    shutil.copytree(shared / "fixtures/openclaw-state", copy)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.rglob("*")}
    report = run("--state-dir", copy, "sessions", "--json").json()
    assert run("--state-dir", copy, "status", "--json").json()["agents"][0]["sessions"] == 9
    assert report["totalCount"] == 9
    assert before == {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in copy.rglob("*")}


def test_the_session_that_the_original_could_not_continue_goes_on(
    run: Run, shared: Path, tmp_path: Path, server: ScriptedModelServer
) -> None:
    copy = tmp_path / "openclaw"
    shutil.copytree(shared / "fixtures/openclaw-state", copy)
    config = (copy / "openclaw.json").read_text()
    (copy / "openclaw.json").chmod(0o600)
    (copy / "openclaw.json").write_text(
        config.replace("http://127.0.0.1:18999/v1", server.base_url)
    )
    server.context_window = 60_000
    key = "agent:main:explicit:demo1"
    ran = run("--state-dir", copy, "agent", "-m", "Go on", "--session-key", key, "--json")
    assert ran.json()["reply"].startswith("heard")
    again = run("--state-dir", copy, "agent", "-m", "And on", "--session-id", "demo1", "--json")
    assert again.json()["sessionKey"] == key
    checked = run("session", "verify", copy / "agents/main/sessions/demo1.jsonl", "--json")
    assert checked.json()["clean"] is True


ENGINE = """
from strandline.context.engine import EngineInfo, LegacyEngine

class Engine(LegacyEngine):
    info = EngineInfo("odd", "Odd")
    async def assemble(self, request):
        print("chatter")
        return await super().assemble(request)
    async def dispose(self):
        raise ValueError("no way")

def register(api):
    api.register_context_engine("odd", lambda context: Engine())
"""


def test_an_engine_that_prints_spoils_no_json_and_its_end_is_told(
    run: Run, state: Path, server: ScriptedModelServer, tmp_path: Path
) -> None:
    configure(state, server)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "odd.py").write_text(ENGINE)
    assert run("plugins", "install", "-l", tmp_path / "odd", "--select").code == 0
    ran = run("agent", "-m", "Hello", "--json")
    assert ran.json()["reply"] == "heard 2"
    assert "chatter\n" in ran.err
    told = "strandline: the context engine odd failed in dispose (ValueError: no way)"
    for words, options in ((["agent", "-m", "Hello"], {}), (["chat"], {"input": "Hello\n"})):
        ran = run(*words, **options)
        assert (ran.code, "heard " in ran.out) == (0, True)
        assert ran.err.splitlines()[-1].startswith(told)


def test_a_chat_on_a_key_is_with_the_agent_of_the_key(
    run: Run, state: Path, server: ScriptedModelServer
) -> None:
    configure(state, server)
    ran = run("chat", "--session-key", "agent:ops:main", input="Hello\n")
    assert (ran.code, ran.out) == (0, "heard 2\n")
    assert (state / "agents/ops/sessions/sessions.json").exists()
