"""The state directory: option, environment, home, in this order."""

from __future__ import annotations

from pathlib import Path

from strandline.settings import resolve_state_dir, settings_file


def test_the_option_wins_over_the_variable_and_the_variable_over_home() -> None:
    environ = {"STRANDLINE_STATE_DIR": "/var/state", "HOME": "/home/ann"}
    assert resolve_state_dir("/opt/state", environ) == Path("/opt/state")
    assert resolve_state_dir(None, environ) == Path("/var/state")
    assert resolve_state_dir(None, {"HOME": "/home/ann"}) == Path("/home/ann/.strandline")


def test_empty_means_absent_and_a_tilde_is_home() -> None:
    environ = {"STRANDLINE_STATE_DIR": "", "HOME": "/home/ann"}
    assert resolve_state_dir("", environ) == Path("/home/ann/.strandline")
    assert resolve_state_dir("~/x", environ) == Path("/home/ann/x")
    assert resolve_state_dir("~", environ) == Path("/home/ann")


def test_a_relative_directory_is_made_absolute(monkeypatch: object, tmp_path: Path) -> None:
    assert resolve_state_dir("state", {}) == Path.cwd() / "state"


def test_our_file_wins_over_openclaws(tmp_path: Path) -> None:
    assert settings_file(tmp_path) is None
    (tmp_path / "openclaw.json").write_text("{}", encoding="utf-8")
    assert settings_file(tmp_path) == tmp_path / "openclaw.json"
    (tmp_path / "strandline.json").write_text("{}", encoding="utf-8")
    assert settings_file(tmp_path) == tmp_path / "strandline.json"
