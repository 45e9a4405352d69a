"""Session keys: the addresses of conversations, and the file names of session ids.

A key names a bucket of conversation, for routing and isolation; a session id names the
transcript that the bucket writes to now. A key is data and never a path: only
`file_stem_for` makes a file name, and it makes one of session ids alone. Parsing and
building are inverse. Source: spec 2, Session keys.

Agent ids, channels, accounts, buckets and the words between them are lower case; the ids
of peers, groups, rooms, threads, jobs and hooks stay as they were given.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from strandline.errors import InvalidSessionKey

KeyKind = Literal["main", "direct", "group", "channel", "room", "explicit", "cron", "hook", "other"]

MAX_ID_CHARS = 256
MAX_OTHER_CHARS = 512
"""Bound of a key of a form that only another program writes (nested sub-agents)."""

_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")
_RESERVED = frozenset(
    {"agent", "direct", "group", "channel", "room", "explicit", "cron", "hook", "topic", "thread"}
)
_UNSCOPED = frozenset({"global", "unknown"})
"""Whole keys that OpenClaw writes when sessions are not scoped to an agent."""

_CONTROLS = frozenset({"Cc", "Cs", "Zl", "Zp"})
_CHATS: Mapping[str, KeyKind] = {
    "direct": "direct",
    "group": "group",
    "channel": "channel",
    "room": "room",
}
_THREAD = re.compile(r":(topic|thread):", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One address. Made by `SessionKey.parse` or a builder below; raises `InvalidSessionKey`.

    `id` is the bucket of a main key, the peer, group, room, job or hook of the others, and
    the rest of the key where the kind is ``other``.
    """

    kind: KeyKind
    id: str
    agent_id: str | None = None
    channel: str | None = None
    account: str | None = None
    thread_word: Literal["topic", "thread"] | None = None
    thread_id: str | None = None
    run_id: str | None = None

    def __post_init__(self) -> None:
        _check_parts(self)
        if _fields_of(str(self)) != {
            name: value for name in _FIELDS if (value := getattr(self, name)) is not None
        }:
            raise _invalid(str(self), "its parts read as another key's", "choose an id without ':'")

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        """The key that `text` spells. `str` of it is the one spelling that we write."""
        return cls(**_fields_of(text.strip()))

    def __str__(self) -> str:
        words = _words_of(self)
        if self.agent_id is not None:
            words = ["agent", self.agent_id, *words]
        if self.thread_word is not None:
            words += [self.thread_word, self.thread_id or ""]
        return ":".join(words)

    @property
    def is_thread(self) -> bool:
        """Whether it is a thread or topic inside another conversation."""
        return self.thread_id is not None


_FIELDS = tuple(SessionKey.__dataclass_fields__)


def main_key(agent_id: str, bucket: str = "main") -> SessionKey:
    """The direct chats of an agent, or another bucket of its own; `bucket` is a lower-case name."""
    return SessionKey("main", bucket.lower(), agent_id.lower())


def tui_key(agent_id: str, unique: str) -> SessionKey:
    """A bucket of its own for ``/new`` in a terminal; `unique` is a fresh UUID."""
    return main_key(agent_id, f"tui-{unique}")


def explicit_key(agent_id: str, session_id: str) -> SessionKey:
    """A one-shot run with an explicit session id."""
    return SessionKey("explicit", session_id, agent_id.lower())


def direct_key(
    agent_id: str, peer: str, *, channel: str | None = None, account: str | None = None
) -> SessionKey:
    """The direct chat with one peer, of one channel and account where they are given."""
    return SessionKey("direct", peer, agent_id.lower(), _lower(channel), _lower(account))


def group_key(agent_id: str, channel: str, group: str, *, topic: str | None = None) -> SessionKey:
    """A group, or one forum topic in it."""
    return _chat_key("group", agent_id, channel, group, topic)


def channel_key(agent_id: str, channel: str, room: str, *, thread: str | None = None) -> SessionKey:
    """A channel of a chat network, or one thread in it."""
    return _chat_key("channel", agent_id, channel, room, thread)


def room_key(agent_id: str, channel: str, room: str, *, thread: str | None = None) -> SessionKey:
    """A room, or one thread in it."""
    return _chat_key("room", agent_id, channel, room, thread)


def cron_key(job_id: str, *, run_session_id: str | None = None) -> SessionKey:
    """A scheduled job, or one isolated run of it."""
    return SessionKey("cron", job_id, run_id=run_session_id)


def hook_key(name: str) -> SessionKey:
    """A webhook: a fresh UUID, unless the caller named one."""
    return SessionKey("hook", name)


def check_agent_id(agent_id: str) -> str:
    """The agent id in lower case. It names a folder, so it must be a plain name."""
    lowered = agent_id.lower()
    if not _AGENT_ID.fullmatch(lowered):
        raise InvalidSessionKey(
            f"{_shown(agent_id)} cannot be an agent id",
            remedy="use 1 to 64 letters, digits, '-' and '_', a letter or digit first",
        )
    return lowered


# -- file names ------------------------------------------------------------------------

_MAX_STEM_CHARS = 128
_CHECKPOINT = r"checkpoint\.[0-9a-f-]{36}"
"""Copies of a transcript that older releases of OpenClaw left at each compaction."""

_UNSAFE = re.compile(
    rf"[^a-z0-9._-]|^\.|\.(?=(?:trajectory|{_CHECKPOINT})\Z)|-(?=topic(?:-|\Z))",
    re.IGNORECASE | re.ASCII,
)
_NO_TRANSCRIPT = re.compile(
    rf"\A\.|[/\\]|\.(?:trajectory|{_CHECKPOINT})\.jsonl\Z", re.IGNORECASE | re.ASCII
)


def file_stem_for(session_id: str, thread_id: str | None = None) -> str:
    """The name, without suffix, of a session's files: ``<sessionId>[-topic-<threadId>]``.

    A session id of at most 128 letters, digits, ``.``, ``_`` and ``-`` stands as it is;
    other characters become ``%XX`` of their UTF-8 bytes, and so does what would make the
    name hidden, a trajectory's, or a topic's of another session. A longer name keeps its
    beginning and ends in ``~`` and a SHA-256, so no two pairs share a name. Where the file
    system ignores case, two ids that differ in case alone would: creating a transcript
    there fails instead of mixing them.
    """
    stem = _encoded(session_id)
    if thread_id is not None:
        stem += "-topic-" + _encoded(thread_id)
    if len(stem) <= _MAX_STEM_CHARS:
        return stem
    digest = hashlib.sha256(stem.encode()).hexdigest()
    return f"{stem[: _MAX_STEM_CHARS - 65]}~{digest}"


def is_transcript_name(name: str) -> bool:
    """Whether a bare file name can be a live transcript's (no archive, no trajectory)."""
    return (
        name.endswith(".jsonl")
        and not _NO_TRANSCRIPT.search(name)
        and not any(map(_is_control, name))
    )


def _encoded(part: str) -> str:
    return _UNSAFE.sub(_percent, part) or "%"


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


# -- parsing ---------------------------------------------------------------------------


def _fields_of(text: str) -> dict[str, Any]:
    """The fields, absent ones left out, of the key that `text` spells."""
    head, _, rest = text.partition(":")
    match head.lower():
        case "agent":
            agent_id, _, rest = rest.partition(":")
            if not rest:
                raise _invalid(text, "it names no conversation", "write agent:<agent>:<bucket>")
            return {"agent_id": agent_id.lower(), **_fields_of_agent_part(rest)}
        case "cron" if rest:
            return _fields_of_cron(rest)
        case "hook" if rest:
            return {"kind": "hook", "id": rest}
        case word if word in _UNSCOPED and text.lower() == word:
            return {"kind": "other", "id": word}
    raise _invalid(
        text,
        "it begins with no known word",
        "write agent:<agent>:<bucket>, cron:<job> or hook:<name>",
    )


def _fields_of_cron(rest: str) -> dict[str, Any]:
    job_id, marker, run_id = rest.rpartition(":run:")
    if not marker:
        return {"kind": "cron", "id": rest}
    return {"kind": "cron", "id": job_id, "run_id": run_id}


def _fields_of_agent_part(rest: str) -> dict[str, Any]:
    first, _, tail = rest.partition(":")
    match first.lower():
        case "explicit" if tail:
            return {"kind": "explicit", "id": tail}
        case "cron" if tail:
            return _fields_of_cron(tail)
    base, thread = _split_thread(rest)
    return {**_fields_of_chat(base), **thread}


def _split_thread(rest: str) -> tuple[str, dict[str, str]]:
    """The part before the last ``:topic:`` or ``:thread:``, and the thread behind it."""
    markers = list(_THREAD.finditer(rest))
    if not markers:
        return rest, {}
    word = markers[-1][1].lower()
    base, thread_id = rest[: markers[-1].start()], rest[markers[-1].end() :]
    return base, {"thread_word": word, "thread_id": thread_id}


def _fields_of_chat(base: str) -> dict[str, Any]:
    parts = base.split(":")
    words = [part.lower() for part in parts[:3]]
    if len(parts) == 1:
        return {"kind": "main", "id": base.lower()}
    if words[0] == "direct":
        return {"kind": "direct", "id": ":".join(parts[1:])}
    if len(parts) > 2 and words[1] in _CHATS:
        return {"kind": words[1], "channel": words[0], "id": ":".join(parts[2:])}
    if len(parts) > 3 and words[2] == "direct":
        channel, account = words[:2]
        return {
            "kind": "direct",
            "channel": channel,
            "account": account,
            "id": ":".join(parts[3:]),
        }
    return {"kind": "other", "id": base}


def _words_of(key: SessionKey) -> list[str]:
    """The words between the agent and the thread."""
    match key.kind:
        case "main" | "other":
            return [key.id]
        case "cron" if key.run_id is not None:
            return ["cron", key.id, "run", key.run_id]
        case "explicit" | "cron" | "hook":
            return [key.kind, key.id]
    return [*(part for part in (key.channel, key.account) if part is not None), key.kind, key.id]


# -- checking --------------------------------------------------------------------------


def _check_parts(key: SessionKey) -> None:
    if key.agent_id is not None:
        check_agent_id(key.agent_id)
    for part, what in ((key.channel, "channel"), (key.account, "account")):
        if part is not None and (not _NAME.fullmatch(part) or part in _RESERVED):
            raise _invalid(
                part, f"it cannot be the name of a {what}", "use a plain lower-case name"
            )
    if key.kind == "main" and key.id in _RESERVED:
        raise _invalid(key.id, "the word has a meaning of its own in keys", "choose another name")
    limit = MAX_OTHER_CHARS if key.kind == "other" else MAX_ID_CHARS
    for part in (key.id, key.thread_id, key.run_id):
        if part is not None:
            _check_id(part, limit, may_have_slashes=key.kind in _CHATS)


def _check_id(part: str, limit: int, *, may_have_slashes: bool) -> None:
    """Chat networks give ids that hold ``/`` (spaces, base64); no other id needs one."""
    if not part.strip():
        raise _invalid(part, "a part of it is empty", "leave nothing out between the colons")
    if len(part) > limit:
        raise _invalid(part, f"a part of it is longer than {limit} characters", "use a shorter id")
    if part != part.strip() or any(map(_is_control, part)):
        raise _invalid(part, "it holds control characters or outer space", "leave them out")
    if "\\" in part or ("/" in part and not may_have_slashes):
        raise _invalid(part, "it holds a path separator", "use an id without '/' and '\\'")
    if not {".", ".."}.isdisjoint(re.split(r"[/:]", part)):
        raise _invalid(part, "it holds a step of a path ('.' or '..')", "use another id")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in _CONTROLS


def _invalid(text: str, why: str, remedy: str) -> InvalidSessionKey:
    return InvalidSessionKey(f"{_shown(text)} cannot be in a session key ({why})", remedy=remedy)


def _shown(text: str) -> str:
    """For a message: escaped, and never longer than a line."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")


# -- small parts -----------------------------------------------------------------------


def _chat_key(
    kind: KeyKind, agent_id: str, channel: str, room: str, thread: str | None
) -> SessionKey:
    word: Literal["topic", "thread"] = "topic" if kind == "group" else "thread"
    return SessionKey(
        kind,
        room,
        agent_id.lower(),
        channel.lower(),
        thread_word=word if thread is not None else None,
        thread_id=thread,
    )


def _lower(name: str | None) -> str | None:
    return None if name is None else name.lower()
