"""``context replay``: what conversations would have cost under other rules."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.new_file import check_is_free, write_new
from strandline.cli.notices import note, warn
from strandline.cli.output import json_option, print_json, print_lines, slow_notice
from strandline.cli.replay_picture import check_can_draw, picture_of
from strandline.cli.replay_report import Report, report_json, report_lines
from strandline.cli.replay_setup import Question, Setup, prepared
from strandline.cli.transcript_file import opened
from strandline.errors import ContextOverflow
from strandline.replay.policies import EXAMPLES, POLICY_NAMES
from strandline.replay.pricing import CACHE_NAMES
from strandline.replay.recording import Recording, recorded
from strandline.replay.walk import Replays
from strandline.sessions.keys import check_agent_id
from strandline.settings import duration_ms

if TYPE_CHECKING:
    from strandline.wiring.state import State

DEFAULT_SPACING_MS = 90_000
MOST_DOLLARS = 1e9


class _Duration(click.ParamType[int]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        del ctx
        return duration_ms(value, param.opts[-1] if param else "the duration")


class _Dollars(click.ParamType[float]):
    """Dollars for a million tokens; "nan" and "inf" are numbers to Python, and no prices."""

    name = "price"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            price = float(value)
        except ValueError:
            price = math.nan
        if not 0 <= price <= MOST_DOLLARS:
            self.fail(f"{value!r} is no price: expected dollars for a million tokens", param, ctx)
        return price


@click.command()
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, readable=False),
)
@click.option(
    "policies",
    "--policy",
    metavar="NAME|FILE",
    multiple=True,
    help=f"{', '.join(POLICY_NAMES)}, or a settings file; may be given again.  [default: those]",
)
@click.option(
    "--rules",
    metavar="NAME|FILE",
    default="assistant",
    show_default=True,
    help=f"The rules of plain, cache-ttl and cache-aware: {', '.join(EXAMPLES)}, or a settings "
    "file.",
)
@click.option("--agent", "agent_id", default="main", help="The agent whose settings hold.")
@click.option(
    "--chat-type",
    type=click.Choice(["direct", "group", "channel", "room", "thread"]),
    default="direct",
    help="The kind of chat whose settings hold.",
)
@click.option(
    "--model", "model_ref", metavar="PROVIDER/MODEL", help="Whose prices and window hold."
)
@click.option("--window", type=click.IntRange(256, 10**9), help="The window in tokens, if not its.")
@click.option("--price-input", type=_Dollars(), help="Dollars for a million tokens of input.")
@click.option("--price-output", type=_Dollars(), help="Dollars for a million tokens of output.")
@click.option(
    "cache", "--provider-cache", type=click.Choice(CACHE_NAMES), help="The cache, if not its."
)
@click.option("cache_lifetime_ms", "--cache-lifetime", type=_Duration(), help="If not the usual.")
@click.option(
    "--system-tokens",
    type=click.IntRange(0, 10**9),
    default=1500,
    show_default=True,
    help="What the system prompt and the tools take.",
)
@click.option(
    "spacing_ms", "--spacing", type=_Duration(), help="Take calls as so far apart, not as recorded."
)
@click.option("--each", is_flag=True, help="Show each file too, not only all of them.")
@click.option(
    "--picture",
    metavar="FILE.svg",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw it into a new file.",
)
@json_option
@click.pass_obj
def replay(
    state_dir: Path,
    /,
    *,
    files: tuple[Path, ...],
    spacing_ms: int | None,
    each: bool,
    picture: Path | None,
    as_json: bool,
    **question: Any,
) -> None:
    """What the calls recorded in FILEs would have cost under policies.

    Each answer is one call, made when it was given; everything before it on its path had been
    said. Under each policy its context is worked out, and what the provider's cache would
    have had of it. No model is asked, and nothing is changed.
    """
    from strandline.wiring import open_state  # noqa: PLC0415 - what it needs is heavy

    if picture is not None:
        check_can_draw()
        check_is_free(picture)
    check_agent_id(question["agent_id"])
    state = open_state(state_dir, os.environ, warn=warn)
    recordings = [_recording(file, state_dir, spacing_ms) for file in files]
    setup = prepared(Question(**question), recordings, state)
    for file, recording in zip(files, recordings, strict=True):
        if not recording.calls:
            note(f"{file}: no model answered in it")
    report = _replayed(files, recordings, setup, state)
    if picture is not None:
        _draw(picture, report)
    if as_json:
        print_json(report_json(report))
    else:
        print_lines(report_lines(report, each=each))


def _recording(file: Path, state_dir: Path, spacing_ms: int | None) -> Recording:
    with opened(file, state_dir) as session:
        return recorded(session, spacing_ms, DEFAULT_SPACING_MS)


def _replayed(
    files: Sequence[Path], recordings: Sequence[Recording], setup: Setup, state: State
) -> Report:
    """Every file under every policy."""
    from strandline.wiring.replaying import message_tokens  # noqa: PLC0415 - heavy

    outcomes = []
    for file, recording in zip(files, recordings, strict=True):
        replays = Replays(recording, setup.scene, message_tokens(state.settings.token_counter))
        of_file = []
        for policy in setup.policies:
            slow_notice.expect(f"replaying {file} under {policy.name}")
            try:
                of_file.append(replays.under(policy))
            except ContextOverflow as error:
                raise ContextOverflow(
                    f"{file} under {policy.name}: {error.what}",
                    remedy="give a larger --window, or let the policy's limits be larger",
                ) from None
        outcomes.append(of_file)
    slow_notice.done()
    return Report(setup, [str(file) for file in files], outcomes)


def _draw(path: Path, report: Report) -> None:
    write_new(path, [picture_of(report)])
    note(f"{path}: the picture")
