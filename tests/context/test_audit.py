"""What must survive a summary does, whoever wrote it, within its bound."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.audit import audit, repaired
from strandline.context.mustkeep import MOST_NAMES, musts
from strandline.context.sections import (
    COURSE,
    DONE,
    FACTS,
    OPEN_QUESTIONS,
    OPEN_REQUEST,
    RULES,
    SECTIONS,
    parse_sections,
    written_sections,
)
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import HeuristicCounter
from strandline.transcript.messages import Message

COUNTER = HeuristicCounter()


def user(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def answer(text: str, stop: str = "stop") -> Message:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop}


def asked(*messages: Message, max_tokens: int = 500, **more: Any) -> SummaryRequest:
    return SummaryRequest(messages, max_tokens, **more)


def mended(request: SummaryRequest, text: str) -> dict[str, list[str]]:
    """The sections of the repaired text, which must be within its bound."""
    told, _ = repaired(request, text, COUNTER)
    assert COUNTER.count(told) <= request.max_tokens
    assert list(parse_sections(told)) == [t for t in SECTIONS if t in parse_sections(told)]
    return parse_sections(told)


def missing(text: str, *messages: Message, **more: Any) -> tuple[str, ...]:
    return audit(asked(*messages, **more), text, COUNTER).missing


# -- what is looked for -----------------------------------------------------------------------


def test_what_people_and_the_assistant_named_is_looked_for_and_what_tools_gave_back_is_not() -> (
    None
):
    call = {"type": "toolCall", "id": "a", "name": "read", "arguments": {"path": "/srv/a.py"}}
    body = {"type": "toolCall", "id": "b", "name": "write", "arguments": {"text": "/no " * 100}}
    messages = [
        user("Look at JIRA-77 with Alice."),
        answer("It listens on 8443."),
        {"role": "assistant", "content": [call, body], "stopReason": "toolUse"},
        {"role": "toolResult", "toolName": "read", "content": "/etc/noise.conf 12345"},
        answer("Done."),
    ]
    assert set(missing("", *messages)) == {"JIRA-77", "Alice", "8443", "/srv/a.py"}


def test_what_people_said_and_what_repeats_weighs_more_and_bare_numbers_less() -> None:
    found = missing("", user("the file /by/me"), answer("/once and /twice and /twice and 17"))
    assert found == ("/by/me", "/twice", "/once", "17")


def test_rules_are_those_of_people_not_of_the_assistant_or_of_tools() -> None:
    rule = "You must never restart the database."
    assert missing("", answer(rule)) == ()
    assert missing("", {"role": "toolResult", "content": rule}) == ()
    assert missing("", user(rule), answer("ok")) == (rule,)


def test_an_answered_request_need_not_survive_in_its_words() -> None:
    assert missing("", user("rename the module"), answer("It is renamed.")) == ()
    assert missing("", user("rename the module")) == ("rename the module",)
    assert missing("", user("rename the module"), answer("", "toolUse")) == ("rename the module",)


def test_german_nouns_are_not_taken_for_names() -> None:
    text = "bitte prüfe die Datei im Ordner und den Fehler in der Datenbank vor dem Start"
    assert missing("", user(text), answer("ja")) == ()


def test_the_search_is_bounded_however_much_was_said() -> None:
    many = user(" ".join(f"/a/{n}" for n in range(3_000)))
    assert len(musts(asked(many, answer("ok")), COUNTER)) == MOST_NAMES


# -- what counts as there ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "is_there"),
    [
        ("/srv/app", "in /srv/app.", True),
        ("/srv/app", "`/srv/app`", True),
        ("/srv/app", "/srv/app/main.py", False),
        ("/srv/app", "/srv/app.py", False),
        ("/srv/app", "/SRV/APP", False),
        ("/srv/app", "/mnt/srv/app", False),
        ("8443", "port 8443, then", True),
        ("8443", "ポートは8443です", True),
        ("8443", "18443 or 84430", False),
        ("42", "42.5 or 1,42", False),
        ("42", "It is 42. Then", True),
        ("v1.2.3", "v1.2.34", False),
        ("JIRA-77", "jira-77", True),
        ("JIRA-77", "JIRA-770", False),
        ("run_all", "Run_All()", True),
        ("deadbeef1", "DEADBEEF1", True),
        ("me@example.org", "me@example.org", True),
        ("me@example.org", "some@example.org", False),
    ],
)
def test_paths_and_numbers_are_found_to_the_letter_and_never_inside_longer_ones(
    name: str,
    text: str,
    *,
    is_there: bool,
) -> None:
    assert (missing(text, answer(f"see {name} ")) == ()) is is_there


def test_a_rule_is_there_in_its_own_words_only_however_they_are_set() -> None:
    messages = user("Never touch the /srv/db, please."), answer("ok")
    assert missing("- **never touch** the `/srv/db`, please", *messages) == ()
    assert missing("- you may touch the /srv/db, please", *messages) != ()


def test_a_japanese_rule_and_request_are_kept() -> None:
    messages = user("本番のデータベースを消さないでください。"), user("設定を直して")
    assert missing("ルール: 本番のデータベースを消さないでください。", *messages) == (
        "設定を直して",
    )
    told = mended(asked(*messages), "")
    assert told[OPEN_REQUEST] == ["- [user] 設定を直して"]
    assert told[RULES] == ["- [user] 本番のデータベースを消さないでください。"]


def test_facts_told_before_are_found_by_their_names_or_by_most_of_their_words() -> None:
    before = "## Facts\n- [user] the port is 8443\n- the parser is written by hand"
    assert missing("8443; a hand written parser is what it is by", previous_summary=before) == ()
    assert missing("8444", previous_summary=before) == (
        "the port is 8443",
        "the parser is written by hand",
    )


# -- what is put back -------------------------------------------------------------------------


def test_what_is_missing_is_put_back_into_its_section() -> None:
    request = asked(
        user("You must not touch /srv/db. The port is 8443."),
        answer("ok"),
        user("Write the tests for JIRA-77."),
        previous_summary="## Rules and constraints\n- [user] Always answer in French.",
    )
    told = mended(request, "## Done\n- the parser\n\n## Rules and constraints\n- be nice")
    assert told[OPEN_REQUEST] == ["- [user] Write the tests for JIRA-77."]
    assert told[RULES] == [
        "- be nice",
        "- [user] You must not touch /srv/db.",
        "- [user] Always answer in French.",
    ]
    assert told[FACTS] == ["- names and numbers: 8443"]
    assert told[DONE] == ["- the parser"]


def test_h24_an_open_request_of_the_model_is_history_when_everything_was_answered() -> None:
    request = asked(user("Do A."), answer("Done."))
    told = mended(request, "## Open request\n- Do A.\n\n## Course\n- a few words")
    assert OPEN_REQUEST not in told
    assert told[COURSE] == ["- Do A.", "Course:", "- a few words"]


def test_a_request_from_before_stays_open_while_nobody_answered_it() -> None:
    call = {"type": "toolCall", "id": "a", "name": "read", "arguments": {}}
    request = asked(
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        previous_summary="## Open request\n> Write the tests.\n> All of them.",
    )
    assert mended(request, "")[OPEN_REQUEST] == ["- Write the tests. All of them."]


def test_h8_what_is_put_back_leaves_half_of_the_room_to_the_summary_and_cuts_are_marked() -> None:
    rules = user("\n".join(f"Never delete the table number {n} of them." for n in range(90)))
    body = "## Course of the conversation\n" + "- and so it went on and on\n" * 200
    told, found = repaired(asked(rules, answer("ok"), max_tokens=600), body, COUNTER)
    course = "\n".join(parse_sections(told)[COURSE])
    assert COUNTER.count(told) <= 600
    assert COUNTER.count(course) >= 600 * 0.4
    assert "characters left out" in course
    assert len(parse_sections(told)[RULES]) > 5
    assert found.missing


def test_a_summary_that_kept_everything_is_left_as_it_is() -> None:
    request = asked(user("Never touch /srv/db."), answer("ok"))
    text = "## Rules and constraints\n- Never touch /srv/db.\n\n## Done\n- nothing"
    told, found = repaired(request, text, COUNTER)
    assert told == text.replace("\n- nothing", "").removesuffix("\n\n## Done")
    assert (found.kept, found.named) == (2, 2)


# -- what models make of the sections ---------------------------------------------------------


def test_sections_of_models_are_read_whatever_they_look_like() -> None:
    text = (
        "```markdown\n<think>let me see</think>Here it is.\n"
        "# 1. Open request:\n- fix it\n**Rules and constraints**\n- none\n"
        "## OPEN QUESTIONS (unanswered)\n- which?\n### Next steps\n- go on\n"
        "**a bold line**\n## Files\n- /a\n```\n"
    )
    assert written_sections(text) == {
        COURSE: ["Here it is.", "Next steps:", "- go on", "**a bold line**"],
        OPEN_REQUEST: ["- fix it"],
        OPEN_QUESTIONS: ["- which?"],
        "Files": ["- /a"],
    }


def test_files_are_left_to_the_compaction_itself() -> None:
    assert "Files" not in mended(asked(answer("ok")), "## Files\n- /a\n\n## Done\n- b")


# -- properties -------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["/srv/app.py", "8443", "v1.2.3", "JIRA-7", "Alice", "please", "run_all", "the", "消さないで。"]
)
SAID = st.one_of(
    st.text(max_size=300),
    st.lists(WORDS, max_size=20).map(" ".join),
    st.integers(10, 9_999).map("You must not touch /srv/{0}. Never stop port {0}!".format),
)
MESSAGES = st.one_of(
    SAID.map(user),
    SAID.map(answer),
    SAID.map(lambda text: answer(text, "toolUse")),
    SAID.map(lambda text: {"role": "toolResult", "toolName": "x", "content": text}),
    st.sampled_from([{}, {"role": "user"}, {"role": "assistant", "content": None}]),
)
WRITTEN = st.lists(
    st.one_of(SAID, st.sampled_from([f"## {title}" for title in SECTIONS])), max_size=30
).map("\n".join)


@settings(max_examples=200)
@given(
    messages=st.lists(MESSAGES, max_size=15),
    text=WRITTEN,
    previous=st.none() | WRITTEN,
    max_tokens=st.integers(1, 800),
    split=st.booleans(),
)
def test_the_result_is_within_its_bound_and_lacks_only_what_had_no_room(
    messages: list[dict[str, Any]],
    text: str,
    previous: str | None,
    max_tokens: int,
    *,
    split: bool,
) -> None:
    request = SummaryRequest(messages, max_tokens, previous, split_turn=split)
    told, found = repaired(request, text, COUNTER)
    assert COUNTER.count(told) <= max_tokens
    assert found == audit(request, told, COUNTER)
    assert found.kept + len(found.missing) == found.named
    free = max_tokens - COUNTER.count(told)
    lines = {must.text[:120]: must.line or must.text for must in musts(request, COUNTER)}
    for lost in found.missing:
        # A section's title and the beginning of its line take some of the room too.
        assert COUNTER.count(lines[lost]) + 16 > free


@settings(max_examples=100)
@given(messages=st.lists(MESSAGES, max_size=10), text=WRITTEN)
def test_with_room_enough_nothing_is_missing_and_a_second_repair_changes_nothing(
    messages: list[dict[str, Any]], text: str
) -> None:
    request = SummaryRequest(messages, 20_000)
    told, found = repaired(request, text, COUNTER)
    assert found.missing == ()
    assert repaired(request, told, COUNTER) == (told, found)
