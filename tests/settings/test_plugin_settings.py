"""The settings of plugins: who fills a slot, what a plugin is told, what is secret."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import ConfigError
from strandline.settings import LoadedSettings, load

SECRET = "hunter2"


def loaded(folder: Path, name: str = "strandline.json", **plugins: Any) -> LoadedSettings:
    (folder / name).write_text(json.dumps({"plugins": plugins}), encoding="utf-8")
    return load(folder, {})


def test_without_a_word_the_built_in_engine_fills_the_slot(tmp_path: Path) -> None:
    plugins = loaded(tmp_path).settings.plugins
    assert plugins.slots.context_engine == "legacy"
    assert plugins.enabled
    assert plugins.load.paths == []


def test_a_plugin_is_told_what_it_was_given_and_nobody_else_is(tmp_path: Path) -> None:
    config = {"token": SECRET, "depth": [1, {"x": None}]}
    result = loaded(
        tmp_path,
        slots={"contextEngine": "mine"},
        entries={"mine": {"config": config}, "other": {"enabled": False}},
        load={"paths": ["~/mine"]},
    )
    plugins = result.settings.plugins
    assert plugins.entries["mine"].told == config
    assert plugins.entries["other"].told == {}
    assert [plugins.entries[each].enabled for each in ("mine", "other")] == [True, False]
    assert SECRET not in repr(result)
    assert SECRET not in str(result.settings.model_dump())


@pytest.mark.parametrize(
    ("plugins", "key", "said"),
    [
        ({"slots": {"contextEngine": ""}}, "slots.contextEngine", "expected text"),
        ({"slots": {"contextEngin": "x"}}, "slots.contextEngin", "unknown key: did you mean"),
        ({"entries": {"a": {"config": SECRET}}}, "entries.a.config", "expected an object"),
        ({"entries": {"a": {"enabled": SECRET}}}, "entries.a.enabled", "expected true or false"),
        ({"entries": {"@a/b": []}}, "entries['@a/b']", "expected an object"),
        ({"entries": [SECRET]}, "entries", "expected an object"),
        ({"load": {"paths": "x"}}, "load.paths", "expected a list"),
        ({"load": {"paths": ["x"] * 101}}, "load.paths", "expected at most 100 items"),
    ],
)
def test_what_plugins_cannot_be_is_refused_with_its_key(
    tmp_path: Path, plugins: dict[str, Any], key: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, **plugins)
    assert f": plugins.{key}: {said}" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_engine_in_javascript_is_settings_that_can_be_read(tmp_path: Path) -> None:
    """What it names is looked for elsewhere; what else OpenClaw says of plugins is a warning."""
    result = loaded(
        tmp_path,
        "openclaw.json",
        slots={"contextEngine": "lossless-claw", "memory": "none"},
        entries={"lossless-claw": {"enabled": True, "config": {"k": SECRET}, "hooks": {}}},
        installs={},
    )
    assert result.settings.plugins.slots.context_engine == "lossless-claw"
    file = tmp_path / "openclaw.json"
    assert {*result.warnings} == {
        f"{file}: plugins.{key} is not used by Strandline"
        for key in ("slots.memory", "entries.lossless-claw.hooks", "installs")
    }
