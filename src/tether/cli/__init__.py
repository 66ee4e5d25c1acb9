"""The command line: `tether`."""

from tether.cli.commands import app, main

__all__ = ["app", "main"]
