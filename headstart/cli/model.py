"""`headstart adapt`, `predict`, `inspect` and `export`: what can be done with a model file."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstart.cli.options import Debug

if TYPE_CHECKING:
    from headstart.artifact import AdaptationReport
    from headstart.metrics import Metric

__all__ = ["adapt", "export", "inspect", "predict"]

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, such as `runs/mine/per-fedavg/model.safetensors`.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Import the code of a model that is not headstart's, as the file names it.")
]


def adapt(
    model: ModelFile,
    data: Annotated[Path, typer.Option(help="The new client's rows, with labels: a table, or a folder of images.")],
    out: Annotated[Path, typer.Option(help="The file for the client's own model.")],
    steps: Annotated[int | None, typer.Option(min=1, help="So many steps, rather than as many as serve best.")] = None,
    lr: Annotated[float | None, typer.Option(help="The size of a step, rather than the one that serves best.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels, if not called as in training.")] = None,
    seed: Annotated[int, typer.Option(help="Which rows are held back when.")] = 0,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Make the shared model a new client's own, from a few of its rows.

    `headstart adapt runs/mine/per-fedavg/model.safetensors --data mine.csv --out mine.safetensors`

    Rows are held back in turn: they say how many steps of which size serve best, and whether adapting helps at all.
    Where it does not, the shared model is kept.

    From Python: `hs.load("model.safetensors").adapt("mine.csv").save("mine.safetensors")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape, say, working

    with working("Opening the model") as now:
        shared = hs.load(model, trust=trust)
        now("Adapting")
        mine = shared.adapt(data, steps=steps, lr=lr, label=label, seed=seed)
    mine.save(out)
    assert mine.adaptation is not None
    say(mine.adaptation.notes)
    _show(mine.adaptation, {metric.name: metric for metric in mine.problem.metrics})
    console.print(f"Model: {escape(str(out))}")


def predict(
    model: ModelFile,
    data: Annotated[Path, typer.Option(help="The rows: a table, an npz file or a folder of images.")],
    out: Annotated[
        Path | None, typer.Option(help="A CSV or Parquet file; left out, CSV goes to standard output.")
    ] = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Predict labels and probabilities, or values, beside the columns of a table, which may be larger than memory.

    `headstart predict mine.safetensors --data rows.csv --out predicted.csv`

    From Python: `hs.load("mine.safetensors").predict_file("rows.csv", "predicted.csv")`; `predict(frame)` and
    `predict_proba(frame)` give arrays.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape, watched_data, working

    with working("Opening the model"):
        predictor = hs.load(model, trust=trust)
    # A bar would stand among rows that go to the terminal.
    with watched_data() if out is not None else nullcontext():
        rows = predictor.predict_file(data, out)
    if out is not None:
        console.print(f"{rows:,} rows: {escape(str(out))}")


def inspect(
    model: ModelFile,
    out: Annotated[Path | None, typer.Option(help="Write the card into this Markdown file.")] = None,
    debug: Debug = False,
) -> None:
    """Show a model's card: what it takes and predicts, how good it was for new clients, where it came from.

    `headstart inspect mine.safetensors --out card.md`

    From Python: `hs.artifact.read_card("mine.safetensors")`, or `card()` of a model that is loaded.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape, show_markdown
    from headstart.simulate.files import write_bytes

    card = hs.artifact.read_card(model)
    show_markdown(card)
    if out is not None:
        write_bytes(out, card.encode())
        console.print(f"Card: {escape(str(out))}")


def export(
    model: ModelFile,
    out: Annotated[
        Path, typer.Option(help="The file to write; what it takes and gives is said in a JSON file beside.")
    ],
    format: Annotated[str, typer.Option(help="`stablehlo` or `onnx`.")] = "stablehlo",
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Write the forward pass for other runtimes: StableHLO (JAX and others) or ONNX.

    `headstart export mine.safetensors --format onnx --out mine.onnx`

    From Python: `hs.load("mine.safetensors").export("mine.onnx", "onnx")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape, working

    with working("Opening the model") as now:
        predictor = hs.load(model, trust=trust)
        now(f"Exporting as {format}")
        predictor.export(out, format)  # type: ignore[arg-type]
    where = escape(str(out))
    console.print(f"Exported: {where}; what it takes and gives: {where}.json")


def _show(report: "AdaptationReport", metrics: dict[str, "Metric"]) -> None:
    """The curve over steps, and what came of it."""
    from rich import box
    from rich.table import Table

    from headstart.cli.terminal import console, escape

    if report.curve:
        size = "" if report.lr is None else f" of size {report.lr:.3g}"
        console.print(f"On {report.held_back} rows held back, after steps{size}:")
        table = Table(box=box.SIMPLE_HEAD)
        # The loss is what is minimised; what people look at comes first.
        order = [name for name in metrics if name != "loss"] + ["loss"]
        names = [name for name in order if name in report.curve[0]]
        for heading in ("steps", *(metrics[name].title for name in names)):
            table.add_column(heading, justify="right")
        for row in report.curve:
            shown = (metrics[name].show(row[name]) for name in names)
            table.add_row(str(row["steps"]), *shown, style="bold" if row["steps"] == report.steps else "")
        console.print(table)
    console.print(escape(report.words))
    if report.chosen and report.curve:
        console.print("[dim]Each row was judged by a choice made without it, so this may be a little worse.[/]")
