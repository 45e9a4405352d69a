"""Lines on standard error that stop nothing: warnings, and what a chat says about itself."""

from __future__ import annotations

import click

from strandline.cli.words import one_line


def warn(text: str) -> None:
    """Tell a person something, beside what the command prints."""
    click.echo(f"strandline: {one_line(text)}", err=True)


def note(text: str) -> None:
    """A dim line about what is going on."""
    click.echo(click.style(one_line(text), dim=True), err=True)
