"""Tables that are wrong or odd: in their bytes, their cells, their columns and their types."""

import csv
import datetime
import gzip
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from tools.fuzzing.judge import Case, command

Columns = dict[str, list[Any]]
CELLS = (
    "", "NA", "nan", "NULL", "inf", "-inf", "1e400", "1e-400", "1,5", "0x1F", "1_000", "+3", "\uff13", "true", "yes",
    "2024-05-01", "2024-05-01 12:30:00", "12:30", "ü\u202e", "'", '"', 'a"b', "a\nb", "a,b", "  pad ", "-",
    "=1+1", "\ufeff", "🦊", "9" * 40, "9007199254740993",
    "170141183460469231731687303715884105728", "a" * 5000, "\x1b[31m", "[red]",
    "None", "-0.0",
)  # fmt: skip
ENCODINGS = ("utf8", "utf8", "utf8", "utf-8-sig", "cp1252", "utf-16", "utf-32", "latin-1")


def tables(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Endlessly many."""
    number = 0
    while True:
        number += 1
        yield rng.choice((_csv, _csv, _csv, _parquet))(rng, folder, f"table{number}")


def _case(rng: random.Random, path: Path, said: str, columns: Columns) -> Case:
    """Look at a table, or train on it; which column is what may be wrong, too."""
    client = "who" if rng.random() < 0.93 else rng.choice(("likes", "nobody", "", "Who", "size"))
    label = "likes" if rng.random() < 0.85 else rng.choice(("size", "colour", "who", "nothing", "LIKES", ""))
    options = ["--client", client, "--label", label]
    if rng.random() < 0.15:
        options += rng.choice(
            (
                ["--kind", "regression"], ["--kind", "classification"], ["--kind", "cluster"],
                ["--features", "size,colour"], ["--features", "size,,nothing"], ["--order", "size"],
                ["--order", "colour"], ["--group", "colour"],
                ["--held-out", "0"], ["--held-out", "0.99"], ["--held-out", "-1"], ["--held-out", "x"],
                ["--shots", "0"], ["--shots", "2"],
            )
        )  # fmt: skip
    if rng.random() < 0.06:
        small = ["train.rounds=1", "evaluate.steps=[0,1]", "model.hidden=[4]", "baselines={}", "train.backend=vmap"]
        words = ["run", "--no-tune", "--data", str(path), *options, "--out", str(path.parent / f"{path.stem}.run")]
        words += [word for setting in small for word in ("--set", setting)]
    else:
        pairs = zip(options[::2], options[1::2], strict=True)
        settings = [f"{name.strip('-').replace('-', '_')}={_toml(name, value)}" for name, value in pairs]
        how = rng.choice(("show", "partition"))
        words = ["data", how, str(path), *(word for setting in settings for word in ("--set", setting))]
    offenders = (
        path.name,
        path.stem,
        client,
        label,
        *columns,
        *(word for word in options if word.startswith("--")),
        *options,
    )
    named = tuple(word for word in (*offenders, "column", "client") if word)
    return Case(f"{said} {words}", lambda: command(words), named)


def _toml(name: str, value: str) -> str:
    if name == "--features":
        return "[" + ",".join(f"'{column}'" for column in value.split(",")) + "]"
    return value if name in ("--held-out", "--shots") else f"'{value}'"


def _columns(rng: random.Random) -> Columns:
    clients, rows = rng.choice((1, 2, 3, 5, 12)), rng.choice((1, 2, 3, 10, 40))
    who = [f"p{i}" for i in range(clients) for _ in range(rows)]
    count = len(who)
    columns: Columns = {
        "who": who,
        "size": [round(rng.gauss(0, 10 ** rng.randrange(-3, 4)), 4) for _ in range(count)],
        "colour": [rng.choice(("red", "green", "blue")) for _ in range(count)],
        "likes": [rng.choice(("yes", "no")) for _ in range(count)],
    }
    for name, column in {
        "empty": [""] * count,
        "constant": ["7"] * count,
        "when": [f"2024-01-{1 + i % 28:02d}" for i in range(count)],
        "flag": [rng.choice(("true", "false")) for _ in range(count)],
        "huge": [rng.choice((1e30, -1e30, 1e38, 3.0)) for _ in range(count)],
        "tiny": [rng.gauss(0, 1e-300) for _ in range(count)],
        "number": list(range(count)),
        "near": [1.7e9 + i * 1e-3 for i in range(count)],
        "": list(range(count)),
        "likes ": [rng.choice("ab") for _ in range(count)],
        "[red]": [rng.choice("ab") for _ in range(count)],
        "likes_": [str(rng.randrange(3)) for _ in range(count)],
    }.items():
        if rng.random() < 0.12:
            columns[name] = column
    if rng.random() < 0.25:
        kinds: tuple[Callable[[int], Any], ...] = (
            lambda i: rng.randrange(70), lambda i: rng.random(), lambda i: f"class {i}", lambda i: "same", lambda i: 3,
            lambda i: rng.choice((0, 1)), lambda i: 1e9 + rng.random(), lambda i: rng.choice(("1", "x")),
        )  # fmt: skip
        kind = rng.choice(kinds)
        columns["likes"] = [kind(i) for i in range(count)]
    return columns


def _csv(rng: random.Random, folder: Path, name: str) -> Case:
    columns = _columns(rng)
    said = []
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    header = list(columns)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        row, column = rng.randrange(len(rows)), rng.randrange(len(header))
        rows[row][column] = rng.choice(CELLS)
        said.append(f"row {row + 1}, {header[column]!r}: {rows[row][column]!r:.30}")
    if rng.random() < 0.06:
        header[rng.randrange(len(header))] = rng.choice((*header, "", " ", "a\nb"))
        said.append(f"header {header}")
    if rng.random() < 0.05:
        rows[rng.randrange(len(rows))] += ["more"]
        said.append("a longer row")
    if rng.random() < 0.05:
        rows[rng.randrange(len(rows))].pop()
        said.append("a shorter row")
    if rng.random() < 0.03:
        rows = []
        said.append("no rows")
    text = io.StringIO()
    separator = rng.choice((",", ",", ",", ";", "\t", "|", ":"))
    end = rng.choice(("\n", "\n", "\r\n", "\r"))
    writer = csv.writer(text, delimiter=separator, lineterminator=end, quoting=rng.choice((0, 0, 1)))
    writer.writerow(header)
    writer.writerows(rows)
    encoding = rng.choice(ENCODINGS)
    content = text.getvalue().encode(encoding, "replace")
    said.append(f"{separator!r} {end!r} {encoding}")
    if rng.random() < 0.15:
        spoiled, how = bytearray(content), rng.randrange(5)
        place = rng.randrange(len(spoiled))
        if how == 0:
            spoiled[place : place + 1] = b"\0"
        elif how == 1:
            del spoiled[place:]
        elif how == 2:
            spoiled[place] = rng.randrange(256)
        elif how == 3:
            spoiled[place:place] = b'"'
        else:
            spoiled[:0] = rng.choice((b"\n\n", b"# a comment\n", b"sep=;\n", b"\x1f\x8b", b"PK\x03\x04"))
        content = bytes(spoiled)
        said.append(f"bytes ({how})")
    ending = rng.choice((".csv",) * 8 + (".csv.gz", ".tsv", ".CSV", ".txt", ".xlsx", ".parquet", ""))
    if ending == ".csv.gz" and rng.random() < 0.7:
        content = gzip.compress(content)
    path = folder / f"{name}{ending}"
    path.write_bytes(content)
    return _case(rng, path, "; ".join(said), columns)


def _parquet(rng: random.Random, folder: Path, name: str) -> Case:
    columns = _columns(rng)
    count = len(columns["who"])
    odd: dict[str, Callable[[], pa.Array]] = {
        "list": lambda: pa.array([[1.0, 2.0]] * count),
        "struct": lambda: pa.array([{"a": 1, "b": "x"}] * count),
        "map": lambda: pa.array([[("a", 1)]] * count, pa.map_(pa.string(), pa.int64())),
        "time": lambda: pa.array([datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)] * count),
        "date": lambda: pa.array([datetime.date(2024, 1, 1)] * count),
        "length": lambda: pa.array([datetime.timedelta(seconds=3)] * count),
        "decimal": lambda: pa.array([3] * count, pa.int64()).cast(pa.decimal128(30, 2)),
        "bytes": lambda: pa.array([b"\x00\xff"] * count),
        "half": lambda: pa.array([1.5] * count, pa.float32()).cast(pa.float16()),
        "unsigned": lambda: pa.array([2**63 + i for i in range(count)], pa.uint64()),
        "nulls": lambda: pa.nulls(count),
        "nan": lambda: pa.array([float("nan")] * count),
        "infinite": lambda: pa.array([float("inf")] + [1.0] * (count - 1)),
        "category": lambda: pa.array(["a", "b"] * count)[:count].dictionary_encode(),
        "coded": lambda: pa.array([1, 2] * count)[:count].dictionary_encode(),
        "large": lambda: pa.array(["x"] * count, pa.large_string()),
        "some": lambda: pa.array([None if i % 2 else True for i in range(count)]),
    }
    arrays = {
        key: pa.array([str(v) if any(isinstance(w, str) for w in values) else v for v in values])
        for key, values in columns.items()
    }
    added = rng.sample(list(odd), rng.choice((0, 1, 1, 2, 3)))
    for kind in added:
        arrays[rng.choice((kind, kind, kind, "likes", "who", "size"))] = odd[kind]()
    path = folder / f"{name}.parquet"
    pa.parquet.write_table(pa.table(arrays), path)
    said = f"parquet with {added}"
    if rng.random() < 0.2:
        content = bytearray(path.read_bytes())
        place = rng.randrange(len(content))
        if rng.random() < 0.5:
            content[place] ^= 1 << rng.randrange(8)
        else:
            del content[place : place + rng.randrange(1, 200)]
        path.write_bytes(content)
        said += " spoiled"
    return _case(rng, path, said, {**columns, **{kind: [] for kind in added}})
