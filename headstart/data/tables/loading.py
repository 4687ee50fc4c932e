"""One's own data as a federation: tables, folders, images, arrays and frames, each in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import pyarrow as pa

from headstart.config import with_fields_of
from headstart.data.federation import Federation
from headstart.data.partitions import Partition
from headstart.data.samples import Samples
from headstart.data.tables.choices import Choices, Options
from headstart.data.tables.dictionaries import coded_values
from headstart.data.tables.encoding import Encoding
from headstart.data.tables.folders import client_files, client_source, has_client_files
from headstart.data.tables.identifiers import without_identifiers
from headstart.data.tables.intake import take_in
from headstart.data.tables.labels import Kind, coded_labels
from headstart.data.tables.pictures import image_files, is_picture, pictures_from_bytes, read_pictures
from headstart.data.tables.prepared import is_prepared, open_prepared, prepared_roles, write_prepared
from headstart.data.tables.reading import ChainedSource, Source, TableSource, source_of, streamed_file
from headstart.data.tables.roles import roles_of
from headstart.data.tables.sinks import Matrix
from headstart.data.tables.splitting import deal_out
from headstart.errors import UsageError

__all__ = ["Form", "arrays", "folder", "form_of", "images", "open_data", "partitioned", "prepare", "prepared", "table"]

Form = Literal["table", "folder", "images", "prepared"]
"""What a path can be."""


def table(data: Any, *, client: str, label: str, **options: Unpack[Options]) -> Federation:
    """A federation from a table: a CSV or Parquet file, a frame, an Arrow table, a Hugging Face dataset, or columns.

    Each value of the column ``client`` is a client, and ``label`` is what to predict. `Choices` lists the options.

    >>> columns = {"who": list("aaaabbbb"), "height": [1.0, 2, 3, 4, 5, 6, 7, 8], "tall": [False] * 3 + [True] * 5}
    >>> federation = table(columns, client="who", label="tall", held_out=0)
    >>> federation.names, federation.task.outputs
    (['a', 'b'], 2)
    """
    return _table(source_of(data), client, label, Choices(**options)).federation()


def folder(
    path: str | Path, *, label: str | None = None, client: str = "client", **options: Unpack[Options]
) -> Federation:
    """A federation from a folder with one file a client, called as the client is: CSV, Parquet, or npz with x and y.

    ``label`` is needed for tables. ``client`` is what the clients' names are called.
    """
    return _folder(Path(path), label, client, Choices(**options)).federation()


def images(path: str | Path, **options: Unpack[Options]) -> Federation:
    """A federation from a folder tree of images of one size, client/label/image.png; needs Pillow."""
    return _images(Path(path), Choices(**options)).federation()


def arrays(
    x: Any, y: Any, client: Any, *, columns: Mapping[str, Any] | None = None, **options: Unpack[Options]
) -> Federation:
    """A federation from arrays: samples, labels and whose each is.

    Rows of numbers are standardised like a table's; arrays of bytes or of more axes are taken as they are, bytes as
    numbers in [0, 1]. ``columns`` hold what ``group`` or ``order`` name; ``features`` are names for the columns of x.
    """
    return _arrays("the arrays", x, y, client, columns or {}, Choices(**options)).federation()


def partitioned(partitioner: Any, *, label: str, client: str = "client", **options: Unpack[Options]) -> Federation:
    """A federation from a partitioner of flwr-datasets: each of its partitions is a client."""
    return _partitioned(partitioner, label, client, Choices(**options)).federation()


def prepared(path: str | Path, **options: Unpack[Options]) -> Federation:
    """A federation from a folder that `prepare` made; its samples stay on disk."""
    return _prepared(Path(path), Choices(**options)).federation()


def prepare(
    source: str | Path,
    dest: str | Path,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    kind: Kind = "auto",
    group: str | None = None,
    order: str | None = None,
    drop_missing: bool = False,
) -> Path:
    """Stream a table file, or a folder of table files of clients, into a folder that `prepared` opens.

    Only the numbers of clients, groups and labels, what orders rows, and fingerprints are ever in memory.
    A CSV file's first 16 MB decide what its columns hold.
    """
    path = Path(source)
    kind = Choices(kind=kind).kind
    whose = client or "client"
    if path.is_dir():
        stream: Source = client_source(path, whose, streamed_file)
    else:
        stream, whose = streamed_file(path), _needed("client", client, path)
    roles, unusable = roles_of(
        stream.schema, stream.name, client=whose, label=label, features=features, group=group, order=order,
        renamed=stream.renamed,
    )  # fmt: skip
    roles, ids = without_identifiers(stream, roles, features)
    return write_prepared(stream, Path(dest), roles, kind, drop_missing, (*stream.notes, *unusable, *ids))


@with_fields_of(Choices)
def open_data(
    path: str, *, client: str | None = None, label: str | None = None, **options: Unpack[Options]
) -> Partition:
    """Whatever a path is, dealt out to clients: a table, a folder of client files, a tree of images, prepared data.

    ``.federation()`` of the result trains; its ``notes`` say what a reader should know. `Choices` lists the options.
    """
    choices = Choices(**options)
    where = Path(path)
    form = form_of(where)
    if form == "prepared":
        return _prepared(where, choices)
    if form == "images":
        return _images(where, choices)
    if form == "folder":
        return _folder(where, label, client or "client", choices)
    return _table(source_of(where), _needed("client", client, where), _needed("label", label, where), choices)


def form_of(path: Path) -> Form:
    """What a path is."""
    if not path.is_dir():
        return "table"
    if is_prepared(path):
        return "prepared"
    if has_client_files(path):
        return "folder"
    if any(child.is_dir() for child in path.iterdir()):
        return "images"
    raise UsageError(
        f"{path} has neither tables nor images nor prepared data.",
        "Give a table file, a folder with one CSV, Parquet or npz file a client, or a tree client/label/image.png.",
    )


def _needed(role: str, column: str | None, path: Path) -> str:
    if column is None:
        columns = ", ".join(source_of(path).schema.names) if path.is_file() else "those of the files"
        raise UsageError(
            f"{path}: which column is the {role}?", f"Say {role} = one of (in headstart run, --{role}): {columns}."
        )
    return column


def _table(source: Source, client: str, label: str, choices: Choices) -> Partition:
    schema = source.schema
    pictures = [f.name for f in schema if is_picture(f.type) and f.name in (choices.features or schema.names)]
    if pictures:
        return _pictures_in_table(source, client, label, pictures[0], choices)
    roles, unusable = roles_of(
        schema,
        source.name,
        client=client,
        label=label,
        features=choices.features,
        group=choices.group,
        order=choices.order,
        renamed=source.renamed,
    )
    roles, ids = without_identifiers(source, roles, choices.features)
    rows = source.rows
    assert rows is not None
    taken = take_in(source, roles, Matrix(rows, len(roles.features)), choices.kind, choices.drop_missing)
    samples = taken.samples(source.name)
    said = source.notes
    # What was read is not needed any more, and may be larger than all that follows.
    del source
    pa.default_memory_pool().release_unused()
    return deal_out(samples, client, choices, taken.encoding, (*said, *taken.notes, *unusable, *ids))


def _pictures_in_table(source: Source, client: str, label: str, picture: str, choices: Choices) -> Partition:
    """A table whose samples are images; other columns may group or order them, but are no features."""
    others = {name: name for name in (choices.group, choices.order) if name is not None}
    for column in (client, label, *others):
        if column not in source.schema.names:
            roles_of(source.schema, source.name, client=client, label=label, group=choices.group, order=choices.order)
    data = pa.Table.from_batches(list(source.batches([client, label, picture, *others])))
    pixels = pictures_from_bytes(data.column(picture), source.place)
    known = {name: data.column(name).combine_chunks() for name in others}
    labels, owners = (data.column(name).combine_chunks() for name in (label, client))
    return _arrays(source.name, pixels, labels, owners, known, choices)


def _folder(path: Path, label: str | None, client: str, choices: Choices) -> Partition:
    files = client_files(path)
    if all(file.suffix.lower() == ".npz" for file in files.values()):
        return _npz(path, files, client, choices)
    return _table(client_source(path, client, source_of), client, _needed("label", label, path), choices)


def _npz(path: Path, files: Mapping[str, Path], client: str, choices: Choices) -> Partition:
    return _arrays(path.name, *joined_npz(files), {}, choices, client)


def joined_npz(files: Mapping[str, Path]) -> tuple[np.ndarray, np.ndarray, pa.DictionaryArray]:
    """The samples of clients' files, their labels, and whose each is."""
    parts = [npz_arrays(file) for file in files.values()]
    shape, first = parts[0][0].shape[1:], next(iter(files.values()))
    for (x, _), file in zip(parts, files.values(), strict=True):
        if x.shape[1:] != shape:
            raise UsageError(
                f"{file}: a sample of x has shape {x.shape[1:]}, but in {first.name} it has {shape}.",
                "Bring all samples to one shape.",
            )
    owners = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.arange(len(parts), dtype=np.int32), [len(x) for x, _ in parts])), pa.array(list(files))
    )
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return x, y, owners


def npz_arrays(file: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as content:
            missing = {"x", "y"} - set(content.files)
            if missing:
                raise UsageError(f"{file} has no array {min(missing)!r}.", "Save it with x and y.")
            x, y = content["x"], content["y"]
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{file} cannot be read: {error}", "Save it again with numpy.savez(file, x=..., y=...)."
        ) from error
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise UsageError(f"{file}: x has shape {x.shape} and y {y.shape}.", "Give one label a sample.")
    if not len(x):
        raise UsageError(f"{file} has no rows.", f"Give client {file.stem!r} samples, or remove it.")
    return x, y


def _images(path: Path, choices: Choices) -> Partition:
    if not path.is_dir():
        raise UsageError(f"{path} is no folder.", "Give a folder that holds client/label/image.png.")
    files, clients, labels = image_files(path)
    if choices.kind == "regression":
        raise UsageError(f"{path}: the names of folders are classes.", "Leave kind out.")
    return _arrays(path.name, read_pictures(files), labels, clients, {}, choices)


def _partitioned(partitioner: Any, label: str, client: str, choices: Choices) -> Partition:
    if not hasattr(partitioner, "num_partitions") or not hasattr(partitioner, "load_partition"):
        raise UsageError(
            f"{type(partitioner).__name__} is no partitioner.", "Give one with num_partitions and load_partition(i)."
        )
    # Partitioners by a natural id know what their partitions are called.
    names = getattr(partitioner, "partition_id_to_natural_id", None) or {}
    values, sources = [], []
    for i in range(partitioner.num_partitions):
        values.append(str(names.get(i, i)))
        sources.append(source_of(partitioner.load_partition(i), f"partition {i}"))
    return _table(ChainedSource(type(partitioner).__name__, sources, client, values), client, label, choices)


def _prepared(path: Path, choices: Choices) -> Partition:
    samples = open_prepared(path)
    roles, notes = prepared_roles(path)
    for name in ("group", "order"):
        asked, there = getattr(choices, name), getattr(roles, name)
        if asked not in (None, there):
            raise UsageError(f"{path} was prepared without {name} = {asked!r}.", "Prepare the data again with it.")
    if choices.features is not None and tuple(choices.features) != roles.features:
        raise UsageError(
            f"{path} was prepared with the features {', '.join(roles.features)}.", "Prepare the data again with others."
        )
    if choices.kind not in ("auto", samples.kind):
        raise UsageError(
            f"{path} was prepared for a {samples.kind}.", f"Prepare it again with kind = '{choices.kind}'."
        )
    choices = replace(choices, group=roles.group, order=roles.order)
    assert isinstance(samples.transform, Encoding)
    return deal_out(samples, roles.client, choices, samples.transform, notes)


def _arrays(
    name: str, x: Any, y: Any, client: Any, columns: Mapping[str, Any], choices: Choices, whose: str = "client"
) -> Partition:
    pixels = np.asarray(x)
    for what, values in {"y": y, "client": client, **columns}.items():
        if len(values) != len(pixels):
            raise UsageError(
                f"{name}: {what} has {len(values)} rows, but x has {len(pixels)}.", "Give one value a sample."
            )
    if not len(pixels):
        raise UsageError(f"{name}: x has no rows.", "Give some samples.")
    if pixels.dtype.kind not in "biuf":
        raise UsageError(f"{name}: x holds {pixels.dtype}.", "Give numbers, or a table with texts to table().")
    if are_rows(pixels):
        return _number_rows(name, pixels.reshape(len(pixels), -1), y, client, columns, choices, whose)
    source = TableSource(name, pa.table({}))
    labels = coded_labels(y, choices.kind, source, "y")
    known = {whose: coded_values(client, source, whose), **{c: np.asarray(v) for c, v in columns.items()}}
    samples = Samples(name, pixels, labels.y, labels.classes, columns=known, target=labels.target)
    return deal_out(samples, whose, choices, None, (labels.note,))


def are_rows(x: np.ndarray) -> bool:
    """Whether samples are rows of numbers, which are standardised; others are taken as they are."""
    return x.ndim <= 2 and x.dtype != np.uint8


def _number_rows(
    name: str, x: np.ndarray, y: Any, client: Any, columns: Mapping[str, Any], choices: Choices, whose: str
) -> Partition:
    """Rows of numbers as a table, so that they are checked and standardised as one."""
    data = number_table(name, x, y, {whose: client, **columns}, choices.features)
    features = tuple(data.column_names[-x.shape[1] :])
    return _table(TableSource(name, data), whose, "y", replace(choices, features=features))


def number_table(
    name: str, x: np.ndarray, y: Any, columns: Mapping[str, Any], features: Sequence[str] | None = None
) -> pa.Table:
    """Rows of numbers as the last columns of a table, after some others and their label ``y``."""
    names = [f"x{j}" for j in range(x.shape[1])] if features is None else list(features)
    if len(names) != x.shape[1]:
        raise UsageError(f"{len(names)} features for {x.shape[1]} columns of x.", "Give every column of x one name.")
    try:
        given = {column: pa.array(values, from_pandas=True) for column, values in {**columns, "y": y}.items()}
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"{name}: {' '.join(str(error).split())}", "Give y, client and columns one value a row, of one type."
        ) from error
    return pa.table({**given, **{column: x[:, j] for j, column in enumerate(names)}})
