"""What the documentation says of contexts, caches, the doctor and the files is the code's."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any, Protocol, get_args

import strandline
from strandline import testing
from strandline.context import explain
from strandline.context.prune import compress, results
from strandline.context.view import Outcome
from strandline.models import anthropic_marks, gemini_cache
from strandline.runtime import (
    assembling,
    engine_health,
    kept_prompts,
    layer_summaries,
    prefix_watch,
)
from strandline.runtime.events import PrefixChange
from strandline.settings import setting_keys
from strandline.stores import context_cache_redis, session_records
from strandline.wiring import doctor
from strandline.wiring.doctor import patient

HOME = Path(strandline.__file__).parent


class Page(Protocol):
    """See conftest.py."""

    text: str

    def section(self, title: str) -> str: ...
    def rows(self, title: str, first: str) -> list[list[str]]: ...
    def words(self, title: str, first: str, column: int = 0) -> list[str]: ...


def names_of(shape: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(shape)]


def default_of(key: str) -> str:
    return next(each.default for each in setting_keys() if each.key == f"agents.defaults.{key}")


# -- contexts ------------------------------------------------------------------------------


def test_every_step_that_decides_is_told_in_its_words(context_page: Page) -> None:
    told = set(context_page.words("The way of a message", "step", 2))
    known = {results.STEP, compress.STEP, assembling_step(), "maxMessages", "maxTokens"}
    known |= {step for file in (HOME / "context").rglob("*.py") for step in steps_in(file)}
    assert told == known - {explain.COMPACTION}
    assert f"`{explain.COMPACTION}`" in context_page.section("The way of a message")


def assembling_step() -> str:
    from strandline.context.chosen import STEP  # noqa: PLC0415 - one of many of that name

    return STEP


def steps_in(file: Path) -> list[str]:
    """The steps that decisions of a module name by a word of their own."""
    return re.findall(r"Decision\(\s*\"\w+\",\s*\"(\w+)\"", file.read_text(encoding="utf-8"))


def test_every_outcome_is_told(cli_page: Page) -> None:
    told = cli_page.words("strandline context explain", "key")
    assert "outcome" in told
    row = next(
        row for row in cli_page.rows("strandline context explain", "key") if "outcome" in row[0]
    )
    assert re.findall(r"`(\w+)`", row[1]) == [*get_args(Outcome)]


def test_the_numbers_of_layers_and_results_are_the_codes(context_page: Page) -> None:
    summaries = context_page.section("Summaries of old messages")
    assert {assembling.MOST_SUMMARIES: "three"}[assembling.MOST_SUMMARIES] in summaries
    assert f"less than {compress.SMALLEST_SUMMARISED_TOKENS} tokens" in summaries
    rows = context_page.rows("Old tool results", "when the messages take")
    told = {re.findall(r"`(\w+)`", row[0])[0]: row[1] for row in rows}
    assert told == {name: default_of(f"contextPruning.{name}") for name in told}
    assert f"label `{assembling.PIN}`" in context_page.section("Four layers")


def test_the_layers_are_settings(context_page: Page) -> None:
    keys = {each.key.removeprefix("agents.defaults.context.") for each in setting_keys()}
    for key in context_page.words("Four layers", "layer", 1):
        assert any(known.startswith(key) for known in keys), key


# -- caches --------------------------------------------------------------------------------


def test_the_numbers_of_caches_are_the_codes(context_page: Page) -> None:
    marks = context_page.section("Provider caches")
    assert {4: "four marks at most"}[anthropic_marks.MAX_MARKS] in marks
    for model in ("gemini-3.8-flash", "gemini-2.5-pro"):
        assert f"{gemini_cache._least_tokens(model):,}" in marks
    assert "less than half" in context_page.section("What the cache did")
    assert prefix_watch.ENOUGH_READ == 0.5
    kept = context_page.section("Context cache")
    assert f"{context_cache_redis.PAUSE_S:g} seconds" in kept
    assert f"{context_cache_redis.TIMEOUT_S:g} seconds" in kept


def test_every_field_of_a_change_of_prefix_is_told(library_page: Page) -> None:
    text = library_page.section("Events")
    assert all(f"`{name}`" in text for name in names_of(PrefixChange))


# -- files ---------------------------------------------------------------------------------


def test_every_key_of_the_small_files_is_told(format_page: Page) -> None:
    for title, function in (
        ("Engine health", engine_health._object),
        ("Layer summaries", layer_summaries._record),
    ):
        assert format_page.words(title, "field") == re.findall(
            r'"(\w+)": ', inspect.getsource(function)
        )
    kept = names_of(kept_prompts.KeptPrompt)
    assert [row[0] for row in format_page.rows("Kept prompts", "field")] == [f"`{k}`" for k in kept]


def test_the_bounds_of_the_small_files_are_told(format_page: Page) -> None:
    health = format_page.section("Engine health")
    assert f"last {engine_health.FORGOTTEN_AFTER_MS // 86_400_000} days" in health
    assert f"at most {engine_health.MOST_FAILURES}" in health
    assert f"{engine_health.MAX_WHAT_CHARS} characters" in health
    assert f"newest {kept_prompts.MOST_MODELS} models" in format_page.section("Kept prompts")
    layers = format_page.section("Layer summaries")
    assert f"newest {layer_summaries.MOST_KEPT} summaries" in layers
    assert f"{session_records.LONGEST_MS // session_records.DAY_MS} days" in layers


# -- the doctor ----------------------------------------------------------------------------


def test_every_group_and_severity_of_the_doctor_is_told(cli_page: Page) -> None:
    assert cli_page.words("strandline doctor", "group") == [*doctor.CHECKS]
    text = cli_page.section("strandline doctor")
    assert all(f"`{each}`" in text for each in get_args(doctor.Severity))
    assert f"At most {patient.MOST_TRANSCRIPTS} of" in text
    assert f"{patient.MOST_BYTES // 1_000_000} MB" in text


# -- names ---------------------------------------------------------------------------------


def test_everything_that_tests_may_use_is_told(library_page: Page) -> None:
    told = re.findall(r"`(\w+)`", library_page.section("Tests of your own"))
    assert set(testing.__all__) <= set(told)


def test_every_seam_is_where_the_drawing_says(architecture_page: Page) -> None:
    places = architecture_page.words("Seams", "seam", 1)
    assert len(places) > 10
    assert all((HOME / place).is_file() for place in places)
