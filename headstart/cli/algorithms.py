"""`headstart algorithms`: every method with its paper and its settings."""

__all__ = ["algorithms"]


def algorithms() -> None:
    """List every algorithm with its paper and its settings.

    From Python: `hs.report.algorithms_table()`, of what `hs.ALGORITHMS` holds.
    """
    from headstart.cli.terminal import console
    from headstart.report import algorithms_table

    console.print(algorithms_table())
