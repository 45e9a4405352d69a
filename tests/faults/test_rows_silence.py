"""Silent replies (faults J), on every surface that there is."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.runtime.agent import Backend
from strandline.runtime.events import ReplyText, TurnEvent
from strandline.runtime.model import Finished, ModelEvent, ModelRequest, TextDelta
from strandline.runtime.silence import Occasion
from strandline.testing import Reply
from strandline.transcript.messages import Message

BackendFor = Callable[..., Backend]
CHAT = "openai-completions"
OCCASIONS = {
    "direct": Occasion(),
    "group": Occasion(chat_type="group"),
    "room": Occasion(chat_type="room"),
    "background": Occasion(background=True),
}
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
    "ErkJggg=="
)

MENTIONED = "The token NO_REPLY means silence:\n```\nNO_REPLY\n```\nThat is all."
UPDATED = "✅ updated\n无紧急事项 → NO_REPLY"
TAIL = "msg [[E1008]timeout] tail"
REPLIES: dict[str, tuple[str, dict[str, str]]] = {
    "J1 token": ("NO_REPLY", {}),
    "J1 lower case": (" no_reply\n", {}),
    "J1 twice": ("NO_REPLY NO_REPLY", {}),
    "J3": ("All healthy.\n\nNO_REPLY", {"direct": "All healthy."}),
    "J4": ("NO_REPLY\n\nclear everything", {}),
    "J5": (
        "Not addressed to me — no mention.\n\nNO_REPLY",
        {"direct": "Not addressed to me — no mention."},
    ),
    "J6": (UPDATED, dict.fromkeys(("direct", "group", "room"), UPDATED)),
    "J10": (MENTIONED, dict.fromkeys(OCCASIONS, MENTIONED)),
    "J11": (TAIL, dict.fromkeys(OCCASIONS, TAIL)),
}
"""A reply, and what of it is delivered on which occasion; elsewhere nothing."""


@pytest.mark.parametrize("occasion", OCCASIONS)
@pytest.mark.parametrize("row", REPLIES)
async def test_each_reply_of_the_table_is_delivered_as_it_says_in_a_conversation(
    serve: Any,
    agent_of: Any,
    talk_of: Any,
    backend_for: BackendFor,
    api: str,
    row: str,
    occasion: str,
) -> None:
    """J1, J3 to J6, J10, J11: streamed in pieces of three characters, and in the result."""
    text, delivered = REPLIES[row]
    expected = delivered.get(occasion, "")
    server, heard = serve([Reply(text, chunk_chars=3)]), list[TurnEvent]()
    talk = talk_of(agent_of(backend_for(api, server)))
    result = await talk.say("hello", listener=heard.append, occasion=OCCASIONS[occasion])
    assert result.reply == expected
    assert "".join(event.text for event in heard if isinstance(event, ReplyText)) == expected
    stored = talk.session.build_context().messages[-1]
    assert stored["content"][0]["text"] == text, "the transcript has it as it was"


@pytest.mark.parametrize("reply", ["NO_REPLY", " no_reply\n", "NO_REPLY NO_REPLY"])
def test_a_silent_reply_is_shown_by_no_face_and_marked_where_the_transcript_is_looked_at(
    serve: Any, run: Any, setup: Any, state: Path, reply: str
) -> None:
    """J1: `agent`, `chat` and their JSON print nothing, also after a restart; what shows the
    file shows it as it is, and says that it was not delivered.
    """
    setup(serve(lambda _: Reply(reply, chunk_chars=3)))
    assert run("agent", "-m", "Hello") == (0, "", "")
    assert run("agent", "-m", "Hello", "--json").json()["reply"] == ""
    assert run("chat", input="Hello\nHello\n/status\n").out.upper().count("NO_REPLY") == 0
    for command in ("sessions", "status"):
        ran = run(command)
        assert "NO_REPLY" not in (ran.out + ran.err).upper()
    [path] = (state / "agents").rglob("*.jsonl")
    shown = run("session", "show", path).out
    assert shown.count("not delivered") == 4
    for form in ("md", "html"):
        target = path.parent.parent / f"talk.{form}"
        assert run("session", "export", path, "--output", target).code == 0
        assert target.read_text().count("not delivered") == 4
    entries = run("session", "show", path, "--json").json()["entries"]
    answers = [e["message"] for e in entries if e.get("message", {}).get("role") == "assistant"]
    assert [answer["content"][0]["text"] for answer in answers] == [reply] * 4


def test_what_is_delivered_is_not_marked(serve: Any, run: Any, setup: Any, state: Path) -> None:
    """J10: a text that mentions the token, and one that a direct chat gets without it."""
    replies = ["The token NO_REPLY means silence.", "All is well.\n\nNO_REPLY"]
    setup(serve([Reply(text) for text in replies]))
    assert run("chat", input="What is it?\nAnd?\n").out == f"{replies[0]}\nAll is well.\n"
    [path] = (state / "agents").rglob("*.jsonl")
    assert "not delivered" not in run("session", "show", path).out


class SaysWithPicture:
    """A model whose answer is the token and an image; no provider of ours answers in images."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        return self._events(request)

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        yield TextDelta("NO_REPLY")
        info = request.model
        content = [
            {"type": "text", "text": "NO_REPLY"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        ]
        message: Message = {
            "role": "assistant",
            "content": content,
            "api": info.api,
            "provider": info.provider,
            "model": info.id,
            "stopReason": "stop",
            "timestamp": 1,
        }
        yield Finished(message)

    async def aclose(self) -> None:
        """Nothing to give back."""


@pytest.mark.parametrize("occasion", OCCASIONS)
async def test_an_image_beside_the_token_is_there_to_be_delivered(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, occasion: str
) -> None:
    """J8: only the text is silent; the message of the result has the media, the next turn works."""
    backend = backend_for(CHAT, serve())
    agent = agent_of(backend)
    await backend.model.aclose()
    talk = talk_of(replace(agent, model=SaysWithPicture()))
    for _ in range(2):
        result = await talk.say("draw", occasion=OCCASIONS[occasion])
        assert result.reply == ""
        assert PIXEL in json.dumps(result.message["content"])
