"""``doctor`` and what ``status`` says of the engine, as people and programs read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click import unstyle

from strandline.clock import SystemClock
from strandline.runtime.engine_health import RecordedEngineHealth
from strandline.stores.engine_health_file import NAME, EngineHealthFile


def settings(state: Path, **more: Any) -> None:
    models = [{"id": "one", "contextWindow": 100_000, "maxTokens": 1000}]
    provider = {"baseUrl": "http://127.0.0.1:9/v1", "models": models}
    defaults = {"model": more.pop("model", "mine/one")}
    told = {"models": {"providers": {"mine": provider}}, "agents": {"defaults": defaults}, **more}
    path = state / "strandline.json"
    path.write_text(json.dumps(told))
    path.chmod(0o600)
    state.chmod(0o700)


def test_what_is_well_exits_with_0(run: Any, state: Path) -> None:
    settings(state)
    ran = run("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("\n0 errors, 0 warnings\n")
    report = run("doctor", "--json").json()
    assert (report["errors"], report["warnings"]) == (0, 0)
    assert {"id", "severity", "what", "remedy"} == set(report["findings"][0])
    assert run("doctor", "--fix-nothing").code == 0


def test_an_error_exits_with_1_and_stands_with_its_remedy(run: Any, state: Path) -> None:
    settings(state, model="mine/two")
    ran = run("doctor")
    assert (ran.code, ran.err) == (1, "")
    lines = ran.out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  ✗ "))
    assert "mine/two" in lines[at]
    assert "    → " in "\n".join(lines[at:])
    report = run("doctor", "--json").json()
    assert report["errors"] == 1
    [error] = [f for f in report["findings"] if f["severity"] == "error"]
    assert error["id"] == "models.unusable"
    assert error["remedy"]


def test_warnings_alone_exit_with_0(run: Any, state: Path) -> None:
    settings(state)
    (state / "strandline.json").chmod(0o644)
    ran = run("doctor")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "0 errors, 1 warning")


def test_many_of_a_kind_are_counted_for_people_and_listed_for_programs(
    run: Any, state: Path
) -> None:
    settings(state)
    sessions = state / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    for number in range(8):
        (sessions / f"s{number}.jsonl").write_bytes(b"\x00")
    shown = run("doctor").out
    assert shown.count(" torn") + shown.count("s0.jsonl") < 8 + 8
    assert "and 3 more like these" in shown
    ids = [finding["id"] for finding in run("doctor", "--json").json()["findings"]]
    assert ids.count("transcripts.damaged") == 8


def test_no_line_is_wider_than_the_page_but_for_paths(run: Any, state: Path) -> None:
    settings(state, session={"mainKey": "home"})
    shown = run("doctor").out
    assert all(len(unstyle(line)) <= 120 or str(state) in line for line in shown.splitlines())


@pytest.mark.parametrize("agent", ["../x", "nobody"])
def test_an_agent_that_cannot_be_is_an_error(run: Any, state: Path, agent: str) -> None:
    settings(state)
    ran = run("doctor", "--agent", agent)
    assert ran.code in {1, 2}
    assert agent in ran.out + ran.err


def test_settings_that_do_not_load_are_an_error_and_no_traceback(run: Any, state: Path) -> None:
    (state / "strandline.json").write_text("{")
    ran = run("doctor")
    assert (ran.code, ran.err) == (1, "")
    assert "not JSON5" in ran.out
    assert "not looked at, because the settings cannot be used" in ran.out


def test_status_tells_the_engine_and_what_it_failed_at_last(run: Any, state: Path) -> None:
    settings(state)
    assert run("status", "--json").json()["engineFailure"] is None
    health = RecordedEngineHealth(EngineHealthFile(state / NAME), SystemClock())
    health.note("dag", "assemble", "ValueError:\nno", "agent:a:main")
    report = run("status", "--json").json()
    assert report["contextEngine"] == "legacy"
    assert report["contextEngineError"] is None
    assert report["engineFailure"]["phase"] == "assemble"
    assert "last failure just now: dag in assemble: ValueError: no\n" in run("status").out


def test_status_tells_why_the_selected_engine_cannot_be_used(run: Any, state: Path) -> None:
    settings(state, plugins={"slots": {"contextEngine": "dag"}})
    assert "'dag' cannot be used (find)" in run("status", "--json").json()["contextEngineError"]
    assert "set plugins.slots.contextEngine to 'legacy'" in run("status").out


def test_status_tells_the_rest_where_the_failures_cannot_be_read(run: Any, state: Path) -> None:
    settings(state)
    (state / NAME).mkdir()
    ran = run("status", "--json")
    assert ran.json()["engineFailure"] is None
    assert "cannot be read" in ran.err
