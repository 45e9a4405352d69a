"""Prompts as a cache sees them: which beginnings two of them share, and how large those are.

A prompt is the fixed part (system prompt and tools, always the same) and the messages after
it. Two messages are the same part where they come from the same entry in the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.context.view import ViewMessage
from strandline.transcript.messages import Message


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, part by part; part 0 is the fixed part.

    `beginnings[i]` stands for the parts up to and with i: it is equal where they are. Of the
    parts before i, `tokens_to[i]` is what they take and `blocks_to[i]` how many content blocks
    they are. `extends` says that it begins with all of the prompt before it.
    """

    beginnings: Sequence[int]
    tokens_to: Sequence[int]
    blocks_to: Sequence[int]
    extends: bool = True

    @property
    def tokens(self) -> int:
        """What the whole prompt takes."""
        return self.tokens_to[-1]

    @property
    def newest(self) -> int:
        """The place of the last part."""
        return len(self.beginnings) - 1


class Prompts:
    """Makes the prompts of one conversation, call by call; what is as before costs little."""

    def __init__(self, fixed_tokens: int) -> None:
        self._forms: dict[tuple[str | None, int], list[Message]] = {}
        self._said: list[ViewMessage] = []
        self._beginnings = [0]
        self._tokens_to = [0, fixed_tokens]
        self._blocks_to = [0, 1]

    def of(self, messages: Sequence[ViewMessage]) -> Prompt:
        """The prompt of these messages."""
        same = self._same(messages)
        end = len(self._beginnings) - 1
        before = self._beginnings[end]
        self._said = list(messages)
        del self._beginnings[same + 1 :], self._tokens_to[same + 2 :], self._blocks_to[same + 2 :]
        for said in messages[same:]:
            self._add(said)
        extends = self._beginnings[end : end + 1] == [before]
        return Prompt(
            tuple(self._beginnings), tuple(self._tokens_to), tuple(self._blocks_to), extends
        )

    def _same(self, messages: Sequence[ViewMessage]) -> int:
        """How many messages are the very objects of the prompt before."""
        both = enumerate(zip(self._said, messages, strict=False))
        other = next((place for place, (a, b) in both if a.message is not b.message), None)
        return min(len(self._said), len(messages)) if other is None else other

    def _add(self, said: ViewMessage) -> None:
        content = said.message.get("content")
        part = (said.entry_id, said.tokens, self._form(said))
        self._beginnings.append(hash((self._beginnings[-1], part)))
        self._tokens_to.append(self._tokens_to[-1] + said.tokens)
        self._blocks_to.append(
            self._blocks_to[-1] + (max(1, len(content)) if isinstance(content, list) else 1)
        )

    def _form(self, said: ViewMessage) -> int:
        """Which of the forms that the entry was seen in this one is."""
        forms = self._forms.setdefault((said.entry_id, said.tokens), [])
        for place, form in enumerate(forms):
            if form is said.message or form == said.message:
                return place
        forms.append(said.message)
        return len(forms) - 1
