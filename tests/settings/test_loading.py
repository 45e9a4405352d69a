"""Loading settings: what is understood, what is refused and where the message points."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import ConfigError
from strandline.settings import LoadedSettings, Settings, load
from strandline.settings.units import DURATION_WORDS

FIXTURE = Path(__file__).parents[2] / "../shared/fixtures/openclaw-state"
SECRET = "sk-ant-very-secret"

TOP_KEYS = "models, agents, session, tokenCounter, memory, gateway, plugins"
COMPACTION = "agents.defaults.compaction"
FIX = "correct it"
MODEL_0 = "models.providers.p.models[0]"
AGENT_ID_RULE = "use 1 to 64 letters, digits, '-' and '_', a letter or digit first"


def loaded(
    folder: Path, text: str, environ: Mapping[str, str] | None = None, name: str = "strandline.json"
) -> LoadedSettings:
    (folder / name).write_text(text, encoding="utf-8")
    return load(folder, environ or {})


def refused(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> str:
    """The message of the error, without the path of the file."""
    path = folder / "strandline.json"
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, environ)
    assert caught.value.remedy
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    message = str(caught.value)
    assert message.startswith(f"{path}")
    assert "\n" not in message
    return message.removeprefix(f"{path}:")


# -- what is understood


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    result = load(tmp_path / "missing", {})
    assert result == LoadedSettings(Settings(), None, ())
    agent = result.settings.agent("main")
    assert agent.compaction.reserve_tokens == 16_384
    assert agent.compaction.keep_recent_tokens == 20_000
    assert agent.compaction.reserve_tokens_floor == 20_000
    assert (agent.compaction.enabled, agent.compaction.mode) == (True, "auto")
    assert agent.model.primary is None
    assert result.settings.session.main_key == "main"
    assert result.settings.session.write_lock.acquire_timeout_ms == 60_000


def test_everything_of_the_first_release_is_understood(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """// JSON5
        {
          models: { providers: { "my.own": {
            baseUrl: 'http://127.0.0.1:1/v1', apiKey: "${MY_KEY}", api: "anthropic-messages",
            models: [ { id: "m", name: "M", contextWindow: 60000, maxTokens: 2000,
              input: ["text", "image"],
              cost: { input: 1, output: 2.5, cacheRead: .1, cacheWrite: 0 } } ],
          } } },
          agents: { defaults: { model: { primary: "my.own/m" }, workspace: "~/w",
            compaction: { enabled: true, mode: "error", reserveTokens: 1, keepRecentTokens: 2,
              reserveTokensFloor: 0, model: "my.own/m" } } },
          session: { mainKey: "home", writeLock: { acquireTimeoutMs: "5s" } },
          tokenCounter: "heuristic",
          gateway: { mode: "local" },
        }""",
        {"MY_KEY": SECRET},
    ).settings
    provider = settings.models.providers["my.own"]
    assert provider.api_key is not None
    assert provider.api_key.get_secret_value() == SECRET
    assert provider.models[0].context_window == 60_000
    assert provider.models[0].cost.cache_read == 0.1
    assert settings.agent("any").compaction.reserve_tokens_floor == 0
    assert settings.agent("any").compaction.mode == "error"
    assert settings.session.write_lock.acquire_timeout_ms == 5_000
    assert settings.token_counter == "heuristic"
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings.model_dump())


@pytest.mark.skipif(not FIXTURE.exists(), reason="the recorded state is not here")
def test_the_configuration_that_openclaw_ran_with_is_understood() -> None:
    result = load(FIXTURE, {})
    assert result.warnings == ()
    assert result.path == FIXTURE / "openclaw.json"
    assert result.settings.agent("main").model.primary == "fake/fake-1"
    assert result.settings.models.providers["fake"].models[0].cost.output == 2


def test_an_agent_overrides_the_defaults_key_by_key(tmp_path: Path) -> None:
    text = """{ agents: {
        defaults: { model: "a/b", workspace: "w", compaction: { reserveTokens: 7, mode: "error" } },
        %s } }"""
    for agents in (
        'Work: { model: "c/d", compaction: { mode: "auto" } }',
        'list: [ { id: "work", model: { primary: "c/d" }, compaction: { mode: "safeguard" } } ]',
    ):
        settings = loaded(tmp_path, text % agents).settings
        work = settings.agent("work")
        assert work.model.primary == "c/d"
        assert work.workspace == "w"
        assert (work.compaction.mode, work.compaction.reserve_tokens) == ("auto", 7)
        assert settings.agent("other").model.primary == "a/b"
        assert list(settings.agents.by_id()) == ["work"]


@pytest.mark.parametrize(
    ("compaction", "mode"),
    [
        ("{}", "auto"),
        ('{ mode: "default" }', "auto"),
        ('{ mode: "safeguard" }', "auto"),
        ('{ mode: "off" }', "off"),
        ('{ mode: "error", enabled: false }', "off"),
    ],
)
def test_the_modes_of_others_map_onto_ours(tmp_path: Path, compaction: str, mode: str) -> None:
    text = f"{{ agents: {{ defaults: {{ compaction: {compaction} }} }} }}"
    told = loaded(tmp_path, text).settings.agent("main").compaction
    assert (told.mode if told.enabled else "off") == mode


def test_settings_cannot_be_changed_by_accident(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().token_counter = "heuristic"


def test_a_byte_order_mark_is_no_syntax_error(tmp_path: Path) -> None:
    assert loaded(tmp_path, "\ufeff{}").settings == Settings()


# -- what is refused, and where


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{\n  agents: {\n    defaults: { modle: "a/b" },\n  },\n}',
            "3:17: agents.defaults.modle: unknown key: did you mean 'model'?",
        ),
        (
            "{ agents: { x: { compaction: { reservetokens: 5 } } } }",
            "1:32: agents.x.compaction.reservetokens: unknown key: did you mean 'reserveTokens'?",
        ),
        ("{ sesion: {} }", "1:3: sesion: unknown key: did you mean 'session'?"),
        (
            "{ base_url: 1 }",
            f"1:3: base_url: unknown key: known here: {TOP_KEYS}",
        ),
        ("{ session: { mainKey: 5 } }", "1:23: session.mainKey: expected text: correct it"),
        ("{ session: [] }", "1:12: session: expected an object: correct it"),
        (
            "{ agents: { defaults: { compaction: { mode: 'sometimes' } } } }",
            "1:45: agents.defaults.compaction.mode: expected 'auto', 'off' or 'error': correct it",
        ),
        (
            "{ agents: { defaults: { compaction: { reserveTokens: '5' } } } }",
            "1:54: agents.defaults.compaction.reserveTokens: expected a whole number: correct it",
        ),
        (
            "{ agents: { defaults: { compaction: { reserveTokens: 1.5 } } } }",
            "1:54: agents.defaults.compaction.reserveTokens: expected a whole number: correct it",
        ),
        (
            "{ agents: { defaults: { compaction: { reserveTokens: -5 } } } }",
            f"1:54: {COMPACTION}.reserveTokens: expected a number of at least 0: correct it",
        ),
        (
            "{ agents: { defaults: { compaction: { enabled: 1 } } } }",
            "1:48: agents.defaults.compaction.enabled: expected true or false: correct it",
        ),
        (
            "{ agents: { defaults: { model: 'just-a-name' } } }",
            "1:32: agents.defaults.model.primary: expected provider/model: correct it",
        ),
        (
            "{ session: { writeLock: { acquireTimeoutMs: 'soon' } } }",
            f"1:45: session.writeLock.acquireTimeoutMs: expected {DURATION_WORDS}: correct it",
        ),
        (
            "{ agents: { list: [ { id: 'a' }, { model: 'a/b' } ] } }",
            "1:34: agents.list[1].id: missing: add it",
        ),
        (
            "{ models: { providers: { 'a b': { baseUrl: '' } } } }",
            "1:44: models.providers['a b'].baseUrl: expected text that is not empty: correct it",
        ),
        (
            "{ models: { providers: { p: { baseUrl: 'u', models: [ { maxTokens: 0, id: 'm' }] }}}}",
            f"1:68: {MODEL_0}.maxTokens: expected a number above 0 (and 1 more problem): " + FIX,
        ),
        (
            "{ agents: { '../x': {} } }",
            f"1:11: agents: '../x' cannot be an agent id: {AGENT_ID_RULE}: correct it",
        ),
        (
            "{ agents: { default: {} } }",
            "1:11: agents: 'default' would be an agent; 'defaults' is for all of them: correct it",
        ),
        (
            "{ gateway: { mode: 1 }, tokenCounter: 1, zzz: 1 }",
            "1:20: gateway.mode: expected 'local' or 'remote' (and 2 more problems): correct it",
        ),
    ],
)
def test_a_wrong_setting_is_shown_with_its_place_and_what_was_expected(
    tmp_path: Path, text: str, message: str
) -> None:
    assert refused(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{ a: 1,\n  b: "é😀", c: }', "2:15: not JSON5: a value or key is expected"),
        ('{ "a": 1 "b": 2 }', "1:10: not JSON5: a comma or bracket is missing"),
        ("{} x", "1:4: not JSON5: there is more text after the end"),
        ("", "1:1: not JSON5: the file is empty: write {} into it"),
        ("{ a: 1e999 }", "1:6: not JSON5: the number here is too large, or none: correct it"),
        ("[]", "1:1: expected an object"),
        ("[" * 5000, "1:33: not JSON5: it is nested too deep"),
        (f"{{ apiKey: {SECRET} }}", "1:11: not JSON5: a value or key is expected"),
    ],
)
def test_a_syntax_error_is_shown_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    assert refused(tmp_path, text).startswith(message)


def test_what_is_never_closed_is_shown_where_it_starts(tmp_path: Path) -> None:
    assert refused(tmp_path, f'{{\n a: "{SECRET}').startswith(
        "2:5: not JSON5: the string that starts"
    )
    assert "the object that starts" in refused(tmp_path, "{ a: 1")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "strandline.json").write_bytes(b'{\n a: "\xff" }')
    with pytest.raises(ConfigError, match=r"strandline\.json:2: not UTF-8"):
        load(tmp_path, {})
    (tmp_path / "strandline.json").unlink()
    (tmp_path / "strandline.json").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {})
    (tmp_path / "strandline.json").rmdir()
    os.mkfifo(tmp_path / "strandline.json")
    with pytest.raises(ConfigError, match="not a regular file"):
        load(tmp_path, {})


# -- secrets


def provider(key: str) -> str:
    return f"{{ models: {{ providers: {{ p: {{ baseUrl: 'u', apiKey: {key} }} }} }} }}"


def test_a_variable_that_is_not_set_is_named_with_its_key(tmp_path: Path) -> None:
    for environ in ({}, {"MY_KEY": ""}):
        assert refused(tmp_path, provider('"${MY_KEY}"'), environ) == (
            "1:53: models.providers.p.apiKey: the environment variable MY_KEY is not set: "
            "correct it"
        )


def test_openclaws_way_to_name_a_variable_is_understood(tmp_path: Path) -> None:
    text = provider('{ source: "env", provider: "default", id: "MY_KEY" }')
    settings = loaded(tmp_path, text, {"MY_KEY": SECRET}).settings
    key = settings.models.providers["p"].api_key
    assert key is not None
    assert key.get_secret_value() == SECRET


@pytest.mark.parametrize(
    "text",
    [
        provider(f"['{SECRET}']"),
        provider(f"{{ value: '{SECRET}' }}"),
        f"{{ models: {{ providers: {{ p: '{SECRET}' }} }} }}",
        f"{{ session: {{ writeLock: {{ acquireTimeoutMs: '{SECRET}' }} }} }}",
        f"{{ agents: {{ defaults: {{ compaction: {{ mode: '{SECRET}' }} }} }} }}",
        f"{{ agents: {{ defaults: {{ model: '{SECRET}' }} }} }}",
        f"{{ unknown: '{SECRET}' }}",
        f"{{ tokenCounter: '{SECRET}', }} }}",
    ],
)
def test_no_error_shows_a_value_because_it_may_be_a_secret(tmp_path: Path, text: str) -> None:
    """`refused` looks for the secret in the message and the traceback."""
    assert refused(tmp_path, text)


# -- OpenClaw's file


def test_keys_that_only_openclaw_knows_are_warnings(tmp_path: Path) -> None:
    result = loaded(
        tmp_path,
        """{ channels: { telegram: { botToken: "x" } },
          agents: { defaults: { model: { primary: "p/m", fallbacks: [] }, maxConcurrent: 4 } },
          models: { mode: "merge", providers: { p: { baseUrl: "u",
            models: [ { id: "m", reasoning: false } ] } } } }""",
        name="openclaw.json",
    )
    path = tmp_path / "openclaw.json"
    assert set(result.warnings) == {
        f"{path}: channels is not used by Strandline",
        f"{path}: agents.defaults.maxConcurrent is not used by Strandline",
        f"{path}: models.mode is not used by Strandline",
        f"{path}: models.providers.p.models[0].contextWindow is missing; taken as 200000",
        f"{path}: models.providers.p.models[0].maxTokens is missing; taken as 8192",
    }
    assert result.settings.agent("main").model.primary == "p/m"
    assert result.settings.models.providers["p"].models[0].context_window == 200_000


def test_a_wrong_type_is_an_error_in_openclaws_file_too(tmp_path: Path) -> None:
    text = "{ channels: {},\n session: { mainKey: 5 } }"
    with pytest.raises(ConfigError, match=r"openclaw\.json:2:22: session\.mainKey: expected text"):
        loaded(tmp_path, text, name="openclaw.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["agents", "defaults", "list", "models", "providers", "id", "model"])
            | st.sampled_from(["compaction", "apiKey", "session", "contextWindow", "x", "a.b"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(value=json_values, name=st.sampled_from(["strandline.json", "openclaw.json"]))
def test_any_json_is_settings_or_a_configuration_error(
    tmp_path_factory: pytest.TempPathFactory, value: object, name: str
) -> None:
    folder = tmp_path_factory.mktemp("state")
    try:
        result = loaded(folder, json.dumps(value), name=name)
    except ConfigError as error:
        assert error.remedy  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(result.settings, Settings)
