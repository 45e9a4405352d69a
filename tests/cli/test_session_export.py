"""``session export``: documents that hold the conversation, and in which it stays."""

from __future__ import annotations

import base64
import json
import stat
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from strandline.cli.export_markdown import code, fenced, quoted
from strandline.cli.fences import blocks
from strandline.manager import SessionManager


def test_markdown_has_a_headline_for_each_speaker(talk: Path, run: Any) -> None:
    assert run("session", "export", talk).out.splitlines() == [
        "# A short talk",
        "",
        "- session: `talk`",
        "- directory: `/home/user/project`",
        "- since: `2025-06-01 10:00`",
        "- model: `anthropic/claude`",
        "",
        "## user · 2025-06-01 10:00 · `user0001`",
        "",
        "> Hello",
        "",
        "## assistant · 2025-06-01 10:01 · `asst0001` · `claude`",
        "",
        "*thinking*",
        "",
        "> hmm",
        "",
        "> Hi!",
        "",
        "→ `read`",
        "",
        "```",
        '{"path": "src/a.py"}',
        "```",
        "",
        "← `read`",
        "",
        "```",
        "one",
        "two",
        "three",
        "```",
        "",
        "## user · 2025-06-01 10:05 · `user0002`",
        "",
        "> Go on in red␇",
        "",
        "---",
        "",
        "## compaction: 12,345 tokens before, kept from user0002 · 2025-06-01 10:07 · `compact1`",
        "",
        "> They said hello.",
        "",
        "*name A short talk* · 2025-06-01 10:08 · `name0001`",
        "",
        "## assistant · 2025-06-01 10:09 · `asst0002` · `claude`",
        "",
        "> Done.",
    ]


HOSTILE = [
    "<script>alert(1)</script>",
    "`<b>` and <b>",
    "```\nnever closed <b>",
    "- item\n  ```\n<b>out of the list",
    "a ` b\n` <b> `",
    "- ` x\n- <b> `",
    "~~~ x\n<b>\n~~~\n<i>",
    "## user · 2025 · `fake`",
    "\\` <b> `",
    "> ```\n<b>",
    "    <b>",
    "```\n   ```\n<b>",
    "[a]: <http://x>\n![x](y)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_was_said_cannot_break_out_of_its_quote(text: str) -> None:
    check_quote(text)


MARKUP = ["`", "``", "```", "~~~", "<b>", "</", "<!--", "-->", "<", ">", "\n", "\n\n", " ", "    "]
PIECES = [*MARKUP, "- ", "1. ", "> ", "# ", "\\", "a", "&lt;", "\t", "| ", "[a]: ", "---", "*"]


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=40))
def test_no_text_breaks_out_of_its_quote(text: str) -> None:
    check_quote(text)


def check_quote(text: str) -> None:
    document = "\n".join(["before", "", *quoted(text), "", "## after"])
    tokens = MarkdownIt("commonmark", {"html": True}).parse(document)
    inline = [child for token in tokens for child in token.children or []]
    assert not [each for each in (*tokens, *inline) if each.type.startswith("html")]
    top = [token.type for token in tokens if token.level == 0]
    assert top[:3] == ["paragraph_open", "inline", "paragraph_close"] or top[0] == "paragraph_open"
    assert top[-2:] == ["heading_open", "heading_close"]
    assert {kind for kind in top[2:-2] if kind != "paragraph_close"} <= {
        "blockquote_open",
        "blockquote_close",
    }


@given(st.text(alphabet="`a~ \n<", max_size=40))
def test_a_fence_holds_any_text(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse("\n".join(fenced(text)))
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content == text + "\n"


@given(st.text(alphabet="`a <", min_size=1, max_size=20))
def test_a_code_span_holds_any_line(text: str) -> None:
    line = " ".join(text.split()) or "x"
    inline = MarkdownIt("commonmark").parseInline("x " + code(line))[0].children or []
    assert inline[-1].type == "code_inline"
    assert inline[-1].content == line


@given(st.lists(st.sampled_from(["```", "~~~", "````", "a", " ```", "```py", ""]), max_size=12))
def test_blocks_lose_no_line_of_text(lines: list[str]) -> None:
    text = [line for line in lines if line.strip("` ~py")]
    found = [line for block in blocks("\n".join(lines)) for line in block.lines]
    assert [line for line in found if line.strip("` ~py")] == text


class Page(HTMLParser):
    """Collects tags, their attributes and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, list[str | None]] = {}
        self.text = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value)
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


FRAME = {"html", "head", "meta", "title", "style", "body", "main", "h1", "dl", "dt", "dd"}
CONTENT = {"article", "h2", "p", "pre", "code", "details", "summary", "small", "time", "mark"}


def test_html_is_one_page_without_scripts_or_requests(tmp_path: Path, run: Any) -> None:
    evil = '"><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>'
    picture = base64.b64encode(b"\x89PNG").decode()
    with SessionManager.create(session_dir=tmp_path, session_id="evil", cwd=evil) as session:
        entry = session.append_message({"role": "user", "content": f"{evil}\n```\n{evil}"})
        call = {"type": "toolCall", "id": "1", "name": evil, "arguments": {"path": evil}}
        images = [
            {"type": "image", "mimeType": "image/png", "data": picture},
            {"type": "image", "mimeType": f"image/png{evil}", "data": picture},
            {"type": "image", "mimeType": "image/svg+xml", "data": picture},
            {"type": "image", "mimeType": "image/png", "data": evil},
        ]
        session.append_message({"role": "assistant", "model": evil, "content": [call, *images]})
        session.append_message({"role": evil, "content": evil})
        session.append_custom_message(evil, evil)
        session.append_label(entry, evil)
        session.append_compaction(evil, entry, 1)
        session.append_session_info(evil)
    page = Page(run("session", "export", tmp_path / "evil.jsonl", "--format", "html").out)
    assert set(page.tags) <= FRAME | CONTENT | {"img"}
    assert page.open == []
    assert page.attributes["src"] == [f"data:image/png;base64,{picture}"]
    assert not {"onerror", "href", "style", "onclick"} & set(page.attributes)
    assert page.text.count("alert(1)") >= 16
    assert "default-src 'none'" in str(page.attributes["content"])


def test_html_reads_in_light_and_dark_and_shows_the_whole_branch(talk: Path, run: Any) -> None:
    out = run("session", "export", talk, "--format", "html").out
    assert "color-scheme: light dark" in out
    text = Page(out).text
    for part in ("A short talk", "Hello", "Hi!", "src/a.py", "three", "They said hello.", "Done."):
        assert part in text
    assert "Or not" not in text


def test_export_goes_to_a_new_file_of_the_form_that_its_name_tells(talk: Path, run: Any) -> None:
    for name, start in [("a.html", "<!doctype"), ("a.md", "# "), ("a.json", "{"), ("a.txt", "# ")]:
        out = talk.with_name(name)
        assert run("session", "export", talk, "-o", out).code == 0
        assert out.read_text("utf-8").startswith(start)
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
    ran = run("session", "export", talk, "-o", talk, "--format", "md")
    assert ran.code == 1
    assert ran.err == f"strandline: {talk} exists already: choose another name\n"
    got = run("session", "export", talk, "-o", talk.with_name("b.html"), "--json").json()
    assert got == {
        "file": str(talk),
        "out": str(talk.with_name("b.html")),
        "format": "html",
        "entries": 8,
    }


def test_export_as_json_is_what_show_gives(talk: Path, run: Any) -> None:
    shown = run("session", "show", talk, "--json").out
    assert run("session", "export", talk, "--json").out == shown
    assert run("session", "export", talk, "--format", "json").out == shown
    aside = json.loads(run("session", "export", talk, "--json", "--branch", "side way").out)
    assert aside["entries"][-1]["id"] == "aside001"
