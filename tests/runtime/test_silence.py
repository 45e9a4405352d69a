"""Silent replies: what is delivered, on which occasion, and that no cut changes it."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.runtime.silence import (
    TOKEN,
    Occasion,
    SilenceFilter,
    deliverable,
    is_silent,
)

DIRECT = Occasion()
GROUP = Occasion(chat_type="group")
ROOM = Occasion(chat_type="room")
BACKGROUND = Occasion(background=True)
OCCASIONS = [
    DIRECT,
    GROUP,
    ROOM,
    BACKGROUND,
    Occasion(background=True, chat_type="group"),
]

SILENT = [
    # the token, in any case, with space and punctuation
    "NO_REPLY",
    " no_reply\n",
    "No_Reply.",
    "\n\n\tNO_REPLY\r\n\r\n",
    "(no_reply)",
    "«no_reply»!",
    "…no_reply…",
    "no_reply。",
    "🤫 no_reply",
    "⚠\ufe0f no_reply",
    "\ufeffno_reply\u200b",
    "→ no_reply",
    "> no_reply",
    "- no_reply",
    "# no_reply",
    # repeated
    "NO_REPLY NO_REPLY",
    "no_reply\nNo_Reply\n\nNO_REPLY",
    "no_replyNO_REPLY",
    "no_reply, no_reply; no_reply",
    "no_reply_no_reply",
    # Markdown
    "**no_reply**",
    "__NO_REPLY__",
    "_no_reply_",
    "`no_reply`",
    "```\nNO_REPLY\n```",
    "```text\nno_reply\n```\n",
    "```json \nno_reply\n```",
    "~~~\nno_reply\n~~~",
    "**\nno_reply\n**",
    # JSON
    '"NO_REPLY"',
    '["NO_REPLY"]',
    '{"action":"NO_REPLY"}',
    ' { "action" : "no_reply" } ',
    '{\n  "reply": {\n    "text": "no_reply",\n    "again": ["no_reply"]\n  }\n}',
    '```json\n{"action": "NO_REPLY"}\n```',
    '{"a \\"quoted\\" name": "no_reply"}',
    '{"no_reply": "no_reply"}',
    '{"notify":"no_reply"}',
    '{"action":"NO_REPLY"',
    # directives
    "[[reply_to_current]] NO_REPLY",
    "[[reply_to_current]]no_reply",
    "[[ reply_to: 4711 ]]\nNO_REPLY",
    "[[REPLY_TO:abc-1]] [[reply_to_current]] no_reply.",
    '[[reply_to_current]] {"action":"NO_REPLY"}',
    "no_reply [[reply_to_current]]",
    # starts with the upper-case token
    "NO_REPLY\n\nclear everything",
    "  NO_REPLY - nothing to say",
    "NO_REPLY: nobody asked me",
    "NO_REPLY means that nothing is delivered.",
    "NO_REPLY's meaning",
    "NO_REPLY緊急の用件はありません",
    "NO_REPLYなし",
    "NO_REPLY\u200bx",
    "NO_REPLYNO_REPLY and more",
    "NO_REPLY NO_REPLYING",
    "[[reply_to_current]] NO_REPLY because it is late",
    "[[reply_to: 12]]NO_REPLY\nreason",
    "NO_REPLY\nlast words",
    "NO_REPLY\n```\ncode\n```",
]

WHOLE = [
    "",
    " ",
    "\n\n",
    "Hello.",
    "N",
    "No",
    "No.",
    "NO_REPL",
    "NO REPLY",
    "NO-REPLY",
    "NO\n_REPLY",
    "NO_\u200bREPLY",
    "\uff2e\uff2f_REPLY",
    "NOREPLY",
    "NO_REPLYING",
    "NO_REPLY_X",
    "NO_REPLY2",
    "NO_REPLY_ is a name",
    "NO_REPLYé",
    "NO_REPLY\u0301",
    "NO_REPLY\u0131",
    "NO_REPLYß and so on",
    "NO_REPLYNO_REPLYING",
    "no_reply緊急",
    "no_reply is a word",
    "no_reply\nThat was lower case.",
    "XNO_REPLY",
    "1. NO_REPLY",
    "The token NO_REPLY means that nothing is sent.",
    "Answer NO_REPLY",
    "Done. NO_REPLY",
    "All quiet.\nI would answer NO_REPLY",
    "**NO_REPLY** is the token",
    "# NO_REPLY\n\nThe token for silence.",
    '"NO_REPLY" is the token',
    "`NO_REPLY` is the token",
    "Write this:\n```\nNO_REPLY\n```",
    "Write this:\n\n```text\nNO_REPLY\n```\n\n",
    "```\nNO_REPLY\n```\nis what it writes",
    "```python\nreturn 'NO_REPLY'\n```",
    "Text\nNO_REPLY\nmore text",
    "Text\nNO_REPLY\n---",
    "Text\nNO_REPLYING",
    "Text\nNO_REPLY because",
    "Text\nNO_REPLY緊急",
    "Text\nno_reply_x\n",
    "Text\n```NO_REPLY\nx",
    "Text\n--\n\n",
    "Text \r\n\r\nmore\r\n",
    '{"action":"reply"}',
    '{"action":"NO_REPLY","why":"late"}',
    '{"count": 3}',
    '{"name',
    '{\n"name": "NO_REPLYING"}',
    "{'action': 'NO_REPLY'}",
    "msg [[E1008]timeout] tail",
    "[[E1008]timeout] NO_REPLY tail",
    "[[reply_to_current]] Hello",
    "[[reply_to: 7]] no_reply indeed",
    "[[reply_to_all]] NO_REPLY",
    "[[reply_to_current]]",
    "[[reply_to: 7",
    "!!!",
    "?!\n\n…\nWell.",
    "a\u2028b\x85c",
    "\ud800 lone",
    "x → NO_REPLY, they say",
    "A → NO_REPLY\n```",
    "→",
]

# the text, and what a direct chat is shown; elsewhere it is silent
LAST_LINE = [
    ("All healthy…\n\nNO_REPLY", "All healthy…"),
    ("Not addressed to me — no mention.\n\nNO_REPLY", "Not addressed to me — no mention."),
    ("Done.\nno_reply", "Done."),
    ("Done.\r\nNO_REPLY\r\n", "Done."),
    ("Done.\n  NO_REPLY  \n\n \n", "Done."),
    ("Done.  \n**NO_REPLY**", "Done.  "),
    ("Done.\n`no_reply`.", "Done."),
    ("Done.\nNO_REPLY NO_REPLY", "Done."),
    ("Done.\nNO_REPLY\n\nNO_REPLY\n", "Done."),
    ('Done.\n{"action": "NO_REPLY"}', "Done."),
    ("Done.\n[[reply_to_current]] NO_REPLY", "Done."),
    ("Done.\n```NO_REPLY```", "Done."),
    ("Done.\u2028NO_REPLY\ufeff", "Done."),
    ("\n\nA\n\nB\n\u200b\nNO_REPLY", "\n\nA\n\nB"),
    ("no_reply\nis a word\nNO_REPLY", "no_reply\nis a word"),
    ("A\nNO_REPLY\nB\nNO_REPLY", "A\nNO_REPLY\nB"),
    ("A\n---\nNO_REPLY", "A\n---"),
    ("!\nx\nNO_REPLY", "!\nx"),
    ("**NO_REPLY** it is\nNO_REPLY", "**NO_REPLY** it is"),
    ("[[reply_to: 7\nNO_REPLY", "[[reply_to: 7"),
    ('{"a\nNO_REPLY', '{"a'),
    ("NO_REPLYING\nNO_REPLY", "NO_REPLYING"),
    ("Example:\n```\nNO_REPLY", "Example:\n```"),
]

# silent on a background turn only
CONCLUSIONS = [
    "✅ updated\n无紧急事项 → NO_REPLY",
    "nothing urgent -> **NO_REPLY**.\n\n",
    "nothing urgent => `NO_REPLY`",
    "→ none ⇒ NO_REPLY",
]


Row = tuple[str, str, str, str]  # text; shown in a direct chat, in a group, on a background turn
TABLE: list[Row] = [
    *((text, "", "", "") for text in SILENT),
    *((text, text, text, text) for text in WHOLE),
    *((text, shown, "", "") for text, shown in LAST_LINE),
    *((text, text, text, "") for text in CONCLUSIONS),
]
rows = pytest.mark.parametrize("row", TABLE, ids=[ascii(row[0]) for row in TABLE])


def expected_of(row: Row) -> Iterable[tuple[Occasion, str]]:
    """What is delivered on each occasion."""
    _, direct, group, background = row
    for occasion in OCCASIONS:
        in_chat = direct if occasion.chat_type == "direct" else group
        yield occasion, background if occasion.background else in_chat


def stream(pieces: Iterable[str], occasion: Occasion) -> str:
    """What a filter lets through of these pieces."""
    silence = SilenceFilter(occasion)
    return "".join([*map(silence.add, pieces)]) + silence.end()


def test_the_table_has_every_kind_of_text_once() -> None:
    assert len({row[0] for row in TABLE}) == len(TABLE) > 130


@rows
def test_each_text_is_delivered_as_the_chapter_says(row: Row) -> None:
    """Rows J1, J3 to J6, J8 (its text), J10 and J11 of the known faults are among them."""
    for occasion, expected in expected_of(row):
        assert deliverable(row[0], occasion) == expected
        assert is_silent(row[0], occasion) is (not expected)


@rows
def test_no_cut_changes_what_is_delivered(row: Row) -> None:
    """At every boundary, and one character at a time."""
    text = row[0]
    for occasion, expected in expected_of(row):
        for at in range(len(text) + 1):
            assert stream([text[:at], text[at:]], occasion) == expected
        assert stream(["", *text, ""], occasion) == expected


# A second reading of the chapter, slow and by regular expressions over the whole text.
def chars(*categories: str, more: str = "") -> str:
    """A character class of all characters of these general categories."""
    found = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)).startswith(categories)
    ]
    return "[" + re.escape("".join(found) + more) + "]"


BREAKS = r"\n\r\v\f\x85\u2028\u2029"


@cache
def rules() -> dict[str, re.Pattern[str]]:
    """The kinds of texts and lines that the chapter tells apart."""
    blank = chars("Z", "Cc", "Cf")
    filler = chars("P", "S", "Z", "Cc", "Cf", more="".join(map(chr, range(0xFE00, 0xFE10))))
    directive = rf"\[\[{blank}*(?i:reply_to_current|reply_to{blank}*:[^\]{BREAKS}]*){blank}*\]\]"
    name = rf'[{{,]{blank}*"(?:[^"\\{BREAKS}]|\\[^{BREAKS}])*"{blank}*:'
    around = f"(?:{filler}|{directive}|{name}|(?i:NO_REPLY))*"
    alone = f"{around}(?i:NO_REPLY){around}"
    first = f"(?:{blank}|{directive})*"
    fence = rf"(?:```[\w\-+#.]*{blank})?"
    word = chars("Lu", "Ll", "Lt", "N", "M", more="_")
    joined = f"(?![\ufe00-\ufe0f]){word}"
    return {
        "blank": re.compile(f"{blank}*"),
        "only the token": re.compile(f"{first}{fence}{alone}"),
        "token line": re.compile(alone),
        "starts with it": re.compile(rf"{first}(?:NO_REPLY)+(?!{joined}).*", re.DOTALL),
        "concludes": re.compile(rf".*(?:→|⇒|->|=>){filler}*NO_REPLY{filler}*"),
    }


def oracle(text: str, occasion: Occasion) -> str:
    def is_a(kind: str, part: str) -> bool:
        return rules()[kind].fullmatch(part) is not None

    if is_a("only the token", text) or is_a("starts with it", text):
        return ""
    lines = re.split(f"([{BREAKS}])", text)  # every other one is a line break
    while lines and (is_a("blank", lines[-1]) or is_a("token line", lines[-1])):
        del lines[-2:]
    rest = "".join(lines)
    if re.search(TOKEN, text[len(rest) :], re.IGNORECASE):
        return "" if occasion.only_whole else rest
    return "" if occasion.background and lines and is_a("concludes", lines[-1]) else text


@rows
def test_the_slow_reading_agrees_with_the_table(row: Row) -> None:
    for occasion, expected in expected_of(row):
        assert oracle(row[0], occasion) == expected


PARTS = [
    *("NO_REPLY", "no_reply", "NO_", "REPLY", "_R", "N", "o", "Y", "_", "X", "ing", "Hello"),
    *(" ", "\t", "\n", "\n\n", "\r\n", "\u2028", "\u200b", "\ufeff", "\u200d"),
    *(".", "…", "*", "**", "`", "```", "```json\n", "-", ">", "→", "->", "。", "✅", "\ufe0f"),
    *('"', "{", "}", "[", "]", ",", ":", '{"action":', '"}', "\\", '\\"'),
    *("[[", "]]", "[[reply_to_current]]", "[[reply_to: ", "reply_to", "[[E1008]timeout]"),
    *("\u0131", "İ", "ß", "\u017f", "é", "\u0301", "無", "の", "7", "\ue000"),
]
texts = st.lists(st.sampled_from(PARTS), max_size=9).map("".join)
occasions = st.sampled_from(OCCASIONS)


@settings(max_examples=200, deadline=None)
@given(texts, occasions, st.data())
def test_random_texts_are_read_alike_by_both_and_by_every_cut(
    text: str, occasion: Occasion, data: st.DataObject
) -> None:
    expected = oracle(text, occasion)
    assert deliverable(text, occasion) == expected
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert stream(pieces, occasion) == stream(text, occasion) == expected


# Ends that would make a text silent which still can become so.
WAYS_ON = [
    opened + rest
    for opened, rest in product(
        ["", '":', ":", ":]]", "]]", "]", '_":', 'x":', "`", "``", "\n", "``\n", 'x\\":', 'x":"'],
        ["", TOKEN, *(TOKEN[k:] for k in range(1, len(TOKEN)))],
    )
] + [word[k:] + TOKEN for word in ("[reply_to_current]]", "reply_to:]]") for k in range(len(word))]


@settings(max_examples=200, deadline=None)
@given(texts)
def test_a_direct_chat_holds_back_only_what_could_still_become_silent(text: str) -> None:
    """Whatever is held would not be delivered after some way on."""
    silence = SilenceFilter(DIRECT)
    shown = silence.add(text)
    if TOKEN in text and is_silent(text + " x", DIRECT):
        return  # it starts with the token: nothing will come
    assert text.startswith(shown)
    assert shown == text or any(len(deliverable(text + way, DIRECT)) < len(text) for way in WAYS_ON)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(["Plain words, ", "and more.", "\n", "\n\n", "x", " ", "# y"])))
def test_ordinary_text_is_shown_at_once(pieces: list[str]) -> None:
    """Held is at most the blank or marked beginning of the last line and the breaks before it."""
    silence = SilenceFilter(DIRECT)
    text = shown = ""
    for piece in pieces:
        text += piece
        shown += silence.add(piece)
        assert text.startswith(shown)
        assert re.fullmatch(r"[\s#]*", text[len(shown) :])
        if text[-1].isalnum() or text[-1] in ".,":
            assert shown == text


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("N", "N"),
        ("Nobody", ""),
        ("no_rep", "no_rep"),
        ("no_replies", ""),
        ("Hi ", ""),
        ("Hi\n", "\n"),
        ("Hi\n\n**NO_", "\n\n**NO_"),
        ("Hi\n\n**NOT", ""),
        ("Hi\nNO_REPLY", "\nNO_REPLY"),
        ("Hi\nNO_REPLY\n \n", "\nNO_REPLY\n \n"),
        ("Hi\nNO_REPLY\nB", ""),
        ("Hi\nNO_REPLY\n```", "\nNO_REPLY\n```"),
        ("Hi\nNO_REPLY\n```\n", "\n"),
        ("Hi\n```p", ""),
        ("```p", "```p"),
        ("```python\nprint", ""),
        ('{"action": ', '{"action": '),
        ('{"action": 3', ""),
        ("[[reply_to", "[[reply_to"),
        ("[[reply_to_current]] H", ""),
        ("[[E", ""),
        ("NO_REPLY", "NO_REPLY"),
        ("NO_REPLYI", ""),
    ],
)
def test_what_is_held_back_is_this_and_no_more(text: str, held: str) -> None:
    for pieces in ([text], list(text)):
        silence = SilenceFilter(DIRECT)
        assert "".join(map(silence.add, pieces)) + held == text


@pytest.mark.parametrize("occasion", [o for o in OCCASIONS if o != DIRECT])
def test_nothing_is_shown_before_the_end_where_the_last_line_silences_all(
    occasion: Occasion,
) -> None:
    silence = SilenceFilter(occasion)
    assert [silence.add(piece) for piece in ("A long", " answer.\n", "More.\n")] == ["", "", ""]
    assert silence.end() == "A long answer.\nMore.\n"


def test_after_the_upper_case_token_nothing_comes() -> None:
    silence = SilenceFilter(DIRECT)
    assert silence.add("NO_REPLY\n") + silence.add("clear everything\n" * 9) + silence.end() == ""


@pytest.mark.parametrize("part", ["!", "\n", "no_reply ", '{"a":', "NO_REPLY\n", "x\n", "```"])
def test_long_texts_of_one_part_are_read_once(part: str) -> None:
    """Ten thousand of each, a character at a time: a quadratic reading would not end here."""
    text = "x" + "\n" + part * 10_000
    assert len(stream(text, DIRECT)) <= len(text)
    assert len(stream(part * 10_000, DIRECT)) <= len(text)
