"""`headstart data`: which data sets there are, what they hold, and how they are dealt out."""

from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from headstart.data import list_data
from headstart.data.partitions import describe
from headstart.experiment import partition_of
from headstart.report.partition import partition_table, plot_partition
from headstart.report.samples import plot_samples, samples_table

__all__ = ["named_data_table", "show_data", "show_partition"]


def named_data_table() -> Table:
    """The named data sets, and where their files are."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("name", "what it is", "download", "files"):
        table.add_column(heading, no_wrap=heading == "name")
    for data in list_data():
        size = "by hand" if data.download is None else f"{data.download / 1e6:,.0f} MB" if data.download else ""
        table.add_row(data.name, data.description, size, escape(data.files))
    return table


def show_data(data: str | Path, settings: Iterable[str] = (), picture: str | Path | None = None) -> Group:
    """What a data set holds: samples, classes, columns, memory; some of them drawn into a PNG file."""
    samples = partition_of(data, settings).samples
    if picture is not None:
        plot_samples(samples, Path(picture))
    return samples_table(samples)


def show_partition(data: str | Path, settings: Iterable[str] = (), picture: str | Path | None = None) -> Group:
    """How a data set is dealt out to clients: who has what, and how unlike they are; drawn into a PNG file."""
    summary = describe(partition_of(data, settings))
    if picture is not None:
        plot_partition(summary, Path(picture))
    return partition_table(summary)
