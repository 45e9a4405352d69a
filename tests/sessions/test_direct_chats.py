"""Direct chats: who shares a conversation with whom, and that it is said."""

from __future__ import annotations

import pytest

from strandline.sessions.direct_chats import (
    DmScope,
    Peer,
    key_of_direct_chat,
    warnings_of_sharing,
)

ANN = Peer("telegram", "bot", "42")
BOB = Peer("telegram", "bot", "43")
ANN_AT_WORK = Peer("slack", "team", "u9")
LINKS = {"ann": ["telegram:42", "U9"]}


@pytest.mark.parametrize(
    ("scope", "key"),
    [
        ("main", "agent:a:home"),
        ("per-peer", "agent:a:direct:42"),
        ("per-channel-peer", "agent:a:telegram:direct:42"),
        ("per-account-channel-peer", "agent:a:telegram:bot:direct:42"),
    ],
)
def test_the_scope_decides_how_far_direct_chats_are_apart(scope: DmScope, key: str) -> None:
    assert str(key_of_direct_chat("a", ANN, scope=scope, main="home")) == key


def test_one_person_with_several_peers_has_one_conversation() -> None:
    for peer in (ANN, ANN_AT_WORK):
        key = key_of_direct_chat("a", peer, scope="per-peer", identity_links=LINKS)
        assert str(key) == "agent:a:direct:ann"
    elsewhere = Peer("slack", "team", "42")
    key = key_of_direct_chat("a", elsewhere, scope="per-peer", identity_links=LINKS)
    assert str(key) == "agent:a:direct:42"


def test_people_who_share_a_conversation_are_warned_of() -> None:
    """M4: under the scope main, what one person writes is there for the other."""
    (warning,) = warnings_of_sharing("a", [ANN, BOB, ANN])
    assert warning.startswith("2 people share the conversation agent:a:main")
    assert "session.dmScope" in warning
    assert warnings_of_sharing("a", [ANN, BOB], scope="per-peer") == []
    assert warnings_of_sharing("a", [ANN, ANN]) == []


def test_peers_of_one_person_share_without_a_warning() -> None:
    assert warnings_of_sharing("a", [ANN, ANN_AT_WORK], identity_links=LINKS) == []
    assert len(warnings_of_sharing("a", [ANN, ANN_AT_WORK])) == 1


def test_the_same_peer_number_on_two_channels_is_two_people() -> None:
    elsewhere = Peer("slack", "team", "42")
    assert len(warnings_of_sharing("a", [ANN, elsewhere], scope="per-peer")) == 1
    assert warnings_of_sharing("a", [ANN, elsewhere], scope="per-channel-peer") == []
