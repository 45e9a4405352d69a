"""The tables of the documentation are the code's: complete, in its words, with its numbers."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any, get_args

import pytest

import strandline
from strandline import SessionManager, errors
from strandline.clock import SystemClock
from strandline.context import compaction, limit, sections
from strandline.context.budget import CompactionSettings, resolve_budget
from strandline.context.summarize import Audit
from strandline.models import (
    anthropic_wire,
    catalog,
    gemini_wire,
    openai_chat_wire,
    openai_responses_wire,
)
from strandline.runtime import (
    compacting,
    compaction_entry,
    cooldowns,
    fitting,
    flushing,
    inbound,
    model_summarizer,
)
from strandline.runtime import tools as tools_seam
from strandline.runtime import turn as turns
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import CompactionReceipt, CompactionTrigger, TurnEvent
from strandline.runtime.model import ModelInfo, ModelRequest
from strandline.runtime.silence import Occasion, deliverable
from strandline.sessions.rows import SessionRow
from strandline.settings import load_context_file, setting_keys
from strandline.stores import side_file
from strandline.tools import listing, memory, paths, prompt, reading, searching, workspace, writing
from strandline.tools.builtin import builtin_tools
from strandline.transcript import messages
from strandline.transcript.damage import FindingKind
from strandline.transcript.entries import _BODIES, KNOWN_TYPES
from strandline.transcript.messages import ThinkingLevel
from strandline.wiring.providers import APIS, KNOWN

ROOT = Path(__file__).parents[2]
RECEIPT = CompactionReceipt(
    "manual",
    "e",
    2,
    1,
    1,
    1,
    3,
    "extractive",
    {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2},
    Audit(1, 1),
)


def guide(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """The text below a heading, up to the next one of any level."""
    found = re.split(r"^#{2,} ", guide(page), flags=re.MULTILINE)
    return next(text for text in found if text.partition("\n")[0] == title)


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: the cells of every row, the heading's first."""
    blocks = re.findall(r"(?:^\|.*\n)+", text + "\n", flags=re.MULTILINE)
    return [
        [*map(cells, block.splitlines()[:1]), *map(cells, block.splitlines()[2:])]
        for block in blocks
    ]


def cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def rows(page: str, title: str, first: str) -> list[list[str]]:
    """The rows of the table in a section whose first column is headed `first`."""
    return next(table for table in tables(section(page, title)) if table[0][0] == first)[1:]


def quoted(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


# -- settings ------------------------------------------------------------------------------


def test_the_table_of_settings_is_complete() -> None:
    told = [
        (key.strip("`"), kind, default.strip("`"), doc)
        for key, kind, default, doc in rows("settings.md", "Keys", "key")
    ]
    assert told == [(each.key, each.type, each.default, each.doc) for each in setting_keys()]


def context_examples() -> list[str]:
    """The bare files of the section on context."""
    text = section("settings.md", "Context")
    return re.findall(r"^```json5 context\n(.+?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", context_examples(), ids=len)
def test_an_example_of_a_context_is_a_file_for_config_and_a_part_of_agents_defaults(
    text: str, tmp_path: Path
) -> None:
    bare, whole = tmp_path / "bare.json5", tmp_path / "whole.json5"
    bare.write_text(text, encoding="utf-8")
    whole.write_text(f"{{ agents: {{ defaults: {text} }} }}", encoding="utf-8")
    loaded = load_context_file(bare, {})
    assert loaded.settings == load_context_file(whole, {}).settings
    assert loaded.settings.agents.defaults.context.max_messages
    assert loaded.warnings == ()


def test_there_are_the_three_examples_of_a_context() -> None:
    assert len(context_examples()) == 3


def test_what_a_doubtful_rule_means_is_told_as_the_warning_tells_it(tmp_path: Path) -> None:
    rules = [
        '{ maxAge: "2h", keep: 1 }, { maxAge: "1h", keep: 1 }, { maxAge: "inf", keep: 1 }',
        '{ maxAge: "inf", keep: 1 }, { maxAge: "inf", keep: 2 }',
        '{ maxAge: "1h", keep: 1 }',
        "",
        '{ maxAge: "inf", keep: "summary" }',
    ]
    told = [meaning.replace("`", "") for _, meaning in rows("settings.md", "Context", "rules")]
    for meaning, each in zip(told, rules, strict=True):
        path = tmp_path / "rules.json5"
        ttl = f"ttl: {{ rules: [{each}] }}, compaction: {{ enabled: false }}"
        path.write_text(f"{{ context: {{ {ttl} }} }}", encoding="utf-8")
        (warning,) = load_context_file(path, {}).warnings
        assert warning.endswith(meaning.removeprefix("as "))


def test_every_format_and_every_known_provider_and_model_is_told() -> None:
    assert [quoted(row[0])[0] for row in rows("settings.md", "Providers", "`api`")] == [*APIS]
    told = {
        quoted(name)[0]: (quoted(url)[0], tuple(quoted(keys)))
        for name, keys, url in rows("settings.md", "Providers", "provider")
    }
    assert told == {name: (each.url, each.variables) for name, each in KNOWN.items()}
    lists = tables(section("settings.md", "Providers"))[-1][1:]
    refs = {f"{quoted(name)[0]}/{model}" for name, models in lists for model in quoted(models)}
    assert refs <= {info.ref for info in catalog.known()}
    assert {quoted(name)[0] for name, _ in lists} == {info.provider for info in catalog.known()}
    variables = {name for each in KNOWN.values() for name in each.variables}
    assert variables <= set(quoted(section("settings.md", "Environment")))


def test_what_an_openclaw_file_shares_with_ours_are_keys_of_ours() -> None:
    known = {each.key for each in setting_keys()}
    parents = {key.rpartition(".")[0] for key in known} | {key.removesuffix("[]") for key in known}
    for told, _ in rows("settings.md", "An openclaw.json", "keys"):
        parent = ""
        for key in quoted(told):
            key = parent + key.removeprefix("…") if key.startswith("…") else key  # noqa: PLW2901
            parent = key.rpartition(".")[0] + "."
            assert key in known | parents, key


@pytest.mark.parametrize("row", rows("settings.md", "Thinking", "model"), ids=lambda row: row[0])
def test_what_a_level_of_thinking_is_for_a_model_is_so(row: list[str]) -> None:
    heading = tables(section("settings.md", "Thinking"))[0][0]
    assert [quoted(level)[0] for level in heading[1:]] == [*get_args(ThinkingLevel)]
    model = quoted(row[0])[0]
    said = [asked_to_think(model, level) for level in get_args(ThinkingLevel)]
    assert row[1:] == ["–" if each is None else f"`{each}`" for each in said]  # noqa: RUF001 - a dash


def asked_to_think(model: str, level: ThinkingLevel) -> object:
    """What a request says about thinking, in the words of the model's own format."""
    info = ModelInfo("any", model, "any", 400_000, 64_000, reasoning=True)
    said = {"role": "user", "content": [{"type": "text", "text": "Hello."}], "timestamp": 0}
    request = ModelRequest(info, "", [said], 64_000, thinking=level)
    if "claude" in model:
        body = json.loads(anthropic_wire.request_body(request))
        thinking, output = body.get("thinking", {}), body.get("output_config", {})
        return thinking.get("budget_tokens") or output.get("effort") or thinking.get("type")
    if "gemini" in model:
        thinking = json.loads(gemini_wire.request_body(request))["generationConfig"][
            "thinkingConfig"
        ]
        return thinking.get("thinkingBudget", thinking.get("thinkingLevel"))
    chat = json.loads(openai_chat_wire.request_body(request, openai_chat_wire.ServerTraits()))
    responses = json.loads(openai_responses_wire.request_body(request))
    effort = chat.get("reasoning_effort")
    assert responses.get("reasoning", {}).get("effort") == effort
    return effort


def test_the_models_that_are_named_are_known() -> None:
    known = {info.ref for info in catalog.known()}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text("utf-8")
        for ref in re.findall(rf"\b(?:{'|'.join(KNOWN)})/[a-z][\w.-]*\w", text):
            model = ref.partition("/")[2]
            assert ref in known or f'id: "{model}"' in text, f"{page.name}: {ref}"


# -- tools ---------------------------------------------------------------------------------


def test_every_built_in_tool_is_told_with_its_arguments() -> None:
    told = {quoted(name)[0]: (arguments, needs) for name, arguments, needs, _ in tool_rows()}
    known = {}
    for tool in builtin_tools(Path("anywhere"), "rw", SystemClock(), timezone=UTC):
        required = tool.parameters["required"]
        shown = (
            f"`{name}`{'' if name in required else '?'}" for name in tool.parameters["properties"]
        )
        known[tool.name] = (", ".join(shown), f"`{tool.needs}`")
    assert told == known


def tool_rows() -> list[list[str]]:
    return tables(guide("tools.md"))[0][1:]


TOOL_LIMITS: dict[str, list[float]] = {
    "all": [
        paths.MAX_PATH_BYTES,
        paths.MAX_NAME_BYTES,
        workspace.MAX_FOLDERS,
        workspace.MAX_LINKS,
        tools_seam.MAX_RESULT_CHARS,
    ],
    "read": [
        reading.MAX_FILE_BYTES,
        reading.MAX_LINES,
        reading.MAX_CHARS,
        reading.MAX_LINE_CHARS,
        reading.MAX_IMAGE_BYTES,
    ],
    "write, edit": [writing.MAX_FILE_BYTES],
    "list": [listing.MAX_ENTRIES, listing.MAX_DEPTH, listing.MAX_FOLDER_ENTRIES],
    "search, memory_search": [
        searching.MAX_FILES,
        searching.MAX_SEARCHED_BYTES,
        searching.MAX_FILE_BYTES,
        searching.MAX_SEARCH_S,
        searching.MAX_QUERY_CHARS,
    ],
    "search": [searching.MAX_MATCHES, searching.MAX_LINE_CHARS, searching.MAX_TEXTS],
    "memory_search": [memory.MAX_FOUND, memory.MAX_WORDS],
    "memory_write": [
        memory.MAX_NOTE_CHARS,
        memory.MAX_NOTE_LINE_CHARS,
        memory.MAX_MEMORY_FILE_BYTES,
    ],
}


def test_the_limits_of_the_tools_are_theirs() -> None:
    told = {
        name.replace("`", ""): numbers(said) for name, said in rows("tools.md", "Limits", "tool")
    }
    assert told == TOOL_LIMITS
    assert memory.MAX_QUERY_CHARS == searching.MAX_QUERY_CHARS
    skipped = {name for name in listing.SKIPPED_FOLDERS if not name.endswith("_cache")}
    assert skipped <= set(quoted(section("tools.md", "Limits")))


def numbers(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in re.findall(r"\b\d[\d,]*", text)]


def test_the_files_that_enter_the_prompt_are_told_in_their_order() -> None:
    text = section("tools.md", "Workspace files")
    assert quoted(text)[: len(prompt.FILES)] == [*prompt.FILES]
    assert f"newest {prompt.NEWEST_DAYS} days" in text


# -- context -------------------------------------------------------------------------------


def test_the_budgets_in_the_table_are_what_comes_out() -> None:
    for row in rows("context.md", "The budget", "window"):
        window, *told = (int(number) for number in numbers(" ".join(row)))
        budget = resolve_budget(window, CompactionSettings(), system_tokens=1000)
        assert told == [
            budget.reserve,
            budget.limit,
            budget.keep_recent,
            budget.summary_cap,
            budget.message_cap,
            budget.flush_line(flushing_threshold()),
        ]


def flushing_threshold() -> int:
    key = "agents.defaults.compaction.memoryFlush.softThresholdTokens"
    return int(next(each.default for each in setting_keys() if each.key == key))


def test_every_trigger_and_every_section_of_a_summary_is_told() -> None:
    assert [quoted(row[0])[0] for row in rows("context.md", "When", "trigger")] == [
        *get_args(CompactionTrigger)
    ]
    told = [row[0] for row in rows("context.md", "What a summary holds", "section")]
    assert told == [*sections.SECTIONS, sections.FILES]


def test_the_cool_downs_are_those_of_the_policy() -> None:
    told = {
        quoted(kind)[0]: (numbers(first)[0] * 1000, numbers(longest)[0] * 1000)
        for kind, first, longest in rows("context.md", "Who summarises", "failure")
    }
    assert told == cooldowns._RULES
    assert f"{cooldowns.LONGEST_MS // 1000} s at most" in section("context.md", "Who summarises")
    assert set(told) == set(get_args(errors.ModelErrorKind)) - {"overflow", "aborted"}


def test_the_reasons_of_refusals_are_in_the_code() -> None:
    source = "".join(map(inspect.getsource, (compaction, compacting, compaction_entry)))
    source = re.sub(r'"\s*f?"', "", source)
    told = [row[0] for row in rows("context.md", "Refusals", "reason")]
    assert len(told) > 5
    for reason in told:
        assert re.search(re.escape(reason).replace("…", r"\S+"), source), reason


def test_the_numbers_of_fitting_and_summarising_are_told() -> None:
    nothing = section("context.md", "When nothing helps")
    steps = len(re.findall(r"^\d\. ", nothing, flags=re.MULTILINE))
    assert steps == len(limit._LADDER)
    assert f"{limit.SMALLEST_CAP_TOKENS} tokens" in nothing
    assert f"{fitting.MOST_OVERFLOWS}th" in section("context.md", "When the provider refuses")
    assert f"up to {fitting.MOST_COMPACTIONS_BEFORE_SENDING} times" in section("context.md", "When")
    assert f"{compaction.TOOL_RESULT_TOKENS} tokens" in section(
        "context.md", "What a summary holds"
    )
    assert f"at most {model_summarizer.MOST_PARTS}" in section("context.md", "Who summarises")
    large = section("context.md", "A large tool result")
    budget = resolve_budget(128_000, CompactionSettings(), system_tokens=1000)
    assert f"{budget.message_cap:,} tokens" in large
    assert f"{tools_seam.MAX_RESULT_CHARS:,} characters" in large


def test_what_a_memory_flush_may_do_is_told() -> None:
    told = {cells[0]: cells[1] for cells in rows("context.md", "Memory flush", "")}
    assert {*quoted(told["runs"])} == flushing.ALLOWED
    assert f"{flushing.MOST_ROUNDS} rounds, {flushing.MOST_S:g} seconds" in told["runs"]
    assert flushing.CUSTOM_TYPE in told["kept"]


OCCASIONS = (Occasion(), Occasion(chat_type="group"), Occasion(background=True))


@pytest.mark.parametrize(
    "row", rows("context.md", "Silent replies", "reply"), ids=lambda row: row[0][:30]
)
def test_what_is_delivered_of_a_reply_is_what_the_table_says(row: list[str]) -> None:
    reply = json.loads(quoted(row[0])[0])
    for told, occasion in zip(row[1:], OCCASIONS, strict=True):
        said = {"nothing": "", "as it is": reply}.get(told)
        assert deliverable(reply, occasion) == (
            json.loads(quoted(told)[0]) if said is None else said
        )
    room = Occasion(chat_type="room")
    assert deliverable(reply, room) == deliverable(reply, OCCASIONS[1])


# -- on disk -------------------------------------------------------------------------------


def test_every_kind_of_damage_is_told() -> None:
    told = [quoted(row[0])[0] for row in rows("format.md", "Damage", "finding")]
    assert sorted(told) == sorted(get_args(FindingKind))


def test_every_type_of_entry_and_every_field_is_told() -> None:
    text = guide("format.md")
    told = {kind.strip("`"): fields for kind, fields, _ in rows("format.md", "Types", "`type`")}
    assert set(told) >= KNOWN_TYPES
    for kind, (_, fields) in _BODIES.items():
        for name, _ in fields:
            assert f"`{name}`" in told[kind], f"{kind}.{name}"
    shapes = [each for each in vars(messages).values() if hasattr(each, "__required_keys__")]
    assert len(shapes) > 5
    for shape in shapes:
        for name in shape.__annotations__:
            assert f"`{name}`" in text, f"{shape.__name__}.{name}"
    for key in (inbound.INBOUND_ID, inbound.HEARTBEAT, "provenance", "responseId", "thread"):
        assert f"`{key}`" in section("format.md", "Messages"), key


def test_every_field_of_a_row_is_told() -> None:
    text = section("format.md", "Rows")
    known = [field._key for field in vars(SessionRow).values() if hasattr(field, "_key")]
    assert len(known) > 20
    for key in ["sessionId", *known]:
        assert f"`{key}`" in text, key


def test_every_column_of_a_side_file_is_told() -> None:
    text = section("format.md", "Side file")
    for name in re.findall(r"(\w+) (?:TEXT|INTEGER)", side_file._SCHEMA):
        assert f"`{name}`" in text, name


def test_every_key_of_a_receipt_is_told() -> None:
    written = compaction_entry.receipt_object(RECEIPT)
    for page, title, first in [
        ("format.md", "Details of a compaction", "`receipt` key"),
        ("cli.md", "strandline agent", "key"),
    ]:
        told = [key for row in rows(page, title, first) for key in quoted(row[0])]
        assert sorted(set(told) - {"entryId"}) == sorted(written), page


def test_every_field_of_a_cool_down_is_told() -> None:
    records = cooldowns.with_failure({}, "mine/large", "rate", 0)
    told = [quoted(row[0])[0] for row in rows("format.md", "Cool-downs", "field")]
    assert told == [*records["mine/large"]]


def test_every_key_of_a_memory_flush_is_told() -> None:
    told = [quoted(row[0])[0] for row in rows("format.md", "Memory flushes", "`data` key")]
    assert told == re.findall(r'"(\w+)": ', inspect.getsource(flushing.Flush._keep))


# -- the library ---------------------------------------------------------------------------


def test_every_method_of_a_session_and_every_error_is_told() -> None:
    text = guide("library.md")
    kinds = [
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.StrandlineError)
    ]
    for name in [*public(SessionManager), *kinds]:
        assert f"`{name}`" in text, name
    for kind in get_args(errors.ModelErrorKind):
        assert f"`{kind}`" in text, kind


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def test_everything_that_a_conversation_can_do_is_told() -> None:
    table = tables(section("library.md", "A conversation"))[0]
    told = {name for _, names in table for name in quoted(names)}
    assert told == {*public(Conversation), "agent", "subagents"}


def test_every_event_and_every_field_of_it_is_told() -> None:
    told = {
        event: quoted(fields)
        for events, fields, _ in rows("library.md", "Events", "event")
        for event in quoted(events)
    }
    known = {each.__name__: list(fields_of(each)) for each in get_args(TurnEvent)}
    assert told == known
    assert f"{turns.MOST_ROUNDS} times" in section("library.md", "A turn")


def fields_of(event: Any) -> Iterator[str]:
    names = [field.name for field in dataclasses.fields(event)]
    for name in names:
        yield name
        if name == "tokens_after" and hasattr(event, "tokens_freed"):
            yield "tokens_freed"


# -- the house -----------------------------------------------------------------------------


def test_every_room_of_the_house_is_in_the_drawing_and_no_other() -> None:
    drawing = section("architecture.md", "The house")
    home = Path(strandline.__file__).parent
    rooms = {path.stem + ("/" if path.is_dir() else "") for path in home.iterdir()}
    rooms -= {"__init__", "__main__", "__pycache__/", "py"}
    told = re.findall(r"^  (\w+/?) ", drawing, flags=re.MULTILINE)
    assert sorted(told) == sorted(room for room in rooms if room != "py.typed")


def test_every_decision_is_in_the_index_under_its_title() -> None:
    told = dict(
        re.findall(r"^\| \[\d+\]\((.+?)\) \| (.+) \|$", guide("adr/README.md"), re.MULTILINE)
    )
    titles = {
        path.name: path.read_text("utf-8").partition("\n")[0][7:]
        for path in sorted((ROOT / "docs" / "adr").glob("0*.md"))
    }
    assert told == titles
