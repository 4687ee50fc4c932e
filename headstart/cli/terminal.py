"""What commands show while they work: bars, and plain lines where there is no terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from headstart import simulate
from headstart.cli.interrupts import Stop
from headstart.errors import UsageError
from headstart.metrics import LOSS

__all__ = ["bars", "console", "counting", "escape", "estimating", "say", "show_markdown", "watched_data", "working"]

console = Console()


def show_markdown(text: str) -> None:
    """Print Markdown as a terminal shows it; as it is, where there is none."""
    from rich.markdown import Markdown

    if console.is_terminal:
        console.print(Markdown(text))
    else:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def say(notes: Iterable[str]) -> None:
    """Print notes as a list."""
    for note in notes:
        console.print(f"[dim]•[/] {escape(note)}")


def bars(
    title: Callable[[str], str], stop: Stop, in_rounds: Callable[[str], bool] = lambda label: True
) -> Callable[[str], list[simulate.Callback]]:
    """A bar for every method, which also stops it once Ctrl-C was pressed; ``in_rounds`` says who trains in rounds."""
    return lambda label: [_Bar(title(label), stop, in_rounds(label))]


class _Bar(simulate.Callback):
    """Round, loss, the score of validation clients, rounds per second and time left."""

    def __init__(self, title: str, stop: Stop, in_rounds: bool = True):
        self.title, self.stop, self.in_rounds = escape(title), stop, in_rounds

    def on_start(self, run: Any, rounds: int) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[score]}"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )
        self.metric = next((metric for metric in run.problem.metrics if metric.name != LOSS.name), LOSS)
        self.bar = _progress(*columns)
        self.task = self.bar.add_task(
            self.title, total=rounds, completed=run.round, loss="…", score="", speed="compiling"
        )
        self.bar.start()

    def on_chunk(self, progress: simulate.Progress) -> str | None:
        self.bar.update(
            self.task,
            completed=progress.round,
            loss=_loss(progress.loss),
            speed=f"{progress.rounds_per_second:.1f} rounds/s",
        )
        if self.bar.disable and progress.round == progress.rounds:
            done = f"{progress.rounds} rounds, loss {_loss(progress.loss)}"
            console.print(f"{self.title}: {done if self.in_rounds else 'no rounds, every client trains by itself'}")
        return self._interrupted()

    def on_evaluation(self, evaluated: simulate.Evaluated) -> str | None:
        self.bar.update(self.task, score=self._score(evaluated))
        return self._interrupted()

    def _score(self, evaluated: simulate.Evaluated) -> str:
        """The mean of validation clients after they have adapted; of others where there are none."""
        steps = int(max(evaluated.table["steps"].to_pylist()))
        for group in ("validation", "new", "trained"):
            try:
                mean = evaluated.mean(self.metric.name, steps, group)
            except UsageError:
                continue  # nobody is of that group
            return f"{group} {self.metric.name} {self.metric.show(mean)}{self.metric.unit}"
        return ""

    def on_end(self, result: Any) -> None:
        self.bar.stop()

    def on_error(self, error: BaseException) -> None:
        self.bar.stop()

    def _interrupted(self) -> str | None:
        return "interrupted" if self.stop.requested else None


def _loss(value: float) -> str:
    """With four decimals, unless training diverges."""
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.3e}"


@contextmanager
def estimating() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for the constants that a plan rests on."""
    columns = (SpinnerColumn(), TextColumn("Estimating constants: {task.description}"), BarColumn())
    with _progress(*columns, transient=True) as bar:
        task = bar.add_task("compiling", total=None)
        if bar.disable:
            console.print("Estimating the constants of the losses.")
        yield lambda found, done, total: bar.update(task, description=f"{found} found", completed=done, total=total)


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for something of a known length."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with _progress(*columns, transient=True) as bar:
        task = bar.add_task(escape(title), total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner beside what is being done; it is given a function that says what is done next."""
    if not sys.stdout.isatty():
        yield lambda what: None
        return
    with console.status(escape(what)) as status:
        yield lambda what: status.update(escape(what))


@contextmanager
def watched_data() -> Iterator[None]:
    """A bar for whatever is read, taken in or predicted in this block; no word where there is no terminal."""
    from headstart.data.watching import watching

    what = SpinnerColumn(), TextColumn("{task.description}")
    with _progress(*what, BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), transient=True) as bar:
        if bar.disable:
            yield
            return
        tasks: dict[str, TaskID] = {}

        def told(what: str, share: float | None) -> None:
            if what not in tasks:
                for known in tasks.values():
                    bar.remove_task(known)
                tasks.clear()
                tasks[what] = bar.add_task(escape(what), total=None if share is None else 1.0)
            bar.update(tasks[what], completed=share or 0.0)

        with watching(told):
            yield


def _progress(*columns: Any, transient: bool = False) -> Progress:
    return Progress(*columns, console=console, transient=transient, disable=not sys.stdout.isatty())
