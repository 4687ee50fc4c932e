"""The command line."""

from headstart.cli.interrupts import quiet_imports

with quiet_imports():
    from headstart.cli.main import main

__all__ = ["main"]
