"""Texts that are shown to nobody: the value itself, or the name of an environment variable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, SecretStr, ValidationInfo

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _resolved(value: object, info: ValidationInfo) -> object:
    """A key as it stands, or the environment's. The text of an error shows the name only."""
    name = _variable_in(value)
    if name is None:
        return value
    environ: Mapping[str, str] = (info.context or {}).get("environ", {})
    if not environ.get(name):
        raise ValueError(f"the environment variable {name} is not set")
    return environ[name]


def _variable_in(value: object) -> str | None:
    """The NAME of ``"${NAME}"``, or of OpenClaw's ``{source: "env", id: "NAME"}``."""
    match value:
        case str():
            found = _VARIABLE.fullmatch(value.strip())
            return found[1] if found else None
        case {"source": "env", "id": str(name)}:
            return name
    return None


SecretText = Annotated[SecretStr, BeforeValidator(_resolved)]
"""A secret, or ``"${NAME}"`` for what that variable of the environment holds."""
