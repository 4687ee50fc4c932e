"""Options that several commands have, each stated once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from headstart.errors import UsageError

__all__ = [
    "PANEL", "Client", "DataSettings", "Debug", "ExperimentFile", "Features", "Group", "HeldOut", "Kind", "Label",
    "Order", "Seed", "Settings", "Shots", "column_names", "number",
]  # fmt: skip

PANEL = "Data"

ExperimentFile = Annotated[
    Path | None, typer.Argument(help="A TOML file; left out, the default experiment on embedded data.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as `--set algorithm.inner_lr=0.02`."),
]
DataSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the data, such as `--set seed=1`."),
]
Seed = Annotated[int | None, typer.Option(help="The seed of all randomness, instead of the file's.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

Client = Annotated[str | None, typer.Option(help="The column that says whose a row is.", rich_help_panel=PANEL)]
Label = Annotated[str | None, typer.Option(help="The column to predict.", rich_help_panel=PANEL)]
Kind = Annotated[
    Literal["classification", "regression"] | None,
    typer.Option(help="Whether the label is a class or a number; left out, its values tell.", rich_help_panel=PANEL),
]
Features = Annotated[
    str | None,
    typer.Option(metavar="A,B,...", help="The columns to predict from; left out, all others.", rich_help_panel=PANEL),
]
Group = Annotated[
    str | None,
    typer.Option(help="A column whose groups are never split between training and scores.", rich_help_panel=PANEL),
]
Order = Annotated[
    str | None,
    typer.Option(help="A column of times: a client is scored on its last rows.", rich_help_panel=PANEL),
]
HeldOut = Annotated[
    str | None, typer.Option(help="The number or share of clients that never train.", rich_help_panel=PANEL)
]
Shots = Annotated[
    int | None, typer.Option(help="New clients adapt on so many samples of each class.", rich_help_panel=PANEL)
]


def column_names(text: str | None) -> list[str] | None:
    """The columns of ``--features A,B``."""
    return None if text is None else [name.strip() for name in text.split(",")]


def number(option: str, text: str | None) -> int | float | None:
    """A share or a number."""
    try:
        return None if text is None else float(text) if "." in text else int(text)
    except ValueError as error:
        raise UsageError(f"{option} {text} is not a number.", "Give a share such as 0.2, or a number.") from error
