"""Providers' real words for an overflow are recognised, with their counts; others are not."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from strandline.models.failures import Failures, read_error
from strandline.models.overflow import find_overflow
from strandline.runtime.agent import Backend
from strandline.runtime.model import Failed, ModelInfo, ModelRequest
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer

FAILURES = Failures(ModelInfo("acme", "one", "openai-completions", 8192, 512))

# The tokens of the prompt and of the window, as far as they are told, then the sentence.
TOLD = """
213462 200000
prompt is too long: 213462 tokens > 200000 maximum

90402 204648
input length and `max_tokens` exceed context limit: 90402 + 116650 > 204648, decrease input length
or `max_tokens` and try again

10000 8192
The prompt is too long: 10000, model maximum context length: 8192

- -
Input is too long for requested model.

- -
ValidationException: The input is too long

- -
ValidationException: Input exceeds the max input token limit

300000 204800
Too many input tokens. Max input tokens: 204800, request input token count: 300000

- -
Your input exceeds the context window of this model.

- -
Your input exceeds the model's context window

- -
Codex ran out of room in the model's context window. Start a new thread.

289650 272000
Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650
tokens. Please reduce the length of the messages.

202868 128000
This model's maximum context length is 128000 tokens. However, your messages resulted in 202868
tokens (202767 in the messages, 101 in the functions). Please reduce the length of the messages or
functions.

4294 4097
This model's maximum context length is 4097 tokens. However, your messages resulted in 4294
tokens. Please reduce the length of the messages.

122942 131072
This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942
in the messages, 8192 in the completion).

3860 4097
This model's maximum context length is 4097 tokens, however you requested 4116 tokens (3860 in
your prompt; 256 for the completion). Please reduce your prompt; or completion length.

180225 196608
This model's maximum context length is 196608 tokens. However, you requested 16384 output tokens
and your prompt contains at least 180225 input tokens, for a total of at least 196609 tokens.

4000 8192
'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is
8192 tokens and your request has 4000 input tokens (5000 > 8192 - 4000).

196061 200000
This endpoint's maximum context length is 200000 tokens. However, you requested about 206061
tokens (196061 of text input, 10000 in the output).

131072 131072
Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a
total of 139264 tokens: 131072 tokens from the input messages and 8192 tokens for the completion.

265330 262144
Input length (265330) exceeds model's maximum context length (262144).

131393 131040
Input length 131393 exceeds the maximum allowed input length of 131040 tokens.

160062 59862
Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).

263000 262144
The input (263000 tokens) is longer than the model's context length (262144 tokens).

1196265 1048575
The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).

537812 131072
This model's maximum prompt length is 131072 but the request contains 537812 tokens.

- -
Please reduce the length of the messages or completion.

124071 123904
request (124071 tokens) exceeds the available context size (123904 tokens), try increasing it

- -
the request exceeds the available context size, try increasing it

- -
Context size has been exceeded.

- -
The number of tokens to keep from the initial prompt is greater than the context length.

5022 4096
Trying to keep the first 5022 tokens when context the overflows. However, the model is loaded with
context length of only 4096 tokens, which is not enough.

150000 128000
prompt token count of 150000 exceeds the limit of 128000

- -
invalid params, context window exceeds limit

291351 262144
Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)

140000 131072
Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context
length

256468 256000
Prompt has 256,468 tokens, but the configured context size is 256,000 tokens

3474 2048
Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs`
tokens and 60 `max_new_tokens`

1168 1024
Input validation error: `inputs` must have less than 1024 tokens. Given: 1168

- 204800
<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]

- -
prompt too long; exceeded max context length by 100918 tokens

- -
ollama: context length exceeded for llama3

41911 32768
Prompt too long: 41911 tokens exceeds max context window of 32768 tokens

- 4081
too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.

- 4096
total tokens exceeds the model's max of 4096

- -
litellm.BadRequestError: litellm.ContextWindowExceededError: no room

- -
Unhandled stop reason: model_context_window_exceeded

- -
Prompt exceeds max length

- -
Request size exceeds model context window

40970 40960
The decoder prompt (length 40970) is longer than the maximum model length of 40960. Make sure that
`max_model_len` is no smaller than the number of text tokens.

- 131072
litellm.ServiceUnavailableError: litellm.MidStreamFallbackError: OpenAIException - Requested token
count exceeds the model's maximum context length of 131072 tokens.
"""


def _sentences() -> list[tuple[str, int | None, int | None]]:
    rows = []
    for paragraph in TOLD.strip().split("\n\n"):
        counts, _, sentence = paragraph.partition("\n")
        prompt, window = (None if n == "-" else int(n) for n in counts.split())
        rows.append((sentence.replace("\n", " "), prompt, window))
    return rows


SENTENCES = _sentences()

OTHERS = [
    (
        "Invalid 'input[5].call_id': string too long. Expected a string with maximum length 64, "
        "but got a string with length 438 instead."
    ),
    "ThrottlingException: Too many tokens, please wait before trying again.",
    (
        "Rate limit reached for gpt-4 in organization org-x on tokens per min (TPM): Limit 10000, "
        "Used 8554, Requested 3082. Please try again in 9.816s."
    ),
    "This request exceeds the limit of 30000 tokens per minute",
    "max_tokens is too large: 32000. This model supports at most 16384 completion tokens",
    "The model `gpt-9` does not exist",
    "Unexpected role 'user' after role 'tool'",
    "model runner has unexpectedly stopped, this may be due to resource limitations",
    "",
]


@pytest.mark.parametrize(("sentence", "prompt", "window"), SENTENCES)
def test_a_provider_s_words_are_an_overflow(
    sentence: str, prompt: int | None, window: int | None
) -> None:
    """Faults H18: overflow wording not recognised, so the turn failed for ever."""
    for status in (400, 500, None):
        error = FAILURES.from_server({"error": {"message": sentence}}, status)
        assert error.kind == "overflow"
        assert (error.prompt_tokens, error.window_tokens) == (prompt, window)


@pytest.mark.parametrize("error_after", [None, 0, 2])
async def test_each_is_an_overflow_in_every_format_before_and_inside_a_stream(
    backend_for: Callable[..., Backend], api: str, error_after: int | None
) -> None:
    """Faults H18: parsed out of the error wherever it comes, with its counts."""
    left = [sentence for sentence, *_ in SENTENCES]

    def script(_: RecordedRequest) -> Reply:
        error = {"type": "error", "error": {"message": left.pop(0)}}
        return Reply("So", status=400, error=error, error_after=error_after)

    with ScriptedModelServer(script) as server:
        backend = backend_for(api, server)
        asked = ModelRequest(backend.info, "S", [{"role": "user", "content": "hi"}], 100)
        for _, prompt, window in SENTENCES:
            *_, last = [event async for event in backend.model.stream(asked)]
            assert isinstance(last, Failed)
            counts = (last.error.prompt_tokens, last.error.window_tokens)
            assert (last.error.kind, counts) == ("overflow", (prompt, window)), last.error
        await backend.model.aclose()


@pytest.mark.parametrize("sentence", OTHERS)
def test_other_words_are_no_overflow(sentence: str) -> None:
    for status in (400, 429, 500, None):
        assert FAILURES.from_server({"error": {"message": sentence}}, status).kind != "overflow"


@pytest.mark.parametrize(
    "code", ["context_length_exceeded", "string_above_max_length", "model_context_window_exceeded"]
)
def test_a_code_alone_is_enough(code: str) -> None:
    message = "Expected a string with maximum length 10485760, but got one with length 11436754"
    error = FAILURES.from_server({"error": {"message": message, "code": code}}, 400)
    assert error.kind == "overflow"
    assert (error.prompt_tokens, error.window_tokens) == (None, None)  # bytes are no tokens


def test_counts_in_fields_go_before_those_in_words() -> None:
    fields = {"code": 400, "message": "x", "type": "exceed_context_size_error"}
    error = FAILURES.from_server({"error": {**fields, "n_prompt_tokens": 5031, "n_ctx": 4096}}, 400)
    assert (error.kind, error.prompt_tokens, error.window_tokens) == ("overflow", 5031, 4096)


def test_http_s_own_word_for_too_large_is_an_overflow() -> None:
    assert FAILURES.from_server("<html>", 413).kind == "overflow"


def test_a_request_above_a_minute_s_allowance_is_an_overflow_not_a_wait() -> None:
    message = (
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, "
        "Requested 38878. The input or output tokens must be reduced in order to run successfully."
    )
    error = {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}
    failed = FAILURES.from_server({"error": error}, 429)
    assert (failed.kind, failed.prompt_tokens, failed.window_tokens) == ("overflow", 38878, 30000)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "bad role", "param": "prompt is too long"}},
        {"error": {"message": "bad role"}, "request": {"messages": ["prompt is too long"]}},
        {"detail": [{"loc": ["body"], "msg": "bad role", "input": "prompt is too long"}]},
        {"message": "1 error [type=x, input_value='prompt is too long', input_type=str]"},
        {"error": {"message": "[{'loc': ('body',), 'input': {'content': 'prompt is too long'}}]"}},
        {"error": {"message": "bad role" + " " + "x" * 1000 + "prompt is too long"}},
    ],
)
def test_a_conversation_about_overflows_does_not_look_like_one(body: object) -> None:
    assert FAILURES.from_server(body, 400).kind == "refused"


def test_a_wrong_key_is_a_wrong_key_whatever_is_said() -> None:
    for status in (401, 403):
        assert find_overflow("prompt is too long", (), status) is None


def test_no_message_takes_long_to_read() -> None:
    """The patterns stay linear on text that almost matches; a message is bounded before."""
    for unit in ("input token count ", "request too large for ", "9,", "prompt token count of "):
        said = read_error(unit * 100_000)
        assert len(said.message) <= 1000
        assert find_overflow(said.message, (), 400) is None


def test_wordings_of_routers_are_found_inside_theirs() -> None:
    raw = json.dumps({"error": {"message": SENTENCES[0][0]}})
    wrapped = {"error": {"message": "Provider returned error", "metadata": {"raw": raw}}}
    error = FAILURES.from_server(wrapped, 400)
    assert (error.kind, error.prompt_tokens) == ("overflow", 213462)
    assert FAILURES.from_server([{"error": {"message": raw}}], 400).kind == "overflow"
