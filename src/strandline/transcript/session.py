"""A session: one transcript, opened for reading and continuing.

`Session` is where appending, moving, looking up and building the context meet; each is
done in a module of its own. It works on any log that keeps the contract of
`strandline.transcript.store`; `strandline.SessionManager` adds where the log comes from.
Methods may be called from several threads. Source: spec 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import islice, takewhile
from typing import Any, TypeVar

from strandline.clock import Clock, IdSource
from strandline.errors import EntryNotFound, InvalidEntry
from strandline.transcript.append import Appender, Durability
from strandline.transcript.bodies import damaged_bodies
from strandline.transcript.codec import decode_object, encode_object
from strandline.transcript.context import SessionContext
from strandline.transcript.copying import BranchCopy
from strandline.transcript.damage import Finding
from strandline.transcript.entries import AnyEntry, entry_of
from strandline.transcript.live_context import LiveContext
from strandline.transcript.lookups import Lookups
from strandline.transcript.messages import JsonObject, Message
from strandline.transcript.reading import DEFAULT_SIZES, Reader, Sizes
from strandline.transcript.shape import Families, TreeNode, common_ancestor, roots, tips
from strandline.transcript.store import TranscriptLog
from strandline.transcript.tree import Node
from strandline.transcript.upgrade import current, first_objects

T = TypeVar("T")
SUMMARY_ROLES = frozenset({"compactionSummary", "branchSummary"})


class Session:
    """A conversation as a tree; every change is one appended line.

    `durability` "fsync" acknowledges what is said only when it would survive a power cut;
    "none" leaves that to the operating system. A file of which no line is of a transcript
    opens as an empty session, and takes no entry (`TranscriptUnreadable`).
    """

    def __init__(
        self,
        log: TranscriptLog,
        *,
        clock: Clock,
        ids: IdSource,
        durability: Durability = "fsync",
        sizes: Sizes = DEFAULT_SIZES,
    ) -> None:
        self._log = current(log)
        self._header: JsonObject | None = None
        self._clock, self._ids = clock, ids
        self._reader = Reader(self._log, sizes)
        self._reader.open()
        self._lookups = Lookups(self._reader)
        self._appender = Appender(self._reader, self._lookups, clock, ids, durability)
        self._live = LiveContext(self._reader)
        self._families = Families()

    # -- identity ------------------------------------------------------------------------

    @property
    def header(self) -> Mapping[str, Any]:
        """The header line's keys; empty where the file lost its header."""
        if self._header is None:
            self._header, _ = first_objects(self._log)
        return self._header or {}

    @property
    def session_id(self) -> str:
        """The id in the header; empty where the file lost its header."""
        value = self.header.get("id")
        return value if isinstance(value, str) else ""

    @property
    def log_name(self) -> str:
        """What the store calls the transcript: its path, where it is a file."""
        return self._log.name

    @property
    def cwd(self) -> str:
        """The working directory in the header, or an empty text."""
        value = self.header.get("cwd")
        return value if isinstance(value, str) else ""

    @property
    def name(self) -> str | None:
        """The session's name: the last that was given, on any branch."""
        with self._appender.lock:
            tree = self._reader.tree
            return tree.name if tree.name_is_set else self._lookups.totals().name

    @property
    def entry_count(self) -> int:
        """Parsed entries in the file, the header not among them."""
        with self._appender.lock:
            return self._lookups.totals().entries

    # -- saying something ------------------------------------------------------------------

    def append_message(self, message: Message) -> str:
        """Append a message (`UserMessage`, `AssistantMessage`, `ToolResultMessage` …).

        Returns the entry's id once it is acknowledged. Summaries have methods of their
        own. Raises `InvalidEntry` for what is no message, `StoreWriteFailed` when the
        disk does not take it.
        """
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role in SUMMARY_ROLES:
            raise InvalidEntry(
                f"a message with the role {role!r} cannot be appended",
                remedy="append_compaction and branch_with_summary write summaries; "
                "anything else needs a role",
            )
        return self._appender.append("message", {"message": message})

    def append_custom_message(
        self, custom_type: str, content: Any, *, display: bool = True, details: Any = None
    ) -> str:
        """Append what a plugin says to the model; `display` False hides it from people."""
        body = {"customType": custom_type, "content": content, "display": display}
        return self._appender.append("custom_message", _with(body, details=details))

    def append_custom(self, custom_type: str, data: Any = None) -> str:
        """Append a plugin's own state, which the model never sees."""
        return self._appender.append("custom", _with({"customType": custom_type}, data=data))

    def append_compaction(
        self,
        summary: str,
        first_kept_entry_id: str,
        tokens_before: int,
        *,
        details: Any = None,
        from_hook: bool | None = None,
    ) -> str:
        """Append a compaction: `summary` stands for everything before the first kept entry.

        `tokens_before` is the size of the context that was compacted.
        """
        body = {
            "summary": summary,
            "firstKeptEntryId": first_kept_entry_id,
            "tokensBefore": tokens_before,
        }
        return self._appender.append("compaction", _with(body, details=details, fromHook=from_hook))

    def append_model_change(self, provider: str, model_id: str) -> str:
        """From here on, this model answers."""
        return self._appender.append("model_change", {"provider": provider, "modelId": model_id})

    def append_thinking_level_change(self, level: str) -> str:
        """From here on, models think this hard."""
        return self._appender.append("thinking_level_change", {"thinkingLevel": level})

    def append_session_info(self, name: str) -> str:
        """Give the session a name; an empty one clears it."""
        return self._appender.append("session_info", {"name": name.strip()})

    def append_label(self, target_id: str, label: str | None) -> str:
        """Bookmark an entry; None or an empty text clears the bookmark.

        Raises `EntryNotFound`.
        """
        self._require(target_id)
        return self._appender.append("label", _with({"targetId": target_id}, label=label or None))

    # -- moving ----------------------------------------------------------------------------

    @property
    def leaf_id(self) -> str | None:
        """The entry at which the conversation stands; None is before the first."""
        with self._appender.lock:
            return self._reader.position().leaf

    @property
    def append_parent_id(self) -> str | None:
        """The `parentId` that the next entry gets."""
        with self._appender.lock:
            return self._reader.position().append_parent

    def branch(self, entry_id: str) -> str:
        """Stand at an earlier entry; what is appended next grows a branch from there.

        Writes a `leaf` line, so that the session stands there after a reload, in pi too.
        Returns that line's id. Raises `EntryNotFound`.
        """
        self._require(entry_id)
        return self._move_to(entry_id)

    def reset_leaf(self) -> str:
        """Stand before the first entry, as in a new conversation; nothing is removed."""
        return self._move_to(None)

    def _move_to(self, target: str | None) -> str:
        return self._appender.append("leaf", {"targetId": target}, lambda _: target)

    def branch_with_summary(
        self,
        entry_id: str | None,
        summary: str,
        *,
        details: Any = None,
        from_hook: bool | None = None,
    ) -> str:
        """Go back to an entry, taking a summary of the branch that is left along.

        Returns the id of the `branch_summary` entry. Raises `EntryNotFound`.
        """
        if entry_id is not None:
            self._require(entry_id)
        with self._appender.lock:
            self._move_to(entry_id)
            body = {"fromId": entry_id or "root", "summary": summary}
            return self._appender.append(
                "branch_summary",
                _with(body, details=details, fromHook=from_hook),
                lambda _: entry_id,
            )

    # -- looking ---------------------------------------------------------------------------

    def build_context(self, leaf_id: str | None = None) -> SessionContext:
        """What a model would see of the path to the leaf, or to `leaf_id`.

        The messages are shared with later contexts: treat them as read-only.
        Raises `EntryNotFound`.
        """
        with self._appender.lock:
            if leaf_id is not None:
                self._require(leaf_id)
            items = self._reader.consistently(lambda: self._live.messages(self._end(leaf_id)))
            leaf = self._end(leaf_id)
        return SessionContext(
            items=items,
            leaf_id=leaf,
            find_model=lambda: self._locked(self._lookups.model, leaf),
            find_thinking_level=lambda: self._locked(self._lookups.thinking_level, leaf),
        )

    def path(self, leaf_id: str | None = None) -> list[str]:
        """The ids from the root to the leaf, or to `leaf_id`. Raises `EntryNotFound`."""
        with self._appender.lock:
            if leaf_id is not None:
                self._require(leaf_id)
            reader = self._reader
            walk = reader.consistently(lambda: [*reader.walk(self._end(leaf_id))])
            return [node.id for node in reversed(walk)]

    def newest_entries(self, most: int, *, until: str | None = None) -> list[AnyEntry]:
        """The last entries of the path to the leaf, the newest first; `most` at most.

        None from the entry `until` on. Costs what is returned, however long the path is.
        """
        with self._appender.lock:
            reader = self._reader

            def look() -> list[Node]:
                newer = takewhile(lambda node: node.id != until, reader.walk(self._end(None)))
                return [*islice(newer, most)]

            return [self._entry_of(node) for node in reader.consistently(look)]

    def entry(self, entry_id: str) -> AnyEntry:
        """The entry of that id. Raises `EntryNotFound`."""
        with self._appender.lock:
            return self._entry_of(self._require(entry_id))

    def entries(self) -> list[AnyEntry]:
        """Every entry of the tree, in file order."""
        with self._appender.lock:
            return [self._entry_of(n) for n in self._reader.complete_tree().nodes.values()]

    def find(self, id_or_label: str) -> str:
        """The id that a person means: an id, the beginning of one, or a label.

        Raises `EntryNotFound`, also where the beginning fits several entries.
        """
        with self._appender.lock:
            nodes = self._reader.complete_tree().nodes
            if id_or_label in nodes:
                return id_or_label
            matches = [i for i in nodes if id_or_label and i.startswith(id_or_label)]
            matches += [i for i, label in self.labels().items() if label == id_or_label]
        if len(matches) == 1:
            return matches[0]
        what = "no entry" if not matches else f"{len(matches)} entries"
        raise EntryNotFound(
            f"{what} in {self._log.name} for {id_or_label!r}",
            remedy="`strandline session tree` shows ids and labels",
        )

    def labels(self) -> dict[str, str]:
        """Labels in force, by entry id."""
        with self._appender.lock:
            return dict(self._lookups.totals().labels)

    def label(self, entry_id: str) -> str | None:
        """The label of an entry, or None."""
        with self._appender.lock:
            return self._lookups.totals().labels.get(entry_id)

    def children(self, entry_id: str | None) -> list[str]:
        """The entries that follow an entry directly; None asks for the roots."""
        with self._appender.lock:
            return self._families.children(self._reader.complete_tree(), entry_id)

    def common_ancestor(self, a: str, b: str) -> str | None:
        """The last entry that two paths share, or None. Raises `EntryNotFound`."""
        return common_ancestor(self.path(a), self.path(b))

    def tips(self) -> list[str]:
        """The last entry of every branch, in file order; each can be branched from."""
        with self._appender.lock:
            return tips(self._reader.complete_tree())

    def tree(self) -> list[TreeNode]:
        """The roots of the tree, each with its children, oldest first."""
        with self._appender.lock:
            return roots(self._reader.complete_tree())

    def verify(self) -> list[Finding]:
        """Everything that is not as it should be, in file order; empty when clean."""
        with self._appender.lock:
            self._reader.refresh()
            findings = [*self._reader.complete_tree().findings, *damaged_bodies(self._reader)]
            if self._reader.torn is not None:
                findings.append(self._reader.torn)
        return sorted(findings, key=lambda finding: finding.offset)

    def branch_lines(self, leaf_id: str | None = None) -> list[bytes]:
        """The lines of one branch, byte for byte, oldest first. Raises `EntryNotFound`."""
        with self._appender.lock:
            return [self._reader.line(self._require(entry_id)) for entry_id in self.path(leaf_id)]

    def copy_branch(self, header: JsonObject, leaf_id: str | None = None) -> BranchCopy:
        """The lines of a new transcript that begins with `header` and holds one branch.

        Raises `EntryNotFound`.
        """
        with self._appender.lock:
            path = [self._require(entry_id) for entry_id in self.path(leaf_id)]
            copy = BranchCopy(encode_object(header), self._appender.leaf_entry)
            for node in path:
                copy.add(node, self._reader.line(node))
            return copy

    # -- keeping up ------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Take in what others appended; True if there was anything."""
        with self._appender.lock:
            return self._reader.refresh()

    def run_lock(self, *, timeout_ms: int, holder: str) -> AbstractContextManager[None]:
        """Hold the session for one turn. Raises `SessionBusy` after `timeout_ms`."""
        return self._log.run_lock(timeout_ms, holder)

    def close(self) -> None:
        """Give back open files."""
        self._log.close()

    # -- inside ----------------------------------------------------------------------------

    def _end(self, leaf_id: str | None) -> str | None:
        """Where a path ends: at `leaf_id`, or where the conversation stands."""
        return leaf_id if leaf_id is not None else self._reader.position().leaf

    def _locked(self, find: Callable[[str | None], T], leaf_id: str | None) -> T:
        with self._appender.lock:
            return find(leaf_id)

    def _require(self, entry_id: str) -> Node:
        reader = self._reader
        with self._appender.lock:
            node = reader.consistently(lambda: reader.node(entry_id))
            if node is None and reader.refresh():
                node = reader.consistently(lambda: reader.node(entry_id))
        if node is None:
            raise EntryNotFound(
                f"no entry {entry_id!r} in {self._log.name}",
                remedy="`strandline session tree` shows the ids",
            )
        return node

    def _entry_of(self, node: Node) -> AnyEntry:
        line = self._reader.line(node)
        return entry_of(node.id, decode_object(line), line)


def _with(body: JsonObject, **optional: Any) -> JsonObject:
    """The body and those optional keys that have a value: absent, not null, as Node writes."""
    return {**body, **{key: value for key, value in optional.items() if value is not None}}
