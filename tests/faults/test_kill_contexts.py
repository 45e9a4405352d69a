"""Processes killed while a context is being made: summaries of layers, sub-agents, engines, files.

Whenever it happens, nothing that was acknowledged is lost, `strandline doctor` finds nothing
broken, and the next message is answered. Source: spec 3; cases/faults A4, C8.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from strandline import SessionManager
from strandline.runtime.announcing import SUBAGENT
from strandline.runtime.conversation import Conversation
from strandline.runtime.turn_result import TurnResult
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer, ToolCall
from strandline.wiring import open_state

KEY = "agent:main:main"
ANSWER_S = 30
ROUNDS = 4

TALKER = """
import asyncio, os, sys
from pathlib import Path
from strandline.wiring import open_state

async def main():
    talk = open_state(Path(sys.argv[1]), {}).conversation("main", "agent:main:main", holder="it")
    for text in sys.argv[2:]:
        if text == "/compact":
            await talk.compact()
        else:
            await talk.say(text)
            await talk.settle()
        os.write(1, b"answered\\n")

asyncio.run(main())
"""
SWITCHER = """
import os, sys
from pathlib import Path
from strandline.wiring import open_state
from strandline.wiring.plugin_switch import PluginSwitch

switch = PluginSwitch(lambda: open_state(Path(sys.argv[1]), {}))
os.write(1, b"ready\\n")
while True:
    switch.enable("still", select=True)
    switch.disable("still")
    os.write(1, b"switched\\n")
"""
KEEPER = """
import os, sys
from pathlib import Path
from strandline.clock import SystemClock
from strandline.runtime.kept_prompts import KeptPrompt, RecordedPrompts
from strandline.stores.session_records import SessionRecords

folder, session_id, ref = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
prompts = RecordedPrompts(SessionRecords(folder / "cache" / "prompts", SystemClock()))
summaries = SessionRecords(folder / "cache" / "layer-summaries", SystemClock())
number = 0
while True:
    number += 1
    prompts.keep(session_id, KeptPrompt(ref, f"prompt {number} " * 3_000))
    summaries.update(session_id, lambda records: [*records, {"covers": ["x"], "n": number}])
    os.write(1, b"%d\\n" % number)
"""
STILL = """
import asyncio
from strandline.context.engine import CompactResult, EngineInfo, LegacyEngine


class Still(LegacyEngine):
    info = EngineInfo("still", "Still", owns_compaction=True)

    async def compact(self, request):
        request.session.session_file and open(request.session.session_file + ".note", "w").close()
        await asyncio.sleep(60)
        return CompactResult(ok=True, compacted=False)


def register(api):
    api.register_context_engine("still", lambda context: Still())
"""


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def killed(child: subprocess.Popen[bytes]) -> list[str]:
    """Kill it; the whole lines that it has said."""
    child.send_signal(signal.SIGKILL)
    assert child.stdout is not None
    return child.stdout.read().decode().split("\n")[:-1]


class Stalling:
    """A script that hangs where a request has these words, and tells that it does."""

    def __init__(self, words: str, *, first: Callable[[str], Reply | None] | None = None) -> None:
        self.words = words
        self.first = first
        self.reached = Event()
        self.is_well = False

    def __call__(self, request: RecordedRequest) -> Reply:
        text = json.dumps(request.body)
        if not self.is_well and self.words in text:
            self.reached.set()
            return Reply("too late", stall_after=0, stall_s=30)
        if "keep the memory of an assistant" in text:
            return Reply("## Facts\n- the lanterns of the harbour are lit\n")
        return (self.first and self.first(text)) or Reply("Fine.")


def transcript_of(state: Path) -> Path:
    store = state / "agents" / "main" / "sessions"
    return store / str(json.loads((store / "sessions.json").read_text())[KEY]["sessionFile"])


def in_one_process(state: Path, what: Callable[[Conversation], Any]) -> Any:
    async def go() -> Any:
        talk = open_state(state, {}).conversation("main", KEY, holder="a test")
        try:
            result = await what(talk)
            await talk.settle()
            return result
        finally:
            await talk.close()

    return asyncio.run(go())


def say(state: Path, text: str) -> TurnResult:
    """The next message, in this process."""
    result: TurnResult = in_one_process(state, lambda talk: talk.say(text))
    return result


def goes_on(run: Any, state: Path, before: bytes) -> None:
    """What was there is there, the doctor is content, and the next message is answered."""
    after = transcript_of(state).read_bytes()
    assert after.startswith(before)
    seen = run("doctor", "--json").json()
    assert [each for each in seen["findings"] if each["severity"] == "error"] == []
    assert say(state, "And now?").reply == "Fine."
    assert transcript_of(state).read_bytes().startswith(after)
    with SessionManager.open(transcript_of(state)) as session:
        assert session.verify() == []


def test_while_a_layer_s_summary_is_being_made(
    run: Any, state: Path, setup: Callable[..., None], serve: Callable[..., ScriptedModelServer]
) -> None:
    script = Stalling("keep the memory of an assistant")
    rules = [{"maxAge": "1h", "keep": "all"}, {"maxAge": "inf", "keep": "summary"}]
    setup(serve(script), context={"ttl": {"rules": rules}, "compaction": {"model": "mine/two"}})
    assert say(state, "Hello").reply == "Fine."
    with SessionManager.open(transcript_of(state)) as session:
        for number in range(6):
            old = {
                "role": "user",
                "content": f"lantern {number} is lit, " * 20,
                "timestamp": number,
            }
            session.append_message(old)
    before = transcript_of(state).read_bytes()
    with process(TALKER, state, "Is it lit?") as child:
        assert script.reached.wait(ANSWER_S)
        assert killed(child) == []
    script.is_well = True
    assert b"Is it lit?" in transcript_of(state).read_bytes()
    goes_on(run, state, before)


@pytest.mark.parametrize("context", ["isolated", "fork"])
def test_while_a_sub_agent_works(
    run: Any,
    state: Path,
    setup: Callable[..., None],
    serve: Callable[..., ScriptedModelServer],
    context: str,
) -> None:
    """Its parent goes on, and hears that the child was not finished."""

    def first(text: str) -> Reply | None:
        call = ToolCall("spawn", {"task": "count them", "context": context})
        is_begun = '"role": "tool"' in text
        is_asked = "begin one" in text and not (is_begun or script.is_well)
        return Reply("", tool_calls=[call]) if is_asked else None

    script = Stalling("A task from another agent", first=first)
    setup(serve(script))
    assert say(state, "Hello").reply == "Fine."
    before = transcript_of(state).read_bytes()
    with process(TALKER, state, "begin one") as child:
        assert script.reached.wait(ANSWER_S)
        killed(child)
    script.is_well = True
    assert b"begin one" in transcript_of(state).read_bytes()
    goes_on(run, state, before)
    children = [key for key in json.loads(rows_of(state)) if ":subagent:" in key]
    assert len(children) == 1
    with SessionManager.open(transcript_of(state)) as session:
        messages = session.build_context().messages
    [told] = [each for each in messages if each.get("customType") == SUBAGENT]
    assert "interrupted" in json.dumps(told)


def rows_of(state: Path) -> str:
    return (state / "agents" / "main" / "sessions" / "sessions.json").read_text()


def link_still(state: Path, *, selected: bool) -> None:
    """The plugin `still` is linked, and its engine is selected."""
    (state / "still").mkdir()
    (state / "still" / "still_engine.py").write_text(STILL)
    manifest = json.dumps({"id": "still", "module": "still_engine"})
    (state / "still" / "strandline-plugin.json").write_text(manifest)
    path = state / "strandline.json"
    settings = json.loads(path.read_text())
    settings["plugins"] = {
        "load": {"paths": [str(state / "still")]},
        "entries": {"still": {"enabled": selected}},
        "slots": {"contextEngine": "still" if selected else "legacy"},
    }
    path.write_text(json.dumps(settings))


def test_while_an_engine_compacts(
    run: Any, state: Path, setup: Callable[..., None], serve: Callable[..., ScriptedModelServer]
) -> None:
    setup(serve(lambda _: Reply("Fine.")))
    link_still(state, selected=True)
    assert say(state, "Hello").reply == "Fine."
    before = transcript_of(state).read_bytes()
    note = Path(f"{transcript_of(state)}.note")
    with process(TALKER, state, "Is it lit?", "/compact") as child:
        until(note.exists)
        assert killed(child) == ["answered"]
    note.unlink()
    goes_on(run, state, before)
    assert run("plugins", "disable", "still").code == 0
    goes_on(run, state, before)


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + ANSWER_S
    while not there():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


def test_while_the_settings_of_plugins_are_written(
    run: Any, state: Path, setup: Callable[..., None], serve: Callable[..., ScriptedModelServer]
) -> None:
    """They are those of before or of after, comments and all."""
    setup(serve(lambda _: Reply("Fine.")))
    link_still(state, selected=False)
    path = state / "strandline.json"
    path.write_text("// mine\n" + path.read_text())
    assert say(state, "Hello").reply == "Fine."
    before, draw = transcript_of(state).read_bytes(), random.Random(3)
    for _ in range(ROUNDS):
        with process(SWITCHER, state) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(draw.uniform(0, 0.2))
            killed(child)
        assert path.read_text().startswith("// mine\n")
        listed = run("plugins", "list", "--json").json()
        assert listed["contextEngine"] in {"legacy", "still"}
        goes_on(run, state, before)


def test_while_prompts_and_summaries_are_kept(
    run: Any, state: Path, setup: Callable[..., None], serve: Callable[..., ScriptedModelServer]
) -> None:
    """What was acknowledged can be read; the file that was in the making is in nobody's way."""
    setup(serve(lambda _: Reply("Fine.")))
    assert say(state, "Hello").reply == "Fine."
    before, draw = transcript_of(state).read_bytes(), random.Random(5)
    for _ in range(ROUNDS):
        with process(KEEPER, state, session_id_of(state), "mine/one") as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"1\n"
            time.sleep(draw.uniform(0, 0.2))
            acknowledged = int(["1", *killed(child)][-1])
        [prompt] = kept(state, "prompts")
        assert prompt["text"].startswith("prompt ")
        assert int(prompt["text"].split()[1]) >= acknowledged
        assert int(kept(state, "layer-summaries")[-1]["n"]) >= acknowledged
        goes_on(run, state, before)


def session_id_of(state: Path) -> str:
    return str(json.loads(rows_of(state))[KEY]["sessionId"])


def kept(state: Path, what: str) -> list[dict[str, Any]]:
    [path] = (state / "cache" / what).glob("*.json")
    records: list[dict[str, Any]] = json.loads(path.read_text())["records"]
    return records
