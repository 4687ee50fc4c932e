"""What a search for settings shows while it works."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from headstart.cli.interrupts import Stop
from headstart.cli.terminal import console, escape
from headstart.tuning import SearchStopped, Told

__all__ = ["searching"]


@contextmanager
def searching(title: Callable[[str], str], stop: Stop | None = None) -> Iterator[Callable[[Told], None]]:
    """A bar for every method that is searched, which also ends the search once Ctrl-C was pressed."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(
        *columns,
        TextColumn("{task.fields[doing]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not sys.stdout.isatty(),
    )
    method: str | None = None

    def told(told: Told) -> None:
        nonlocal method
        if stop is not None and stop.requested:
            raise SearchStopped
        if told.method != method:
            for task in bar.task_ids:
                bar.remove_task(task)
            method = told.method
            bar.add_task(f"Settings of {escape(title(method))}", total=1.0, doing=told.doing)
            bar.start()
            if bar.disable:
                console.print(f"Searching settings of {escape(title(method))}.")
        bar.update(bar.task_ids[-1], completed=told.done, doing=told.doing)
        if told.done >= 1.0 and told.doing == "done":
            bar.stop()

    try:
        yield told
    finally:
        bar.stop()
