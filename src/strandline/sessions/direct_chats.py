"""Direct chats: how far apart `session.dmScope` keeps the people who write to an agent.

Under the scope ``main`` everybody shares one conversation; `warnings_of_sharing` says so as
soon as a second person is there. Source: spec 2, Session keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from strandline.sessions.keys import SessionKey, direct_key, main_key

DmScope = Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]


class Peer(NamedTuple):
    """One address from which a person writes."""

    channel: str
    account: str
    id: str


def key_of_direct_chat(
    agent_id: str,
    peer: Peer,
    *,
    scope: DmScope = "main",
    main: str = "main",
    identity_links: Mapping[str, Sequence[str]] | None = None,
) -> SessionKey:
    """The key of a direct chat.

    `identity_links` maps a person's one name to their peers, each as ``peer`` or
    ``channel:peer`` in any case.
    """
    if scope == "main":
        return main_key(agent_id, main)
    person = _linked_name(identity_links or {}, peer) or peer.id
    if scope == "per-peer":
        return direct_key(agent_id, person)
    if scope == "per-channel-peer":
        return direct_key(agent_id, person, channel=peer.channel)
    return direct_key(agent_id, person, channel=peer.channel, account=peer.account)


def warnings_of_sharing(
    agent_id: str,
    peers: Iterable[Peer],
    *,
    scope: DmScope = "main",
    main: str = "main",
    identity_links: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """One warning for each conversation that more than one person writes to."""
    links = identity_links or {}
    people: dict[SessionKey, set[str]] = {}
    for peer in peers:
        key = key_of_direct_chat(agent_id, peer, scope=scope, main=main, identity_links=links)
        person = _linked_name(links, peer) or f"{peer.channel}:{peer.id}"
        people.setdefault(key, set()).add(person)
    return [
        f"{len(names)} people share the conversation {key} and each other's words: "
        'set session.dmScope to "per-account-channel-peer", or link them in session.identityLinks '
        "if they are one person"
        for key, names in people.items()
        if len(names) > 1
    ]


def _linked_name(links: Mapping[str, Sequence[str]], peer: Peer) -> str | None:
    spellings = {peer.id.lower(), f"{peer.channel}:{peer.id}".lower()}
    for name, peers in links.items():
        if any(linked.strip().lower() in spellings for linked in peers):
            return name
    return None
