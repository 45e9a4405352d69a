"""A message that is too large is shortened in the view: head, note, tail."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.context.shorten import fair_share, shorten_message, shorten_text
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.transcript.messages import Message

COUNTER = HeuristicCounter()


def tokens_of(message: Message) -> int:
    return MessageTokens(COUNTER).count(message)


def shortened(message: Message, max_tokens: int) -> Message:
    return shorten_message(message, max_tokens, MessageTokens(COUNTER))


def test_head_and_tail_stay_and_the_note_says_how_much_is_missing() -> None:
    shorter = shorten_text("BEGIN " + "a b " * 5_000 + "END", 200, COUNTER)
    assert shorter.startswith("BEGIN ")
    assert shorter.endswith("END")
    head, note, tail = shorter.split("\n")
    assert f"{20_009 - len(head) - len(tail):,} characters left out" in note


def test_shortening_again_counts_what_was_left_out_before() -> None:
    text = "word " * 10_000
    twice = shorten_text(shorten_text(text, 2_000, COUNTER), 200, COUNTER)
    head, note, tail = twice.split("\n")
    assert f"{len(text) - len(head) - len(tail):,} characters" in note


def test_what_fits_stays_as_it_is() -> None:
    assert shorten_text("short", 10, COUNTER) == "short"


@given(text=st.text(max_size=3_000), max_tokens=st.integers(0, 400))
def test_a_shortened_text_never_exceeds_its_room(text: str, max_tokens: int) -> None:
    assert COUNTER.count(shorten_text(text, max_tokens, COUNTER)) <= max_tokens


@given(
    text=st.text(alphabet="🎉é漢a", min_size=500, max_size=3_000), max_tokens=st.integers(20, 90)
)
def test_c5_cuts_fall_between_characters(text: str, max_tokens: int) -> None:
    shorter = shorten_text(text, max_tokens, COUNTER)
    shorter.encode()
    head, _, tail = shorter.partition("\n[… ")
    assert text.startswith(head)
    assert text.endswith(tail.partition("]\n")[2])


def test_h22_base64_is_never_cut_but_left_out_with_a_note() -> None:
    encoded = base64.b64encode(bytes(range(256)) * 80).decode()
    shorter = shorten_text(
        f'{{"image": "data:image/png;base64,{encoded}", "ok": true}}', 500, COUNTER
    )
    assert f"[base64, {len(encoded):,} characters left out]" in shorter
    assert '"ok": true' in shorter
    assert encoded[:40] not in shorter


def test_a_long_word_is_not_mistaken_for_base64() -> None:
    assert "a" * 100 in shorten_text("a" * 24_000, 500, COUNTER)


def test_h22_a_result_of_400_kb_fits_its_cap() -> None:
    rows = json.dumps([{"id": n, "name": f"row {n}"} for n in range(12_000)])
    message = {"role": "toolResult", "toolCallId": "a", "content": [{"type": "text", "text": rows}]}
    shorter = shortened(message, 2_000)
    assert tokens_of(shorter) <= 2_000
    assert shorter["content"][0]["text"].startswith('[{"id": 0')
    assert shorter["content"][0]["text"].endswith("}]")


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def test_as_many_images_stay_as_fit_and_the_others_are_noted() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE, IMAGE, IMAGE]}
    shorter = shortened(message, 3_700)
    assert [block["type"] for block in shorter["content"]] == ["text", "image", "image", "text"]
    assert shorter["content"][3]["text"] == "[images left out for their size: 1]"
    assert tokens_of(shorter) <= 3_700
    assert tokens_of(shortened(message, 100)) <= 100


def test_thinking_is_not_cut_but_left_out() -> None:
    thinking = {"type": "thinking", "thinking": "hm " * 4_000, "thinkingSignature": "s"}
    shorter = shortened(
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "ok"}]}, 100
    )
    assert shorter["content"] == [{"type": "text", "text": "ok"}]


def test_long_arguments_are_shortened_and_stay_an_object() -> None:
    arguments = {"path": "/a/b.py", "content": "line\n" * 40_000, "mode": 7}
    call = {"type": "toolCall", "id": "a", "name": "write", "arguments": arguments}
    shorter = shortened({"role": "assistant", "content": [call]}, 1_000)
    told = shorter["content"][0]
    assert (told["id"], told["name"]) == ("a", "write")
    assert told["arguments"]["path"] == "/a/b.py"
    assert told["arguments"]["mode"] == 7
    assert tokens_of(shorter) <= 1_000


def test_arguments_without_long_texts_become_one_shortened_text() -> None:
    call = {"type": "toolCall", "id": "a", "name": "n", "arguments": {"rows": list(range(20_000))}}
    shorter = shortened({"role": "assistant", "content": [call]}, 500)
    assert set(shorter["content"][0]["arguments"]) == {"shortened"}
    assert tokens_of(shorter) <= 500


@pytest.mark.parametrize("role", ["user", "toolResult"])
def test_many_small_blocks_are_joined_before_they_are_cut(role: str) -> None:
    blocks: list[Any] = [{"type": "text", "text": f"line {n}"} for n in range(5_000)]
    shorter = shortened({"role": role, "content": [*blocks, IMAGE]}, 300)
    assert tokens_of(shorter) <= 300
    assert shorter["content"][0]["text"].startswith("line 0\nline 1")
    assert all(block["text"] for block in shorter["content"])


@given(sizes=st.lists(st.integers(0, 500), max_size=30), room=st.integers(-10, 2_000))
def test_fair_shares_use_the_room_and_no_more(sizes: list[int], room: int) -> None:
    share = fair_share(sizes, room)
    assert sum(min(size, share) for size in sizes) <= max(room, 0)
    if sum(sizes) > room >= 0:
        assert sum(min(size, share + 1) for size in sizes) > room - len(sizes)
