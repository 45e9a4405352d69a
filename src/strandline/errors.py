"""Every error that Strandline raises on purpose, in one tree.

::

    StrandlineError
    ├── ConfigError                 a settings file, an option or an environment variable
    ├── InvalidSessionKey           a session key or agent id that cannot be an address
    ├── MissingDependency           an optional part is not installed
    ├── TranscriptError
    │   ├── TranscriptNotFound      no file, or no session of that id
    │   ├── TranscriptExists        a new transcript would replace an old one
    │   ├── TranscriptUnreadable    the bytes are there and cannot be a transcript
    │   ├── TranscriptMoved         somebody appended first; read the delta and try again
    │   ├── EntryNotFound           no entry of that id
    │   └── InvalidEntry            refused before it is written
    ├── StoreError
    │   └── StoreWriteFailed        the disk (or server) did not take it; nothing is acknowledged
    ├── SessionBusy                 another turn holds the session
    ├── SessionNotFound             no row of that session key or id
    ├── ContextOverflow             the view cannot fit, whatever is done
    ├── CompactionRefused           a compaction would not help
    ├── NothingToAnswer             what was said last has its answer
    ├── BranchRefused               a hook keeps the conversation where it stands
    ├── SpawnRefused                a sub-agent was not begun
    ├── PluginError                 a plugin cannot be found, loaded or installed
    ├── EngineError                 a context engine failed; `engine` and `phase` say where
    │   └── EngineUnavailable       the selected engine cannot be used at all
    └── ModelError                  the model did not answer; `kind` says why
        └── ThreadLost              the backend does not know its thread any more

A message says what happened and to which file, key or session; `remedy` says what to do.
Faces print both on one line and exit with `exit_code` (1: it failed, 2: it could not be tried).
"""

from __future__ import annotations

from typing import ClassVar, Literal

ModelErrorKind = Literal["overflow", "rate", "auth", "network", "refused", "aborted"]


class StrandlineError(Exception):
    """The root of the tree: what happened, and the remedy.

    >>> str(StrandlineError("the file is gone", remedy="restore it"))
    'the file is gone: restore it'
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}" if self.remedy else self.what


class ConfigError(StrandlineError):
    """A settings file, an option or an environment variable says something unusable."""

    exit_code = 2


class InvalidSessionKey(StrandlineError):
    """A session key or agent id cannot be an address (spec 2, session keys)."""

    exit_code = 2


class MissingDependency(StrandlineError):
    """An optional part is needed and not installed; the remedy names the extra."""

    exit_code = 2


class TranscriptError(StrandlineError):
    """Something about one transcript."""


class TranscriptNotFound(TranscriptError):
    """There is no such transcript."""

    exit_code = 2


class TranscriptExists(TranscriptError):
    """A new transcript was to be created where one is already."""


class TranscriptUnreadable(TranscriptError):
    """The bytes are there and cannot be read as a transcript."""

    exit_code = 2


class TranscriptMoved(TranscriptError):
    """Somebody else appended first. `end` is where the transcript ends now."""

    def __init__(self, what: str, *, end: int) -> None:
        super().__init__(what, remedy="read what was added and append again")
        self.end = end


class EntryNotFound(TranscriptError):
    """No entry of that id (or prefix) is in the transcript."""


class InvalidEntry(TranscriptError):
    """An entry cannot be written as JSON that every reader accepts."""


class StoreError(StrandlineError):
    """Storage did not do what was asked."""


class StoreWriteFailed(StoreError):
    """A write or sync failed: nothing of that call is acknowledged."""


class SessionBusy(StrandlineError):
    """Another turn holds the session; `holder` says who, as far as is known."""

    def __init__(self, what: str, *, holder: str, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy)
        self.holder = holder


class SessionNotFound(StrandlineError):
    """No session of that key or id."""

    exit_code = 2


class ContextOverflow(StrandlineError):
    """The view cannot fit the window; the message names its largest parts."""


class CompactionRefused(StrandlineError):
    """A compaction was not written, because it would not shrink the context."""


class NothingToAnswer(StrandlineError):
    """A turn without a new message was asked for where the last one has its answer."""


class BranchRefused(StrandlineError):
    """The conversation was not moved to another entry, because a hook said no."""


class SpawnRefused(StrandlineError):
    """A sub-agent was not begun; its parent is as it was."""


class PluginError(StrandlineError):
    """A plugin cannot be found, loaded, registered, installed or removed."""

    exit_code = 2


class EngineError(StrandlineError):
    """A context engine failed: `engine` is its id, `phase` the method or step that failed.

    There is no fallback: the run fails until the engine works or another one is selected.
    """

    def __init__(self, what: str, *, engine: str, phase: str, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy or TWO_WAYS_OUT)
        self.engine = engine
        self.phase = phase


TWO_WAYS_OUT = (
    "correct the engine, or set plugins.slots.contextEngine to 'legacy' "
    "(`strandline plugins disable` does so)"
)
"""What helps against an engine that does not work."""


class EngineUnavailable(EngineError):
    """The engine that the settings select is not there, or cannot be made."""

    exit_code = 2


class ModelError(StrandlineError):
    """A model did not answer.

    `kind` is the class of the failure; for an overflow, `prompt_tokens` and
    `window_tokens` are the provider's own counts where it told them.
    """

    def __init__(
        self,
        what: str,
        *,
        kind: ModelErrorKind,
        remedy: str = "",
        prompt_tokens: int | None = None,
        window_tokens: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(what, remedy=remedy)
        self.kind: ModelErrorKind = kind
        self.prompt_tokens = prompt_tokens
        self.window_tokens = window_tokens
        self.retry_after_s = retry_after_s


class ThreadLost(ModelError):
    """The backend does not know the thread that was to go on; it has to be begun anew."""
