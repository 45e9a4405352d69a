"""Session keys: every form of the specification, both directions, and what is refused."""

from __future__ import annotations

import json
import string
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from strandline.errors import InvalidSessionKey
from strandline.sessions.keys import (
    SessionKey,
    channel_key,
    cron_key,
    direct_key,
    explicit_key,
    file_stem_for,
    group_key,
    hook_key,
    is_transcript_name,
    main_key,
    room_key,
    tui_key,
)

FIXTURE = Path(__file__).parents[2] / "../shared/fixtures/openclaw-state"

FORMS = {
    "agent:main:main": main_key("main"),
    "agent:main:work": main_key("main", "work"),
    "agent:a:direct:Ann": direct_key("a", "Ann"),
    "agent:a:telegram:direct:42": direct_key("a", "42", channel="telegram"),
    "agent:a:slack:team-1:direct:U9": direct_key("a", "U9", channel="slack", account="team-1"),
    "agent:a:telegram:group:-100123": group_key("a", "telegram", "-100123"),
    "agent:a:telegram:group:-100123:topic:7": group_key("a", "telegram", "-100123", topic="7"),
    "agent:a:discord:channel:55": channel_key("a", "discord", "55"),
    "agent:a:discord:channel:55:thread:T": channel_key("a", "discord", "55", thread="T"),
    "agent:a:matrix:room:!x:example.org": room_key("a", "matrix", "!x:example.org"),
    "agent:a:matrix:room:!x:h.org:thread:$e": room_key("a", "matrix", "!x:h.org", thread="$e"),
    "agent:a:signal:group:aB/+cd==": group_key("a", "signal", "aB/+cd=="),
    "agent:main:explicit:demo1": explicit_key("main", "demo1"),
    "cron:nightly": cron_key("nightly"),
    "cron:nightly:run:6b1e": cron_key("nightly", run_session_id="6b1e"),
    "hook:orders": hook_key("orders"),
    "agent:a:tui-1f": tui_key("a", "1f"),
}


@pytest.mark.parametrize(("text", "key"), FORMS.items(), ids=str)
def test_every_form_is_built_and_parsed_back(text: str, key: SessionKey) -> None:
    assert str(key) == text
    assert SessionKey.parse(text) == key


@pytest.mark.parametrize(
    ("given_text", "spelled"),
    [
        ("Agent:MAIN:Main", "agent:main:main"),
        ("agent:main:benchA", "agent:main:bencha"),
        ("AGENT:A:Telegram:GROUP:AbC:Topic:Xy", "agent:a:telegram:group:AbC:topic:Xy"),
        ("agent:a:Slack:Team:Direct:U9", "agent:a:slack:team:direct:U9"),
        ("agent:a:Explicit:Demo", "agent:a:explicit:Demo"),
        ("CRON:Job", "cron:Job"),
        (" hook:H ", "hook:H"),
    ],
)
def test_words_are_lower_case_and_ids_stay(given_text: str, spelled: str) -> None:
    assert str(SessionKey.parse(given_text)) == spelled


@pytest.mark.parametrize(
    "text",
    [
        "agent:main:subagent:0c5d:subagent:9f",
        "agent:main:telegram:slash:12",
        "agent:main:cron:job:run:77",
        "agent:main:main:thread:171.2",
        "global",
    ],
)
def test_forms_that_only_openclaw_writes_are_kept(text: str) -> None:
    assert str(SessionKey.parse(text)) == text


@pytest.mark.skipif(not FIXTURE.exists(), reason="the recorded state is not here")
def test_every_key_that_openclaw_wrote_is_read() -> None:
    rows = json.loads((FIXTURE / "agents/main/sessions/sessions.json").read_bytes())
    assert rows
    assert [str(SessionKey.parse(key)) for key in rows] == list(rows)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "agent:",
        "agent:main",
        "agent:main:",
        "agent::main",
        "agent:../x:main",
        "agent:a b:main",
        "agent:" + "a" * 65 + ":main",
        "agent:main:..",
        "agent:main:direct",
        "agent:main:a/b",
        "agent:main:explicit:../../etc/passwd",
        "agent:main:explicit:a\\b",
        "agent:main:explicit:a\x00b",
        "agent:main:explicit:a\nb",
        "agent:main:explicit:\ud800",
        "agent:main:explicit:" + "x" * 300,
        "agent:main:telegram:group:" + "9" * 300,
        "agent:main:telegram:group:a/../b",
        "agent:main:tele/gram:group:1",
        "agent:main:telegram:group:",
        "agent:main:telegram:group:1:topic:",
        "agent:main:discord:channel:1:thread:..",
        "cron:",
        "cron:../x",
        "cron:job:run:",
        "hook:/etc",
        "hook:.",
    ],
    ids=ascii,
)
def test_what_cannot_be_an_address_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(InvalidSessionKey) as caught:
        SessionKey.parse(text)
    assert caught.value.remedy
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 250


def test_parts_that_would_read_as_another_key_are_refused() -> None:
    builds: list[Callable[[], SessionKey]] = [
        lambda: group_key("a", "telegram", "x:topic:1"),
        lambda: direct_key("a", "x", channel="direct"),
        lambda: cron_key("a:run:b"),
        lambda: SessionKey("direct", "x", "a", account="b"),
        lambda: SessionKey("other", "main", "a"),
        lambda: SessionKey("hook", "x", "a"),
    ]
    for build in builds:
        with pytest.raises(InvalidSessionKey):
            build()


ids = st.text(st.sampled_from("aB9:._-/+ é!@$"), min_size=1, max_size=12) | st.sampled_from(
    ["topic", "thread:", "x:topic:y", "run:1", "direct", "..", "a:run:b", "explicit"]
)
names = st.sampled_from(["main", "Work", "a1", "telegram", "x_y", "direct", "cron", "topic"])
maybe = st.none() | ids

built = st.one_of(
    st.builds(main_key, names, names | ids),
    st.builds(explicit_key, names, ids),
    st.builds(lambda a, p, c: direct_key(a, p, channel=c), names, ids, st.none() | names),
    st.builds(lambda a, p, c, n: direct_key(a, p, channel=c, account=n), names, ids, names, names),
    st.builds(lambda a, c, g, t: group_key(a, c, g, topic=t), names, names, ids, maybe),
    st.builds(lambda a, c, g, t: channel_key(a, c, g, thread=t), names, names, ids, maybe),
    st.builds(lambda a, c, g, t: room_key(a, c, g, thread=t), names, names, ids, maybe),
    st.builds(lambda j, r: cron_key(j, run_session_id=r), ids, maybe),
    st.builds(hook_key, ids),
)


@given(st.data())
def test_building_and_parsing_are_inverse(data: st.DataObject) -> None:
    try:
        key = data.draw(built)
    except InvalidSessionKey:
        assume(False)
    assert SessionKey.parse(str(key)) == key


@given(
    st.lists(
        st.sampled_from(["agent", "AGENT", "cron", "hook", "topic", "direct", "Group"]) | ids,
        max_size=7,
    ).map(":".join)
    | st.text(max_size=40)
)
@example("agent:a:İ")
@example("agent:a:b:topic:topic:c")
def test_any_text_is_refused_or_has_one_spelling(text: str) -> None:
    try:
        key = SessionKey.parse(text)
    except InvalidSessionKey:
        return
    assert SessionKey.parse(str(key)) == key
    assert str(SessionKey.parse(str(key))) == str(key)


def test_a_topic_or_thread_is_known_as_one() -> None:
    assert SessionKey.parse("agent:a:telegram:group:1:topic:2").is_thread
    assert SessionKey.parse("agent:a:main:thread:2").is_thread
    assert not SessionKey.parse("agent:a:telegram:group:1").is_thread


# -- file names


@pytest.mark.parametrize(
    ("session_id", "thread_id", "stem"),
    [
        ("demo1", None, "demo1"),
        (
            "9b3b72b6-61fa-47db-9ba8-b48c5ed32f33",
            "7",
            "9b3b72b6-61fa-47db-9ba8-b48c5ed32f33-topic-7",
        ),
        ("Under_score.v2", None, "Under_score.v2"),
        ("..", None, "%2E."),
        (".hidden", None, "%2Ehidden"),
        ("a/b", None, "a%2Fb"),
        ("a%2Fb", None, "a%252Fb"),
        ("x.trajectory", None, "x%2Etrajectory"),
        ("x-topic-1", None, "x%2Dtopic-1"),
        ("", None, "%"),
        ("é", None, "%C3%A9"),
    ],
)
def test_safe_ids_stand_as_they_are_and_others_are_encoded(
    session_id: str, thread_id: str | None, stem: str
) -> None:
    assert file_stem_for(session_id, thread_id) == stem


pieces = ["-topic-", "-topic", "topic-", "-", ".", "..", "/", "\\", "%", "%2D", "~", "a", "\n"]
pieces += ["K", "\u212a", ".trajectory", ".checkpoint.", str(uuid.UUID(int=7)), "x" * 70, "\ud800"]
nasty = st.text(max_size=200) | st.lists(st.sampled_from(pieces), max_size=6).map("".join)


@given(nasty, st.none() | nasty, nasty, st.none() | nasty)
def test_no_two_sessions_share_a_file(
    id_1: str, thread_1: str | None, id_2: str, thread_2: str | None
) -> None:
    same = (id_1, thread_1) == (id_2, thread_2)
    assert (file_stem_for(id_1, thread_1) == file_stem_for(id_2, thread_2)) is same


@given(nasty, nasty)
def test_the_border_between_session_and_thread_cannot_be_moved(first: str, second: str) -> None:
    whole = first + "-topic-" + second
    cuts = [n for n in range(len(whole)) if whole.startswith("-topic-", n)]
    pairs: list[tuple[str, str | None]] = [
        (whole, None),
        *((whole[:n], whole[n + 7 :]) for n in cuts),
    ]
    assert len({file_stem_for(*pair) for pair in pairs}) == len(pairs)


@given(nasty, st.none() | nasty)
def test_no_id_can_name_a_path_or_another_kind_of_file(
    session_id: str, thread_id: str | None
) -> None:
    stem = file_stem_for(session_id, thread_id)
    assert set(stem) <= set(string.ascii_letters + string.digits + "._-%~")
    assert not stem.startswith(".")
    assert 0 < len(stem) <= 128
    assert is_transcript_name(stem + ".jsonl")


def test_names_of_other_files_in_the_folder_are_no_transcripts() -> None:
    for name in (
        "sessions.json",
        ".hidden.jsonl",
        "a.trajectory.jsonl",
        "a.trajectory-path.json",
        "a.jsonl.reset.2026-01-01T00-00-00.000Z",
        "a.jsonl.lock",
        f"a.checkpoint.{uuid.UUID(int=7)}.jsonl",
        "a/b.jsonl",
        "a\\b.jsonl",
        "a\nb.jsonl",
    ):
        assert not is_transcript_name(name)
    assert is_transcript_name("boot-2026.jsonl")
    assert is_transcript_name("x-topic-2.jsonl")
