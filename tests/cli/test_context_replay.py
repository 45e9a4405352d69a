"""``context replay``: what it asks for, what it prints, and how it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from strandline.manager import SessionManager

MINUTE = 60_000
POLICIES = ["full", "plain", "cache-ttl", "cache-aware"]


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """Forty turns, a minute apart, with a model of the catalog."""
    (tmp_path / "talks").mkdir()
    return _talk(tmp_path / "talks", "talk", turns=40)


def _talk(folder: Path, name: str, *, turns: int, **by: Any) -> Path:
    by = by or {"provider": "anthropic", "model": "claude-haiku-4-5"}
    with SessionManager.create(session_dir=folder, session_id=name) as session:
        for n in range(turns):
            at_ms = 1_700_000_000_000 + n * MINUTE
            text = f"{n}: " + "lantern harbour " * 40
            session.append_message({"role": "user", "content": text, "timestamp": at_ms})
            content = [{"type": "text", "text": f"berth-{n} is free"}]
            answer = {"role": "assistant", "content": content, "timestamp": at_ms + 1000}
            session.append_message({**answer, "usage": {}, "stopReason": "stop", **by})
    return folder / f"{name}.jsonl"


def _outcomes(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["policy"]: each for each in report["policies"]}


def test_it_compares_four_policies_as_the_model_that_answered(run: Any, talk: Path) -> None:
    report = run("context", "replay", talk, "--rules", "support", "--json").json()
    assert report["model"] == "anthropic/claude-haiku-4-5"
    assert (report["contextWindow"], report["providerCache"]) == (200_000, "anthropic")
    assert report["prices"] == {"input": 1.0, "cacheWrite": 1.25, "cacheRead": 0.1, "output": 5.0}
    assert [each["policy"] for each in report["policies"]] == POLICIES
    found = _outcomes(report)
    assert {each["calls"] for each in found.values()} == {40}
    assert found["full"]["leftOut"] == found["full"]["cutsMoved"] == 0
    assert found["cache-aware"]["cutsMovedWarm"] < found["plain"]["cutsMovedWarm"]
    assert found["cache-aware"]["cost"]["total"] < found["plain"]["cost"]["total"]
    for each in found.values():
        parts = ("freshTokens", "cacheWriteTokens", "cacheReadTokens")
        assert sum(each[part] for part in parts) == each["inputTokens"]
        cost = each["cost"]
        total = cost["input"] + cost["output"] + cost["summaries"]
        assert cost["total"] == pytest.approx(total)


def test_the_json_always_has_each_file(run: Any, talk: Path) -> None:
    other = _talk(talk.parent, "other", turns=5)
    report = run("context", "replay", talk, other, "--json").json()
    assert [each["file"] for each in report["files"]] == [str(talk), str(other)]
    calls = [_outcomes(each)["full"]["calls"] for each in report["files"]]
    assert (calls, _outcomes(report)["full"]["calls"]) == ([40, 5], 45)


def test_people_get_a_table_with_bars(run: Any, talk: Path) -> None:
    told = run("context", "replay", talk, "--rules", "support")
    assert told.code == 0
    assert f"{talk}: 40 calls" in told.out
    rows = {line.split()[0]: line for line in told.out.splitlines() if line.strip()}
    assert set(POLICIES) <= set(rows)
    assert "█" in rows["full"]
    assert all(len(line) <= 120 for line in told.out.splitlines() if not line.startswith("/"))


def test_each_file_is_shown_before_all_of_them(run: Any, talk: Path) -> None:
    other = _talk(talk.parent, "other", turns=5)
    told = run("context", "replay", talk, other, "--each").out
    assert told.index("talk.jsonl: 40 calls") < told.index("other.jsonl: 5 calls")
    assert told.index("other.jsonl: 5 calls") < told.index("2 files: 45 calls")
    assert "other.jsonl" not in run("context", "replay", talk, other).out


def test_policies_are_names_or_files_each_once(run: Any, talk: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json5"
    mine.write_text("{context: {maxMessages: 6, cacheAware: {enabled: true}}}")
    words = ("--policy", "plain", "--policy", mine, "--policy", "plain", "--rules", mine)
    report = run("context", "replay", talk, *words, "--json").json()
    assert [each["policy"] for each in report["policies"]] == ["plain", str(mine)]
    found = _outcomes(report)
    assert found[str(mine)]["cost"]["total"] < found["plain"]["cost"]["total"]
    assert found["plain"]["leftOut"] == 79 - 6
    assert report["rules"] == str(mine)


def test_the_settings_of_one_agent_and_one_kind_of_chat_hold(
    run: Any, talk: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.json5"
    overrides = "channelOverrides: {group: {maxMessages: 4}}"
    mine.write_text(f"{{agents: {{helper: {{context: {{maxMessages: 8, {overrides}}}}}}}}}")
    words = ("--policy", mine, "--agent", "helper", "--json")
    for kind, kept in (("direct", 8), ("group", 4)):
        report = run("context", "replay", talk, *words, "--chat-type", kind).json()
        assert report["policies"][0]["leftOut"] == 79 - kept


def test_layer_summaries_by_a_model_cost_what_it_costs(
    run: Any, talk: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.json5"
    rules = "[{maxAge: '10m', keep: 'all'}, {maxAge: 'inf', keep: 'summary'}]"
    mine.write_text(
        f"{{context: {{ttl: {{rules: {rules}}}, compaction: {{model: 'gpt-4o-mini'}}}}}}"
    )
    [found] = run("context", "replay", talk, "--policy", mine, "--json").json()["policies"]
    made = found["layerSummaries"]
    assert made["made"] >= 1
    cost = (made["inputTokens"] * 0.15 + made["outputTokens"] * 0.6) / 1e6
    assert found["cost"]["summaries"] == pytest.approx(cost, abs=1e-8)


def test_window_prices_cache_and_system_prompt_can_be_given(run: Any, talk: Path) -> None:
    words = ("--window", 8000, "--price-input", 2, "--price-output", 8, "--system-tokens", 500)
    cache = ("--provider-cache", "openai", "--cache-lifetime", "10m")
    report = run("context", "replay", talk, *words, *cache, "--json").json()
    assert (report["contextWindow"], report["systemTokens"]) == (8000, 500)
    assert report["prices"] == {"input": 2.0, "cacheWrite": 2.0, "cacheRead": 0.2, "output": 8.0}
    assert (report["providerCache"], report["cacheLifetimeMs"]) == ("openai", 600_000)
    full = _outcomes(report)["full"]
    assert full["largestContextTokens"] <= 8000
    assert full["compactions"]["made"] > 0


def test_a_spacing_beyond_the_caches_life_leaves_nothing_cached(run: Any, talk: Path) -> None:
    far = run("context", "replay", talk, "--spacing", "6m", "--json").json()
    assert {each["cachedShare"] for each in far["policies"]} == {0.0}
    near = run("context", "replay", talk, "--spacing", "4m", "--json").json()
    assert _outcomes(near)["full"]["cachedShare"] > 0.9


def test_a_model_that_nobody_knows_is_replayed_as_the_default(run: Any, tmp_path: Path) -> None:
    path = _talk(tmp_path, "talk", turns=3, provider="elsewhere", model="unknown")
    report = run("context", "replay", path, "--json").json()
    assert report["model"] == "anthropic/claude-sonnet-5-5"


def test_nothing_is_changed_and_nothing_is_written_beside_it(run: Any, talk: Path) -> None:
    before = hashlib.sha256(talk.read_bytes()).hexdigest(), talk.stat().st_mtime_ns
    assert run("context", "replay", talk).code == 0
    assert (hashlib.sha256(talk.read_bytes()).hexdigest(), talk.stat().st_mtime_ns) == before
    assert [path.name for path in talk.parent.iterdir()] == ["talk.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "plian"), "'plain'"),
        (("--policy", "nowhere.json5"), "nowhere.json5"),
        (("--rules", "assistent"), "'assistant'"),
        (("--price-input", "nan"), "no price"),
        (("--price-input", "inf"), "no price"),
        (("--price-output", "-1"), "no price"),
        (("--window", "0"), "--window"),
        (("--window", "1600"), "window"),
        (("--system-tokens", "-5"), "--system-tokens"),
        (("--spacing", "soon"), "--spacing"),
        (("--cache-lifetime", "-1"), "--cache-lifetime"),
        (("--provider-cache", "acme"), "acme"),
        (("--model", "acme/none"), "acme/none"),
        (("--chat-type", "crowd"), "crowd"),
        (("--agent", "../x"), "'../x' cannot be an agent id"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    run: Any, talk: Path, words: tuple[str, ...], said: str
) -> None:
    refused = run("context", "replay", talk, *words)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert said in refused.err


def test_settings_that_are_wrong_are_refused_with_their_key(
    run: Any, talk: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.json5"
    bad.write_text("{context: {maxMessages: 'many'}}")
    refused = run("context", "replay", talk, "--policy", bad)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "context.maxMessages" in refused.err


def test_a_policy_that_leaves_no_room_is_named_with_the_file(
    run: Any, talk: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small.json5"
    small.write_text("{context: {maxTokens: 1}}")
    refused = run("context", "replay", talk, "--policy", "plain", "--policy", small)
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert refused.err.startswith(f"strandline: {talk} under {small}: the context takes ")
    assert refused.err.endswith("give a larger --window, or let the policy's limits be larger\n")


def test_files_without_a_call_are_said_and_if_there_is_no_other_refused(
    run: Any, talk: Path
) -> None:
    with SessionManager.create(session_dir=talk.parent, session_id="mute") as session:
        session.append_message({"role": "user", "content": "Anybody?", "timestamp": 1})
    mute = talk.parent / "mute.jsonl"
    both = run("context", "replay", talk, mute)
    assert both.code == 0
    assert f"{mute}: no model answered in it" in both.err
    alone = run("context", "replay", mute)
    assert (alone.code, alone.err.count("\n")) == (2, 1)
    assert "no call to replay" in alone.err
    missing = run("context", "replay", talk.parent / "nowhere.jsonl")
    assert (missing.code, missing.err.count("\n")) == (2, 1)


def test_a_picture_is_an_svg_for_light_and_dark_and_the_same_each_time(
    run: Any, talk: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    for name in ("a.svg", "b.svg"):
        assert run("context", "replay", talk, "--picture", tmp_path / name).code == 0
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert picture == (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert (tmp_path / "a.svg").stat().st_mode & 0o777 == 0o600
    assert picture.startswith("<?xml")
    assert "prefers-color-scheme: dark" in picture
    assert all(f">{name}<" in picture for name in POLICIES)
    again = run("context", "replay", talk, "--picture", tmp_path / "a.svg")
    assert (again.code, again.err.count("\n")) == (1, 1)


def test_json_does_not_depend_on_what_is_shown_to_people(run: Any, talk: Path) -> None:
    plain, each = (run("context", "replay", talk, *w, "--json").out for w in ((), ("--each",)))
    assert plain == each
    assert json.loads(plain)["rules"] == "assistant"
