"""The command line."""

from headstart.cli.main import main

__all__ = ["main"]
