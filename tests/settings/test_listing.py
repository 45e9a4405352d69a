"""The listing of keys, and what `import strandline.settings` costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import strandline.settings
from strandline.settings import Settings, setting_keys


def test_every_key_has_a_type_a_default_and_one_line() -> None:
    keys = {each.key: each for each in setting_keys()}
    assert len(keys) == len(setting_keys())
    for each in keys.values():
        assert each.type
        assert each.default
        assert each.doc.endswith(".")
        assert "\n" not in each.doc
    assert keys["session.writeLock.acquireTimeoutMs"].type == "duration"
    assert keys["agents.defaults.compaction.mode"].type == "one of auto, off, error"
    assert keys["agents.defaults.compaction.reserveTokens"].default == "16384"
    assert keys["agents.defaults.model.primary"].type == "provider/model"
    assert keys["agents.defaults.workspace"].type == "text"
    assert keys["models.providers.<id>.apiKey"].type == "secret text"
    assert keys["models.providers.<id>.models[].contextWindow"].default == "required"
    assert "agents.<id>" in keys
    assert "agents.list[]" in keys


def test_importing_settings_imports_nothing_heavy() -> None:
    code = (
        "import sys, strandline.settings\n"
        "print([m for m in ('pydantic', 'pyjson5', 'json5', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_loading_a_correct_file_does_not_import_the_slow_parser() -> None:
    code = (
        "import sys, pathlib, strandline.settings as s\n"
        "s.load(pathlib.Path('/nowhere'), {})\n"
        "print('json5' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_public_name_is_there() -> None:
    for name in strandline.settings.__all__:
        assert getattr(strandline.settings, name)
    assert strandline.settings.Settings is Settings
    with pytest.raises(AttributeError, match="nothing"):
        strandline.settings.nothing  # noqa: B018 - the point of the test
