"""A file that is given for a context: a whole configuration, or what the defaults would hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import ConfigError
from strandline.settings import Settings, load, load_context_file

SECRET = "hunter2"


def refused(path: Path, text: str) -> str:
    """The message of the error behind the name of the file."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_context_file(path, {})
    assert SECRET not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}:").strip()


def test_a_whole_configuration_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "any.name"
    path.write_text('{ agents: { "my-agent": { context: { maxMessages: 5 } } } }')
    result = load_context_file(path, {})
    assert result.path == path
    assert result.settings.agent("my-agent").context.max_messages == 5
    assert result.settings.agent("main").context.max_messages is None
    path.write_text("{}")
    assert load_context_file(path, {}).settings == Settings()


@pytest.mark.parametrize(
    "text",
    [
        '{ context: { maxMessages: 5 }, contextPruning: { mode: "cache-ttl" } }',
        '{ contextPruning: { mode: "cache-ttl" } }',
        '{ cacheRetention: "long" }',
        '{ context: {}, model: "a/b" }',
    ],
)
def test_a_bare_file_is_what_the_defaults_would_hold(tmp_path: Path, text: str) -> None:
    bare, whole = tmp_path / "bare", tmp_path / "whole"
    bare.write_text(text)
    whole.write_text(f"{{ agents: {{ defaults: {text} }} }}")
    assert load_context_file(bare, {}).settings == load_context_file(whole, {}).settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{\n context: {\n  maxMessages: -1 } }",
            "3:16: context.maxMessages: expected a number of at least 0: correct it",
        ),
        (
            "{ context: {\n ttl: { rules: [\n  { maxAge: '5m', keep: 'half' } ] } } }",
            '3:25: context.ttl.rules[0].keep: expected "all", "summary", "none" or a whole number',
        ),
        (
            "{ contextPruning: {\n softTrim: { headChars: 9000 } } }",
            "2:12: contextPruning.softTrim.maxChars: expected at least headChars and tailChars",
        ),
        (
            "{ context: {},\n contxt: {} }",
            "2:2: contxt: unknown key: did you mean 'context'?",
        ),
        ("{ contxt: {} }", "1:3: contxt: unknown key: did you mean 'context'?"),
        (
            "{ context: { ttl: { rules: [{ maxage: '5m', keep: 1 }] } } }",
            "1:31: context.ttl.rules[0].maxage: unknown key (and 1 more problem): did you mean",
        ),
        (f"{{ context: {SECRET} }}", "1:12: not JSON5: a value or key is expected"),
        ("[]", "1:1: expected an object: begin with { and end with }"),
    ],
)
def test_an_error_shows_the_place_and_the_key_as_they_are_in_the_file(
    tmp_path: Path, text: str, message: str
) -> None:
    assert refused(tmp_path / "bare", text).startswith(message)


def test_a_file_that_never_ends_is_an_error() -> None:
    with pytest.raises(ConfigError, match="/dev/zero has more than 4,194,304 bytes"):
        load_context_file(Path("/dev/zero"), {})


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere cannot be read"):
        load_context_file(tmp_path / "nowhere", {})


def test_a_warning_names_the_key_as_it_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bare"
    path.write_text("{ context: { ttl: { rules: [] } } }")
    (warning,) = load_context_file(path, {}).warnings
    assert warning == f"{path}: context.ttl.rules is empty: nothing is left out by age"


def test_openclaws_file_is_forgiven_what_only_it_knows_here_too(tmp_path: Path) -> None:
    path = tmp_path / "openclaw.json"
    path.write_text("{ contextPruning: { mode: 'cache-ttl' }, maxConcurrent: 4 }")
    (warning,) = load_context_file(path, {}).warnings
    assert warning == f"{path}: maxConcurrent is not used by Strandline"


def test_in_a_state_directory_a_bare_context_is_an_error_that_says_where_it_belongs(
    tmp_path: Path,
) -> None:
    (tmp_path / "strandline.json").write_text("{ context: {} }")
    with pytest.raises(ConfigError, match="context: unknown key: put it below agents"):
        load(tmp_path, {})
