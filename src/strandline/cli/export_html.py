"""A conversation as one HTML page: no scripts, no outside requests, light and dark."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from html import escape

from strandline.cli.conversation import NOT_DELIVERED, Item, Part
from strandline.cli.fences import blocks
from strandline.cli.words import amount, one_line, safe, size, when
from strandline.clock import iso_from_ms

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --dim: #777; --bad: #c33; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 52rem; margin: 0 auto;
  padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .1rem 1rem; color: var(--dim);
  font-size: .85rem; margin: 0 0 2rem; }
dd { margin: 0; overflow-wrap: anywhere; }
article { border-top: 1px solid var(--line); padding: .75rem 0; }
article.tool { border: 0; padding: 0; }
article.user { border-left: 3px solid #48f; padding-left: .75rem; }
article.boundary { border: 2px dashed var(--line); padding: .75rem; margin: 1.5rem 0; }
h2 { font-size: .85rem; font-weight: 600; margin: 0 0 .4rem; }
h2 small, .note, summary small { color: var(--dim); font-weight: 400; }
p { margin: .4rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
pre { background: var(--soft); border-radius: 4px; padding: .6rem .8rem; margin: .4rem 0;
  overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; }
details { margin: .25rem 0; font-size: .9rem; }
summary { cursor: pointer; overflow-wrap: anywhere; font-family: ui-monospace, monospace; }
.bad { color: var(--bad); }
img { max-width: 100%; height: auto; }
@media print { details { display: none; } }
"""


def page(title: str, facts: dict[str, str], shown: Iterable[Item]) -> Iterator[str]:
    """The lines of the page."""
    name = _text(one_line(title))
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{name}</title><style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{name}</h1><dl>"
    for key, value in facts.items():
        yield f"<dt>{_text(key)}</dt><dd>{_text(one_line(value))}</dd>"
    yield "</dl>"
    for item in shown:
        yield from _item(item)
    yield "</main></body></html>"


def _item(item: Item) -> Iterator[str]:
    facts = [_text(one_line(item.title)), _time(item.at_ms), _text(one_line(item.id))]
    facts.append(NOT_DELIVERED * item.silent)
    small = f"<small>{' · '.join(filter(None, facts))}</small>"
    anchor = f'id="{_text(one_line(item.id))}"'
    if item.kind == "note":
        yield f'<p class="note" {anchor}>{small}</p>'
        return
    kind = "boundary" if item.kind == "boundary" else "user" if item.who == "user" else "other"
    if item.who == "toolResult" and not item.label:
        yield f'<article class="tool" {anchor}>'  # stands below its call
    else:
        label = f" <mark>{_text(one_line(item.label))}</mark>" if item.label else ""
        who = _text(one_line(item.who))
        yield f'<article class="{kind}" {anchor}><h2>{who} {small}{label}</h2>'
    for part in item.parts:
        yield from _part(part)
    yield "</article>"


def _time(at_ms: int | None) -> str:
    text = when(at_ms)
    if at_ms is None or not text:
        return ""
    return f'<time datetime="{iso_from_ms(at_ms)}">{text}</time>'


def _part(part: Part) -> Iterator[str]:
    match part.kind:
        case "text":
            yield from _prose(part.text)
        case "thinking" if part.text.strip():
            yield from _folded("thinking", "", part.text)
        case "call":
            yield from _folded(f"→ {part.title}", part.brief[:200], part.text)
        case "result":
            lines = part.text.strip("\n").count("\n") + 1
            mark = "✗" if part.failed else "←"
            yield from _folded(f"{mark} {part.title}", amount(lines, "line"), part.text)
        case "image":
            yield _picture(part)
        case "problem":
            yield f'<p class="bad">{_text(safe(part.text))}</p>'


def _prose(text: str) -> Iterator[str]:
    for block in blocks(safe(text).strip("\n")):
        body = _text("\n".join(block.lines))
        if block.info is not None:
            yield f"<pre><code>{body}</code></pre>"
        elif body.strip():
            yield f"<p>{body.strip(chr(10))}</p>"


def _folded(title: str, brief: str, text: str) -> Iterator[str]:
    small = f" <small>{_text(one_line(brief))}</small>" if brief else ""
    yield f"<details><summary>{_text(one_line(title))}{small}</summary>"
    yield f"<pre>{_text(safe(text))}</pre></details>"


def _picture(part: Part) -> str:
    """The picture itself where it is one that browsers draw, else a word about it."""
    try:
        data = base64.b64decode(part.text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data or part.title not in PICTURES:
        return f'<p class="note">image {_text(one_line(part.title))}, {size(len(data))}</p>'
    coded = base64.b64encode(data).decode()
    return f'<p><img alt="" src="data:{part.title};base64,{coded}"></p>'


def _text(text: str) -> str:
    return escape(text, quote=True)
