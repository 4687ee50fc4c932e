"""`headstart data`: what data sets there are, what they hold, and how they are dealt out."""

import os
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headstart.cli.experiment import read_experiment, with_settings
from headstart.cli.own_data import DataOptions
from headstart.config import plan
from headstart.data import DATASETS, Federation, sources
from headstart.data.partitions import Partition, describe
from headstart.data.tables import memory_needed, prepare
from headstart.errors import UsageError
from headstart.report import partition_table, plot_partition, plot_samples, samples_table

__all__ = ["catalogue", "prepare_data", "show_data", "show_partition"]


def catalogue() -> Table:
    """The named data sets, and where their files are."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("name", "what it is", "download", "files"):
        table.add_column(heading, no_wrap=heading == "name")
    table.add_row("mnist-small", "6,000 handwritten digits, a part of MNIST.", "", "in the package")
    table.add_row("sine", "Sine waves of many amplitudes and phases.", "", "generated")
    for name, source in sources.SOURCES.items():
        found = sources.locate(name)
        where = "not here" if found is None else f"{found.folder} ({found.origin})"
        size = f"{source.size / 1e6:,.0f} MB" if source.downloads else "by hand"
        table.add_row(name.replace("_", "-"), source.description, size, escape(where))
    table.add_row("own", "Your own: a table, a folder of client files, a tree of images.", "", "--data PATH")
    return table


def show_data(data: str, settings: list[str], picture: Path | None, console: Console) -> None:
    """Print what a data set holds, and draw some of it."""
    if Path(data).exists() and not data.endswith(".toml"):
        console.print(f"Reading {escape(data)} takes up to {memory_needed(data) / 1e6:,.0f} MB of memory.")
    samples = _dealt(data, settings).samples
    console.print(samples_table(samples))
    if picture is not None:
        _draw(plot_samples, samples, picture, console)


def show_partition(data: str, settings: list[str], picture: Path | None, console: Console) -> None:
    """Print how a data set is dealt out, and draw it."""
    summary = describe(_dealt(data, settings))
    console.print(partition_table(summary))
    if picture is not None:
        _draw(plot_partition, summary, picture, console)


def prepare_data(
    data: str,
    out: Path,
    client: str | None,
    label: str | None,
    features: str | None,
    group: str | None,
    order: str | None,
    console: Console,
) -> None:
    """Fetch a named data set into a folder, or turn a table into arrays on disk."""
    source = data.replace("-", "_")
    if source in sources.SOURCES and not Path(data).exists():
        out.mkdir(parents=True, exist_ok=True)
        # The cache is where downloads go: for this call it is the folder that was asked for.
        os.environ["HEADSTART_CACHE"] = str(out)
        samples = sources.SOURCES[source].load()
        found = sources.locate(source)
        console.print(samples_table(samples))
        console.print(f"Files: {escape(str(found.folder if found else out))}")
        return
    if label is None:
        raise UsageError("Which column is to be predicted?", "Name it with --label.")
    names = None if features is None else [name.strip() for name in features.split(",")]
    with console.status(f"Reading {escape(data)}"):
        made = prepare(data, out, label=label, client=client, features=names, group=group, order=order)
    console.print(f"Prepared: {escape(str(made))}\nTrain on it with: headstart run --data {escape(str(made))}")


def _dealt(data: str, settings: list[str]) -> Partition:
    """The partition of a named data set, of an experiment's data, or of what lies at a path."""
    if data.endswith(".toml"):
        tables = read_experiment(Path(data))
        section = dict(tables.get("data", {}))
    else:
        # Columns of one's own data are said with --set.
        section = DataOptions(data).section()
    section = with_settings(section, settings)
    name = section.pop("name", None)
    if name not in DATASETS:
        raise UsageError(f"{data}: data.name = {name!r} is no data set.", f"Choose one of: {', '.join(DATASETS)}.")
    federation: Federation = plan(DATASETS[name], section, "data").build()
    if federation.partition is None:
        raise UsageError(
            f"The clients of {name} draw their samples from distributions; nothing is dealt out.",
            "Look at another data set.",
        )
    return federation.partition


def _draw(plot: Any, subject: Any, picture: Path, console: Console) -> None:
    plot(subject, picture)
    console.print(f"Picture: {escape(str(picture))}")
