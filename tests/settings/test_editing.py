"""Single keys of a settings file are changed, and every other byte stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pyjson5
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ConfigError
from strandline.settings.editing import check_loads, edited

ENABLED = ("plugins", "entries", "x", "enabled")
SLOT = ("plugins", "slots", "contextEngine")
PATHS = ("plugins", "load", "paths")

TEXT = """\
// my settings
{
  models: {}, // none
  plugins: {
    // the slot
    slots: { contextEngine: "x" }, // here
    load: {
      paths: [
        "/a", // first
        '/b' // second
      ],
    }
  } /* the end of plugins */
}
// done
"""


def test_a_change_leaves_all_other_bytes_as_they_are() -> None:
    assert edited(TEXT, {SLOT: "legacy"}) == TEXT.replace('"x"', '"legacy"')
    assert edited(TEXT, {(*PATHS, 2): "/c"}) == TEXT.replace(
        "'/b' // second", "'/b', // second\n        \"/c\""
    )
    assert edited(TEXT, {ENABLED: True}) == TEXT.replace(
        "    }\n  } /*",
        '    },\n    "entries": {\n      "x": {\n        "enabled": true\n      }\n    }\n  } /*',
    )


def test_what_was_added_can_be_taken_away_again() -> None:
    with_more = edited(TEXT, {ENABLED: True, (*PATHS, 2): "/c"})
    without = edited(with_more, {}, [("plugins", "entries"), (*PATHS, 2)])
    assert without == TEXT
    assert edited(TEXT, {}, [(*PATHS, 0)]) == TEXT.replace('"/a", //', " //")


def test_several_places_of_a_list_are_taken_away_at_once() -> None:
    text = edited("[1, 2, 3, 4]", {}, [(0,), (2,)])
    assert pyjson5.decode(text) == [2, 4]


def test_what_is_not_there_is_taken_away_without_a_change() -> None:
    for path in (ENABLED, ("nothing",), (*PATHS, 7), ("models", "providers", "x")):
        assert edited(TEXT, {}, [path]) == TEXT


@pytest.mark.parametrize("text", ["", " \n", "{}", "{\n}\n"])
def test_a_file_that_is_not_there_yet_becomes_plain_json(text: str) -> None:
    new = edited(text, {ENABLED: True, (*PATHS, 0): "/c"})
    assert json.loads(new) == {
        "plugins": {"entries": {"x": {"enabled": True}}, "load": {"paths": ["/c"]}}
    }
    assert new.count("\n") > 8


def test_line_ends_and_the_mark_at_the_beginning_are_kept() -> None:
    text = "\ufeff" + TEXT.replace("\n", "\r\n")
    new = edited(text, {ENABLED: True, (*PATHS, 2): "/c"}, [("models",)])
    assert new.startswith("\ufeff// my settings\r\n")
    assert new.count("\n") == new.count("\r\n")


def test_a_key_that_stands_twice_is_changed_where_it_counts_and_goes_altogether() -> None:
    text = '{ a: 1, "a": 2, b: 3 }'
    assert edited(text, {("a",): 9}) == '{ a: 1, "a": 9, b: 3 }'
    assert pyjson5.decode(edited(text, {}, [("a",)])) == {"b": 3}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "not json",
        "[]",
        "{plugins: 7}",
        '{plugins: {entries: "all"}}',
        "{plugins: []}",
        "{a: 1, // c\u2028 plugins: {entries: []}}",
    ],
)
def test_what_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edited(text, {ENABLED: True})
    assert caught.value.remedy


def test_a_change_after_which_the_file_would_not_load_is_refused() -> None:
    check_loads(edited(TEXT, {ENABLED: True}), {}, "strandline.json")
    with pytest.raises(ConfigError, match=r"strandline\.json.*plugins\.entries\.x\.enabled"):
        check_loads(edited(TEXT, {ENABLED: "sure"}), {}, "strandline.json")


# -- any text -------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "plugins", "entries", "x y", "ü", "0"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
FLAGS = st.booleans()
COMMENTS = st.sampled_from(
    ["", " ", "\n", "/* a */", " // b {\n", "\n  /* c, */ ", " /* d\n } */\n", "\r\n\t// e ]\r\n"]
)


@st.composite
def texts(draw: st.DrawFn, value: Any) -> str:
    """Some JSON5 that says `value`, with white space and comments in all places."""

    def space() -> str:
        return draw(COMMENTS)

    def written(one: Any) -> str:
        if isinstance(one, list):
            return "[" + items([written(each) for each in one]) + "]"
        if isinstance(one, dict):
            return "{" + items([key(k) + space() + ":" + written(v) for k, v in one.items()]) + "}"
        quoted = json.dumps(one, ensure_ascii=False)
        plain = isinstance(one, str) and not re.search(r"['\\\"]", quoted[1:-1])
        return f"'{one}'" if plain and draw(FLAGS) else quoted

    def key(name: str) -> str:
        return name if name.isidentifier() and draw(FLAGS) else json.dumps(name)

    def items(each: list[str]) -> str:
        text = ",".join(space() + one + space() for one in each)
        return text + ("," + space() if bool(each) and draw(FLAGS) else space())

    return space() + written(value) + space()


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, dict[str, Any], tuple[str, ...], Any]:
    data = draw(st.dictionaries(NAMES, VALUES, max_size=4))
    path: tuple[str, ...] = tuple(draw(st.lists(NAMES, min_size=1, max_size=3)))
    return draw(texts(data)), data, path, draw(VALUES)


def comments_of(text: str) -> list[str]:
    strings = r'"(?:[^"\\]|\\.)*"|' + r"'[^']*'"
    found = re.findall(rf"{strings}|(/\*.*?\*/|//[^\r\n]*)", text, re.DOTALL)
    return [each for each in found if each]


@given(edits())
@settings(max_examples=200, deadline=None)
def test_in_any_text_a_key_is_set_and_gone_and_no_comment_is_lost(
    edit: tuple[str, dict[str, Any], tuple[str, ...], Any],
) -> None:
    text, data, path, value = edit
    try:
        new = edited(text, {path: value})
    except ConfigError:
        node: Any = data
        for step in path[:-1]:
            node = node.get(step, {})
            if not isinstance(node, dict):
                return  # something else stands where an object belongs
        raise
    node = pyjson5.decode(new)
    for step in path:
        node = node[step]
    assert node == value
    kept = comments_of(new)
    if path[0] not in data:
        assert kept == comments_of(text)
    gone = edited(new, {}, [path[:1]])
    expected = {key: each for key, each in data.items() if key != path[0]}
    assert pyjson5.decode(gone) == expected
