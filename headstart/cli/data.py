"""`headstart data`: what data sets there are, what they hold, and how they are dealt out."""

from pathlib import Path
from typing import Annotated

import typer

from headstart.cli.options import Client, DataSettings, Features, Group, Kind, Label, Order, column_names

__all__ = ["data_app"]

data_app = typer.Typer(
    help="Look at data sets, your own among them, and at how they are dealt out.", no_args_is_help=True
)


@data_app.command("list")
def list_data() -> None:
    """List the named data sets: what they are, how large, and whether their files are here.

    From Python: `hs.data.list_data()`, and `hs.report.named_data_table()` to print.
    """
    from headstart.cli.terminal import console
    from headstart.report import named_data_table

    console.print(named_data_table())


@data_app.command()
def show(
    data: Annotated[str, typer.Argument(help="A data set's name, or the path of your own data.")],
    settings: DataSettings = None,
    picture: Annotated[Path | None, typer.Option(help="Draw some samples into this PNG file.")] = None,
) -> None:
    """Show what a data set holds: samples, classes, columns, memory.

    `headstart data show cifar10 --picture cifar10.png`

    `headstart data show people.parquet --set client=person --set label=activity`

    From Python: `hs.report.show_data("people.parquet", ["client=person", "label=activity"], picture="people.png")`.
    """
    from headstart.cli.terminal import console, escape
    from headstart.data.tables import memory_needed
    from headstart.report import show_data

    if Path(data).exists() and not data.endswith(".toml"):
        console.print(f"Reading {escape(data)} takes up to {memory_needed(data) / 1e6:,.0f} MB of memory.")
    console.print(show_data(data, settings or [], picture))
    _say_where(picture)


@data_app.command()
def partition(
    data: Annotated[str, typer.Argument(help="A data set's name, the path of your own data, or an experiment file.")],
    settings: DataSettings = None,
    picture: Annotated[Path | None, typer.Option(help="Draw who has what into this PNG file.")] = None,
) -> None:
    """Show how a data set is dealt out to clients: who has what, and how unlike they are.

    `headstart data partition mnist --set partition.name=dirichlet-mixtures --set partition.concentration=0.1`

    `headstart data partition my.toml --picture clients.png`

    From Python: `hs.report.show_partition("my.toml", picture="clients.png")`.
    """
    from headstart.cli.terminal import console
    from headstart.report import show_partition

    console.print(show_partition(data, settings or [], picture))
    _say_where(picture)


@data_app.command()
def prepare(
    data: Annotated[str, typer.Argument(help="A data set's name, or the path of a table or folder of tables.")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    client: Client = None,
    label: Label = None,
    kind: Kind = None,
    features: Features = None,
    group: Group = None,
    order: Order = None,
) -> None:
    """Fetch a named data set, or turn a table larger than memory into a folder whose samples stay on disk.

    `headstart data prepare mnist --out ~/data`

    `headstart data prepare big.parquet --out big --client person --label activity`, then `headstart run --data big`

    From Python: `hs.data.prepare("big.parquet", "big", client="person", label="activity")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape
    from headstart.data.named import is_named_source, load_source
    from headstart.report import samples_table

    with console.status(f"Reading {escape(data)}"):
        made = hs.data.prepare(
            data, out, client=client, label=label, kind=kind or "auto", features=column_names(features), group=group,
            order=order,
        )  # fmt: skip
    where = escape(str(made))
    if is_named_source(data):
        console.print(samples_table(load_source(data, made)))
        console.print(f"Files: {where}")
    else:
        console.print(f"Prepared: {where}\nTrain on it with: headstart run --data {where}")


def _say_where(picture: Path | None) -> None:
    if picture is not None:
        from headstart.cli.terminal import console, escape

        console.print(f"Picture: {escape(str(picture))}")
