"""Summaries by a model: in portions of its own window, tried again with patience.

A history larger than the summariser's window is told part by part, each with the summary
of the parts before, which is brought up to date; a part that is finished is never asked
for again. Whatever fails, the number of calls and the time they take are bounded. Source:
spec 3, Budget and compaction (Summaries).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from strandline.clock import Clock
from strandline.context.audit import repaired
from strandline.context.budget import calibrated
from strandline.context.dialogue import spoken_texts
from strandline.context.portions import first_part, told_size
from strandline.context.sections import COURSE, written_sections
from strandline.context.shorten import shorten_text
from strandline.context.summarize import Audit, Summary, SummaryRequest
from strandline.context.tokens import MESSAGE_OVERHEAD_TOKENS, MessageTokens
from strandline.errors import ModelError, ModelErrorKind
from strandline.runtime.model import Failed, Finished, Model, ModelInfo, ModelRequest
from strandline.runtime.retrying import RetrySettings, wait_ms
from strandline.runtime.spending import usage_sum
from strandline.runtime.summary_prompt import summary_question, summary_system_prompt
from strandline.transcript.messages import Message, Usage

SMALLEST_PART_TOKENS = 512
"""A summariser that can read less than this at a time is of no use."""

SAFETY = 0.9
"""As much of the room is used: our count of its tokens is an estimate."""

OUTPUT_SHARE = 4
"""A summary takes at most this fraction (a quarter) of the summariser's window."""

THINKING_TOKENS = 2_000
"""What a model that thinks may need on top, of the model's own tokens."""

MOST_PARTS = 50
"""A history that needs more calls than this is not summarised by this model."""

MOST_TIMEOUTS = 10
"""All parts together take no longer than so many calls may: somebody may be waiting."""

MOST_HALVINGS = 3
"""So often the parts become smaller, in one summary, because the model refuses their size."""

TIMEOUT_MS = 180_000

Sleep = Callable[[float], Awaitable[None]]


class UnfinishedSummary(ModelError):
    """A model did not write its summary; `usage` is what the calls before that used."""

    def __init__(self, error: ModelError, usage: Usage | None) -> None:
        super().__init__(
            error.what,
            kind=error.kind,
            remedy=error.remedy,
            prompt_tokens=error.prompt_tokens,
            window_tokens=error.window_tokens,
            retry_after_s=error.retry_after_s,
        )
        self.usage = usage


class _TimedOut(ModelError):
    """A call took too long: as long again would be no better."""


class ModelSummarizer:
    """A `Summarizer` that asks a model.

    `tokens` counts in our tokens; how many of the model's they are is learnt from what it
    reports, and is all that is kept from one summary to the next. One object serves any
    number of sessions at once. `timeout_ms` bounds each call, whoever wants the summary and
    however many parts it has; `retry` says when a failed call is made again (a timed out one
    is not).
    """

    def __init__(
        self,
        model: Model,
        info: ModelInfo,
        tokens: MessageTokens,
        clock: Clock,
        *,
        timeout_ms: int = TIMEOUT_MS,
        retry: RetrySettings | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name = info.ref
        self.model = model
        self.info = info
        self.tokens = tokens
        self.clock = clock
        self.timeout_ms = timeout_ms
        self.retry = retry or RetrySettings()
        self.sleep = sleep
        self.scale = 1.0
        self.window = info.context_window

    async def summarize(self, request: SummaryRequest) -> Summary:
        """The summary, audited and within its bound, with the usage of all calls.

        Raises `UnfinishedSummary` (a `ModelError`) when the model did not write it.
        """
        work = _Work(self, request)
        try:
            text = await work.text()
        except ModelError as error:
            raise UnfinishedSummary(error, work.usage) from error
        text, audit = await asyncio.to_thread(self.finished, request, text)
        return Summary(text, self.name, tuple(work.notes), work.usage, audit)

    # -- what kind of summary it is: others override these ----------------------------------

    def prompts(
        self, part: SummaryRequest, previous: str | None, max_tokens: int
    ) -> tuple[str, str]:
        """The system prompt and the question for one part; `previous` is of the parts before."""
        counter = self.tokens.counter
        wish = part.instructions and shorten_text(part.instructions, max_tokens // 2, counter)
        system = summary_system_prompt(max_tokens, tells_request=part.tells_request)
        return system, summary_question(part, previous=previous, instructions=wish)

    def problem(self, text: str, *, is_cut: bool) -> str | None:
        """Why an answer is no summary, None where it is one; a cut one reached its limit."""
        sections = written_sections(text)
        if not sections:
            return "wrote an empty summary"
        if is_cut and set(sections) == {COURSE} and not text.startswith("#"):
            return "wrote no sections before its answer reached its limit"
        return None

    def finished(self, request: SummaryRequest, text: str) -> tuple[str, Audit]:
        """The text with what it lost put back, within its bound, and the audit of it."""
        return repaired(request, text, self.tokens.counter)

    # -- how the model counts ----------------------------------------------------------------

    def learn(self, error: ModelError, estimate: int) -> None:
        """Take the provider's own counts from its refusal, where it gave them."""
        if error.window_tokens:
            self.window = min(self.window, error.window_tokens)
        if error.prompt_tokens:
            self.scale = calibrated(self.scale, estimate, error.prompt_tokens, overflowed=True)

    def learn_from(self, usage: Usage | None, estimate: int) -> None:
        """Take the provider's count of a prompt that it answered."""
        if usage is not None:
            reported = usage["input"] + usage["cacheRead"] + usage["cacheWrite"]
            # It falls slowly: another part of the same conversation may be counted finer.
            told = calibrated(self.scale, estimate, reported)
            self.scale = max(told, (told + self.scale) / 2)


@dataclass(frozen=True, slots=True)
class _Call:
    """One question to the model: its size and the answer's bound are in our tokens; `rest`
    is what is told after it.
    """

    system: str
    question: str
    tokens: int
    output: int
    rest: SummaryRequest | None = None


class _Work:
    """One summary in the making: what is still to be told, and what was spent."""

    def __init__(self, by: ModelSummarizer, request: SummaryRequest) -> None:
        self._by = by
        self._counter = by.tokens.counter
        self._request = request
        self._halvings = 0
        self._share = 1.0
        self._refusal: ModelError | None = None
        self.notes: list[str] = []
        self.usage: Usage | None = None

    async def text(self) -> str:
        """The summary of all parts. Raises `ModelError`."""
        left: SummaryRequest | None = self._request
        previous = self._request.previous_summary
        await asyncio.to_thread(self._require_few_parts)
        began_s = asyncio.get_running_loop().time()
        while left is not None:
            self._require_time(asyncio.get_running_loop().time() - began_s)
            call = await asyncio.to_thread(self._next_call, left, previous)
            try:
                previous = await self._told(call)
            except ModelError as error:
                self._make_smaller(error, call)
                continue
            left = call.rest
        return previous or ""

    def _require_time(self, spent_s: float) -> None:
        most_s = MOST_TIMEOUTS * self._by.timeout_ms / 1000
        if spent_s > most_s:
            raise _TimedOut(
                f"{self._by.name} did not finish all parts within {most_s:g} s",
                kind="network",
                remedy="use a faster model for summaries, or one with a larger window",
            )

    # -- sizes -----------------------------------------------------------------------------

    @property
    def _output(self) -> int:
        """How long an answer may be, in our tokens."""
        info, scale = self._by.info, self._by.scale
        most = min(info.max_output_tokens, self._by.window // OUTPUT_SHARE)
        return max(1, min(self._request.max_tokens, int(most / scale)))

    def _answer_tokens(self, call: _Call) -> int:
        """The bound of an answer, in the model's own tokens."""
        info = self._by.info
        thinking = min(THINKING_TOKENS, self._by.window // OUTPUT_SHARE) if info.reasoning else 0
        return min(info.max_output_tokens, math.ceil(call.output * self._by.scale) + thinking)

    def _call_of(self, part: SummaryRequest, previous: str | None) -> _Call:
        # A part never says more of the past than the window has room for; what that loses
        # of rules and names is put back when the whole is audited.
        if previous is not None:
            previous = shorten_text(previous, self._output, self._counter)
        system, question = self._by.prompts(part, previous, self._output)
        size = self._counter.count(system) + self._counter.count(question)
        return _Call(system, question, size + 2 * MESSAGE_OVERHEAD_TOKENS, self._output)

    def _room(self, previous: str | None) -> int:
        """Our tokens that the messages of one part may take."""
        empty = self._call_of(replace(self._request, messages=(), split_turn=True), previous)
        window = self._by.window / self._by.scale
        answer = self._answer_tokens(empty) / self._by.scale
        room = int((window * SAFETY - answer - empty.tokens) * self._share)
        if room < SMALLEST_PART_TOKENS:
            raise self._refusal or ModelError(
                f"{self._by.name} has a window of {self._by.window:,} tokens, which leaves no "
                "room for a part of the conversation",
                kind="overflow",
                remedy="use a model with a larger window for summaries",
            )
        return room

    def _require_few_parts(self) -> None:
        room = max(SMALLEST_PART_TOKENS, self._room(None) - self._output)
        told = sum(told_size(message, self._counter) for message in self._request.messages)
        if told > room * MOST_PARTS:
            raise ModelError(
                f"{self._by.name} would have to be asked more than {MOST_PARTS} times for one "
                "summary",
                kind="overflow",
                remedy="use a model with a larger window for summaries",
            )

    def _next_call(self, left: SummaryRequest, previous: str | None) -> _Call:
        part, rest = first_part(left, self._room(previous), self._by.tokens)
        return replace(self._call_of(part, previous), rest=rest)

    def _make_smaller(self, error: ModelError, call: _Call) -> None:
        """Smaller parts after an overflow; raises every other error, and this one in the end.

        With the provider's own counts the parts follow its measure; they are halved where
        it gave none, or where following it would not make them much smaller.
        """
        if error.kind != "overflow" or self._halvings >= MOST_HALVINGS:
            raise error
        self._halvings += 1
        self._refusal = error
        before = self._by.window / self._by.scale
        self._by.learn(error, call.tokens)
        if self._by.window / self._by.scale > before * SAFETY:
            self._share /= 2

    # -- asking ----------------------------------------------------------------------------

    async def _told(self, call: _Call) -> str:
        """The summary of one part, tried again where that may help."""
        attempt = 1
        while True:
            try:
                return await self._ask(call)
            except ModelError as error:
                pause_ms = wait_ms(error, attempt, self._by.retry)
                if pause_ms is None or isinstance(error, _TimedOut):
                    raise
            await self._by.sleep(pause_ms / 1000)
            attempt += 1

    async def _ask(self, call: _Call) -> str:
        timeout_s = self._by.timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                outcome = await self._outcome(call)
        except TimeoutError:
            raise _TimedOut(
                f"{self._by.name} did not finish within {timeout_s:g} s",
                kind="network",
                remedy="try again, or use a faster model for summaries",
            ) from None
        if isinstance(outcome, Failed):
            self._spend(outcome.partial)
            raise outcome.error
        self._spend(outcome.message)
        self._by.learn_from(outcome.message.get("usage"), call.tokens)
        return self._accepted(outcome.message)

    async def _outcome(self, call: _Call) -> Finished | Failed:
        request = ModelRequest(
            self._by.info,
            call.system,
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": call.question}],
                    "timestamp": self._by.clock.now_ms(),
                }
            ],
            self._answer_tokens(call),
        )
        async with aclosing(self._by.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finished | Failed):
                    return event
        raise self._unusable("ended its stream without an answer", "network")

    def _spend(self, message: Message | None) -> None:
        usage = message.get("usage") if message is not None else None
        self.usage = usage_sum(self.usage, usage)

    def _accepted(self, message: Message) -> str:
        """The text of an answer that is a summary. Raises `ModelError` for what is none."""
        text = "\n".join(spoken_texts(message)).strip()
        is_cut = message.get("stopReason") == "length"
        problem = self._by.problem(text, is_cut=is_cut)
        if problem is not None:
            raise self._unusable(problem)
        if not is_cut:
            return text
        self.notes.append(f"{self._by.name} reached its output limit: its summary ends early")
        return text.rpartition("\n")[0] or text

    def _unusable(self, what: str, kind: ModelErrorKind = "refused") -> ModelError:
        return ModelError(
            f"{self._by.name} {what}", kind=kind, remedy="use another model for summaries"
        )
