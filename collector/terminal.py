"""What commands say to people, on stderr."""

from __future__ import annotations

from typing import NoReturn

import typer

from collector.exit_codes import FAILED


def tell(message: str) -> None:
    """Write a message."""
    typer.echo(message, err=True)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Write a message and end with an exit code."""
    tell(message)
    raise SystemExit(code)
