"""From a TOML file to the record of an experiment, with errors that name the file and the key."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from headstart.errors import UsageError, did_you_mean
from headstart_papers.record import (
    SECTIONS,
    Claim,
    Comparison,
    Deviation,
    Figure,
    Method,
    Operand,
    PaperExperiment,
    Row,
    Score,
    merged,
)

__all__ = ["find_experiments", "papers_folder", "read_record"]

OWN = ("title", "mode", "notes", "explanation", "deviations", "deviations_like", "seeds_before")
"""What a record that is like another one says itself."""


def papers_folder() -> Path:
    """Where the records are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "records"
    return installed if installed.is_dir() else package.parent


def find_experiments(wanted: tuple[str, ...] = (), folder: Path | None = None) -> list[PaperExperiment]:
    """The experiments of given names (``wang/table3``) or papers (``wang``); all unless given."""
    folder = folder or papers_folder()
    paths = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.glob("*/*.toml"), key=lambda path: path.with_suffix(""))
        if not path.name.startswith(".")
    }
    chosen: dict[str, Path] = {}
    for name in wanted or tuple(paths):
        matching = {key: path for key, path in paths.items() if name in (key, key.split("/")[0])}
        if not matching:
            raise UsageError(f"There is no experiment {name!r}.", did_you_mean(name, paths))
        chosen |= matching
    return [read_record(path, key) for key, path in chosen.items()]


def read_record(path: Path, id_: str) -> PaperExperiment:
    """Read and check one file.

    With ``like = "paper/other"``, what it says is instead of what the other says, and its deviations are beside the
    other's, as they are with ``deviations_like``.
    """
    tables = _tables(path)
    inherited: list[dict[str, Any]] = []
    for key in ("like", "deviations_like"):
        if key in tables:
            other = tables.pop(key)
            base = path.parents[len(Path(id_).parts) - 1] / f"{other}.toml"
            if not base.is_file():
                raise UsageError(f"{path}: {key} = {other!r}, and there is no {base}.", "Name another record.")
            theirs = _tables(base)
            inherited += theirs.get("deviations", [])
            if key == "like":
                tables = merged({name: value for name, value in theirs.items() if name not in OWN}, tables)
    try:
        return _Reader(path, id_, tables, inherited).record()
    except KeyError as error:
        raise UsageError(f"{path}: {error.args[0]} is missing.", "Add it.") from error


def _tables(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", "Mend the file there.") from error


class _Reader:
    """Turns a file's tables into a record, with errors that name the file and the key."""

    def __init__(self, path: Path, id_: str, tables: dict[str, Any], inherited: list[dict[str, Any]]):
        self.path, self.id, self.tables, self.inherited = path, id_, tables, inherited
        known = {
            "title", "place", "seeds", "seeds_before", "together", "mode", "rows", "scores", "claims", "figures",
            "tune", "extras", "measure", "notes", "explanation", "deviations", "whole", "quick", "tiny", *SECTIONS,
        }  # fmt: skip
        for key in tables:
            if key not in known:
                raise self.wrong(f"{key} is not a setting", did_you_mean(key, known))

    def wrong(self, problem: str, remedy: str) -> UsageError:
        return UsageError(f"{self.path}: {problem}.", remedy)

    def record(self) -> PaperExperiment:
        tables = self.tables
        methods = {key: Method(key, table["title"]) for key, table in tables["methods"].items()}
        scores = {
            key: self.part(Score, {"id": key, **table}, f"scores.{key}") for key, table in tables["scores"].items()
        }
        rows = {table["id"]: self.row(table, methods, scores) for table in tables["rows"]}
        self.known("tune", tables.get("tune"), scores)
        return PaperExperiment(
            id=self.id,
            title=tables["title"],
            place=tables["place"],
            seeds=tables["seeds"],
            together=tables.get("together", False),
            mode=tables.get("mode", "paper"),
            rows=rows,
            methods=methods,
            scores=scores,
            claims=tuple(self.claim(table, rows, methods, scores) for table in tables.get("claims", ())),
            figures=tuple(self.figure(table, rows, methods, scores) for table in tables.get("figures", ())),
            deviations=tuple(
                self.part(Deviation, table, f"deviation {table.get('what')!r}")
                for table in (*self.inherited, *tables.get("deviations", ()))
            ),
            tune=tables.get("tune"),
            extras=tuple(tables.get("extras", ())),
            measure=tables.get("measure"),
            notes=tables.get("notes", "").strip(),
            explanation=tables.get("explanation", "").strip(),
            tables={key: tables.get(key, {}) for key in SECTIONS},
            whole=tables.get("whole", {}),
            profiles={key: tables[key] for key in ("quick", "tiny")},
        )

    def row(self, table: Mapping[str, Any], methods: Mapping[str, Method], scores: Mapping[str, Score]) -> Row:
        reported: dict[str, dict[str, tuple[float, float | None]]] = {}
        where = f"row {table['id']}"
        for score, values in table.get("reported", {}).items():
            self.known(f"{where}: reported", score, scores)
            for method, value in values.items():
                self.known(f"{where}: reported.{score}", method, methods)
                pair = (value[0], value[1]) if isinstance(value, list) else (value, None)
                reported.setdefault(score, {})[method] = pair
        chosen = tuple(table.get("methods", methods))
        for method in chosen:
            self.known(f"{where}: methods", method, methods)
        settings = table.get("set", {})
        for section in settings:
            self.known(f"{where}: set", section, SECTIONS)
        # A row with a number of seeds of its own has a history of its own, too.
        counted = table if "seeds" in table else self.tables
        before = tuple(counted.get("seeds_before", ()))
        return Row(table["id"], table["title"], chosen, counted["seeds"], before, reported, settings)

    def claim(
        self,
        table: Mapping[str, Any],
        rows: Mapping[str, Row],
        methods: Mapping[str, Method],
        scores: Mapping[str, Score],
    ) -> Claim:
        where = f"claim {table['text']!r}"
        settings = dict(table)
        orders = settings.pop("order")
        orders = [orders] if isinstance(orders, str) else orders
        comparisons = tuple(comparison for order in orders for comparison in self.order(order, where))
        for comparison in comparisons:
            for operand in (comparison.left, comparison.right):
                for method in operand.methods:
                    self.known(where, method, methods)
                self.known(where, operand.row, rows)
            self.known(where, comparison.score, scores)
        if all(operand.row for c in comparisons for operand in (c.left, c.right)):
            # Every operand names its row, so there is one thing to judge.
            settings["rows"] = (comparisons[0].left.row,)
        claim: Claim = self.part(Claim, {"rows": tuple(rows), **settings, "comparisons": comparisons}, where)
        self.known(where, claim.score, scores)
        for row in claim.rows:
            self.known(where, row, rows)
        return claim

    def order(self, text: str, where: str) -> Iterator[Comparison]:
        """``a > b >= c`` or ``loss: a < b``, as comparisons of neighbours with the larger first."""
        score, _, text = text.rpartition(":")
        parts = re.split(r"\s*(>=|<=|>|<)\s*", text.strip())
        if len(parts) < 3 or len(parts) % 2 == 0:
            raise self.wrong(f"{where}: the order {text!r} cannot be read", "Write it as 'a > b' or 'row/a < row/b'.")
        operands = [_operand(part) for part in parts[::2]]
        for left, sign, right in zip(operands, parts[1::2], operands[1:], strict=False):
            larger, smaller = (left, right) if sign.startswith(">") else (right, left)
            yield Comparison(larger, smaller, strict=len(sign) == 1, score=score.strip() or None)

    def figure(
        self,
        table: Mapping[str, Any],
        rows: Mapping[str, Row],
        methods: Mapping[str, Method],
        scores: Mapping[str, Score],
    ) -> Figure:
        figure: Figure = self.part(Figure, table, f"figure {table.get('title')!r}")
        for row in figure.rows:
            self.known(f"figure {figure.title!r}", row, rows)
        for method in figure.methods:
            self.known(f"figure {figure.title!r}", method, methods)
        if figure.kind != "fits":
            self.known(f"figure {figure.title!r}", figure.score, scores)
        return figure

    def part(self, kind: type, table: Mapping[str, Any], where: str) -> Any:
        names = {f.name for f in fields(kind)}
        for key in table:
            if key not in names:
                raise self.wrong(f"{where}: {key} is not a setting", did_you_mean(key, names))
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in table.items()})

    def known(self, where: str, name: str | None, among: Any) -> None:
        if name is not None and name not in among:
            raise self.wrong(f"{where} names {name!r}, which is not there", did_you_mean(name, among))


def _operand(text: str) -> Operand:
    """``row/method``, ``row/method - other`` or a number."""
    try:
        return Operand("", number=float(text))
    except ValueError:
        row, _, methods = text.rpartition("/")
        method, _, less = methods.partition(" - ")
        return Operand(method.strip(), row or None, less.strip() or None)
