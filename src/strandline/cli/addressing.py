"""Which agent a command is about, from ``--agent`` and ``--session-key``."""

from __future__ import annotations

import click

DEFAULT_AGENT = "main"


def agent_of(agent_id: str | None, session_key: str | None) -> str:
    """The agent that was named, else the one in the key, else ``main``.

    Raises `InvalidSessionKey`, and click's `UsageError` where the two name different ones.
    """
    from strandline.sessions.keys import SessionKey  # noqa: PLC0415 - only where a key is given

    of_key = SessionKey.parse(session_key).agent_id if session_key else None
    if agent_id and of_key and agent_id.lower() != of_key:
        raise click.UsageError(f"--session-key {session_key} is of agent {of_key}, not {agent_id}")
    return agent_id or of_key or DEFAULT_AGENT
