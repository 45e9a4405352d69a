"""What the documentation says of engines, plugins and sub-agents is the code's."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, get_args

import pytest

from strandline.cli.chat_commands import COMMANDS
from strandline.context import engine
from strandline.context.engine import ContextEngine
from strandline.errors import EngineError
from strandline.plugins import finding
from strandline.plugins.api import PluginApi
from strandline.runtime import announcing, engine_host, rewriting, spawn_checks
from strandline.runtime.announcing import RunStatus
from strandline.runtime.events import Notice, TurnEvent
from strandline.runtime.family import SubagentLimits
from strandline.runtime.subagents import MOST_LISTED, Subagents
from strandline.settings import setting_keys
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer, ToolCall
from strandline.wiring import State, open_state


class Page(Protocol):
    """See conftest.py."""

    text: str

    def section(self, title: str) -> str: ...
    def rows(self, title: str, first: str) -> list[list[str]]: ...
    def words(self, title: str, first: str, column: int = 0) -> list[str]: ...


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def names_of(shape: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(shape)]


# -- engines -------------------------------------------------------------------------------


def test_every_method_of_an_engine_is_told_the_required_ones_first(engines_page: Page) -> None:
    told = engines_page.words("Methods", "method")
    assert sorted(told) == sorted(public(ContextEngine))
    required = set(told[:3])
    assert required == ContextEngine.__abstractmethods__
    assert "first three" in engines_page.section("Methods")


@pytest.mark.parametrize(("title", "first"), [("Requests", "request"), ("Results", "result")])
def test_every_field_of_a_request_and_a_result_is_told(
    engines_page: Page, title: str, first: str
) -> None:
    for name, fields in engines_page.rows(title, first):
        shape = getattr(engine, name.strip("`"))
        assert set(names_of(shape)) <= set(quoted_in(fields)), name


def test_every_request_and_every_result_is_told(engines_page: Page) -> None:
    told = engines_page.words("Requests", "request") + engines_page.words("Results", "result")
    hints = [getattr(ContextEngine, name).__annotations__ for name in public(ContextEngine)]
    asked = {hint["request"] for hint in hints if "request" in hint}
    given = {hint["return"] for hint in hints} - {"None", "Rollback | None"}
    assert asked | given <= set(told)


def quoted_in(text: str) -> list[str]:
    return [part for place, part in enumerate(text.split("`")) if place % 2]


def test_what_an_engine_may_use_and_says_of_itself_is_told(engines_page: Page) -> None:
    lent = engines_page.words("What it may use", "member")
    assert set(names_of(engine.RuntimeContext)) <= set(lent)
    told = engines_page.words("What it says of itself", "`EngineInfo`")
    assert set(names_of(engine.EngineInfo)) <= set(told)
    needs = engines_page.rows("What it says of itself", "`EngineInfo`")[-1][1]
    assert set(quoted_in(needs)) == engine.HOST_ABILITIES | {engine.THREADS}
    for reason in get_args(engine.BootstrapReason):
        assert f"`{reason}`" in engines_page.section("Methods")
    for name in names_of(engine.EngineContext):
        assert f"`{name}`" in engines_page.section("What it may use")


def test_the_limits_of_engines_are_told(engines_page: Page) -> None:
    fails = engines_page.section("When one fails")
    assert f"{engine_host.MOST_S:g} seconds" in fails
    assert f"{engine_host.MOST_COMPACTING_S:,.0f}" in fails
    assert f"{engine_host.MAX_ADDITION_CHARS:,} characters" in engines_page.section("Results")
    assert f"{rewriting.MOST_ENTRIES:,} entries" in engines_page.section("What it may use")


def test_plugins_are_told_with_their_manifest_and_their_door(engines_page: Page) -> None:
    text = engines_page.section("Plugins")
    assert finding.MANIFEST in text
    assert finding.GROUP in text
    keys = engines_page.words("Plugins", f"key of `{finding.MANIFEST}`")
    assert [key for key in keys if f'"{key}"' in inspect.getsource(finding._linked)] == keys
    assert sorted(engines_page.words("Plugins", "`api`")) == sorted(
        {*public(PluginApi), *vars(PluginApi("x"))}
        - {name for name in vars(PluginApi("x")) if name[0] == "_"}
    )


# -- an engine that fails ----------------------------------------------------------------------

BROKEN = '''
from strandline.context.engine import (
    AssembleResult, CompactResult, ContextEngine, EngineInfo, Ingested,
)


class Broken(ContextEngine):
    """Fails where its settings say."""

    info = EngineInfo("broken", "Broken")

    def __init__(self, context):
        self._where = context.config["where"]

    def _done(self, where, answer=None):
        if where == self._where:
            raise ValueError("as it was told")
        return answer

    async def bootstrap(self, request):
        self._done("bootstrap")

    async def ingest(self, request):
        return self._done("ingest", Ingested(True))

    async def ingest_batch(self, request):
        return self._done("ingest_batch", Ingested(True))

    async def assemble(self, request):
        return self._done("assemble", AssembleResult(request.messages, 0))

    async def compact(self, request):
        return self._done("compact", CompactResult(ok=True, compacted=True))

    async def after_turn(self, request):
        self._done("after_turn")

    async def maintain(self, request):
        if request.reason == "turn":
            self._done("maintain")

    async def prepare_subagent_spawn(self, request):
        return self._done("prepare_subagent_spawn")

    async def on_subagent_ended(self, request):
        self._done("on_subagent_ended")

    async def dispose(self):
        self._done("dispose")


def register(api):
    api.register_context_engine("broken", Broken)
'''


def broken_state(folder: Path, base_url: str, where: str) -> State:
    (folder / "plugin").mkdir()
    (folder / "plugin" / "broken.py").write_text(BROKEN, encoding="utf-8")
    model = {"id": "m", "contextWindow": 16_000, "maxTokens": 500}
    settings = {
        "models": {"providers": {"test": {"baseUrl": base_url, "models": [model]}}},
        "agents": {"defaults": {"model": "test/m"}},
        "plugins": {
            "slots": {"contextEngine": "broken"},
            "entries": {"broken": {"enabled": True, "config": {"where": where}}},
            "load": {"paths": [str(folder / "plugin")]},
        },
    }
    (folder / "strandline.json").write_text(json.dumps(settings), encoding="utf-8")
    return open_state(folder, environ={})


def answers(request: RecordedRequest) -> Reply:
    """Looks into a folder first: an engine hears of the call and its result together."""
    if request.body["messages"][-1]["role"] == "tool":
        return Reply("Yes.")
    return Reply(tool_calls=[ToolCall("list", {})])


async def what_happens(state: State) -> list[str]:
    """A life of a conversation, in the words of the table: what its failures lead to."""
    seen: list[str] = []
    heard: list[TurnEvent] = []
    talk = state.conversation("main", state.main_key("main"), holder="test")
    assert talk.subagents is not None
    try:
        await talk.say("one", listener=heard.append)
        await talk.say("two", listener=heard.append)
        await talk.settle()
        await talk.compact()
    except EngineError:
        seen.append("the turn ends")
    try:
        talk.subagents.attend(heard.append)
        await talk.subagents.spawn("a task")
        await talk.subagents.wait()
    except EngineError:
        seen.append("there is no sub-agent")
    await talk.close(heard.append)
    seen += [
        "a notice" for event in heard if isinstance(event, Notice) and "failed in" in event.text
    ]
    return seen


@pytest.mark.parametrize("method", sorted(public(ContextEngine)))
async def test_what_a_failing_method_leads_to_is_what_the_table_says(
    engines_page: Page, method: str, tmp_path: Path
) -> None:
    told = next(row[2] for row in engines_page.rows("Methods", "method") if f"`{method}`" == row[0])
    with ScriptedModelServer(answers) as server:
        state = broken_state(tmp_path, server.base_url, method)
        seen = await what_happens(state)
    assert seen, "nothing happened"
    assert any(each in told for each in seen), (told, seen)
    if "the turn ends" in seen:
        assert "ends" in told
    noted = json.loads((tmp_path / "engine-health.json").read_text(encoding="utf-8"))
    assert noted["failures"][-1]["phase"] == method


# -- sub-agents --------------------------------------------------------------------------------


def test_the_limits_of_sub_agents_are_told(subagents_page: Page) -> None:
    limits, told = SubagentLimits(), subagents_page.rows("Limits", "what")
    said = " ".join(" ".join(row) for row in told)
    for number in (
        limits.most_depth,
        limits.most_running,
        limits.most_unattended,
        limits.timeout_ms // 60_000,
        f"{limits.fork_tokens:,}",
        f"{spawn_checks.MOST_TASK_CHARS:,}",
        spawn_checks.MOST_LABEL_CHARS,
        f"{announcing.MOST_CHARS:,}",
    ):
        assert f" {number}" in said, number
    keys = {each.key.replace("defaults", "<id>").removesuffix("[]") for each in setting_keys()}
    assert {key for row in told for key in quoted_in(row[2])} <= keys


def test_every_status_every_end_and_everything_they_can_do_is_told(subagents_page: Page) -> None:
    assert subagents_page.words("Announcements", "status") == [*get_args(RunStatus)]
    reasons = subagents_page.words("In a program", "reason")
    assert sorted(reasons) == sorted(get_args(engine.SubagentEnd))
    rows = subagents_page.words("In a program", "`Conversation.subagents`")
    assert sorted(word.partition("(")[0] for word in rows) == sorted(public(Subagents))
    assert f"last {MOST_LISTED}" in subagents_page.section("In a program")
    lines = {command.name for command in COMMANDS}
    for line in subagents_page.words("In a chat", "line"):
        assert line.split()[0] in lines


def test_the_words_of_spawn_are_those_that_it_takes(subagents_page: Page) -> None:
    shown = next(
        word
        for word in subagents_page.words("In a program", "`Conversation.subagents`")
        if word.startswith("spawn(")
    )
    taken = [name for name in inspect.signature(Subagents.spawn).parameters if name != "self"]
    assert [
        word.strip(" ()*") for word in shown.removeprefix("spawn(").split(",") if word.strip(" *")
    ] == taken


def test_what_a_spawn_leaves_in_transcripts_is_told(format_page: Page) -> None:
    notes = format_page.words("Sub-agents", "`data` key")
    assert_keys(announcing.note_spawn, notes)
    origin = format_page.words("Sub-agents", "`origin` key")
    assert_keys(
        announcing._origin,
        [word for word in origin if word not in {"subagent", *get_args(RunStatus)}],
    )
    text = format_page.section("Sub-agents")
    assert f"`{announcing.SPAWN}`" in text
    assert f"`{announcing.SUBAGENT}`" in text


def assert_keys(function: Callable[..., object], told: list[str]) -> None:
    source = inspect.getsource(function)
    assert told == [key for key in told if f'"{key}":' in source]
    assert len(told) >= source.count('":')
