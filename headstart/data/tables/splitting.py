"""From samples of one's own to clients: the split, what is held out, and an encoding fitted on the rest."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.data.partitions import Natural, Partition
from headstart.data.samples import Samples
from headstart.data.tables.choices import Choices
from headstart.data.tables.encoding import Encoding
from headstart.data.tables.fitting import fitted, standardize_by_client
from headstart.errors import UsageError

__all__ = ["deal_out"]


def deal_out(
    samples: Samples, client: str, choices: Choices, encoding: Encoding | None = None, notes: tuple[str, ...] = ()
) -> Partition:
    """Split every client's rows, hold clients out, and fit the encoding on what is left for training."""
    _check_names(samples, client)
    natural = Natural(
        client,
        test_share=choices.test_share,
        group=choices.group,
        order=choices.order,
        min_samples=2 if choices.min_samples is None else choices.min_samples,
        small="refuse" if choices.min_samples is None else "drop",
        shots=choices.shots,
    )
    try:
        partition = natural(samples, choices.seed)
    except UsageError as error:
        if "small = 'drop'" in error.remedy:
            raise UsageError(error.problem, "Leave such clients out with min_samples = 2, or give them more.") from None
        raise
    partition = partition.holding_out(choices.held_out, choices.seed)
    notes = (*notes, *partition.notes, *_unseen_labels(partition, choices.allow_unseen_labels))
    if encoding is not None:
        encoding = fitted(encoding, partition, choices.standardize)
        # Hashed before anything is rewritten: a row's fingerprint is that of what was read.
        samples = replace(samples, known_fingerprints=samples.fingerprints)
        if encoding.per_client:
            standardize_by_client(encoding, partition)
        samples = replace(samples, transform=encoding, features=encoding.features)
    return replace(partition, samples=samples, notes=notes)


def _check_names(samples: Samples, client: str) -> None:
    """Refuse names of clients that differ in blanks around them only."""
    whose = samples.column(client)
    if isinstance(whose, np.ndarray) or not pa.types.is_string(whose.dictionary.type):
        return
    trimmed = pc.utf8_trim_whitespace(whose.dictionary)
    if len(pc.unique(trimmed)) < len(trimmed):
        names = trimmed.to_pylist()
        twice = next(name for name in names if names.count(name) > 1)
        spelt = [whole for whole, name in zip(whose.dictionary.to_pylist(), names, strict=True) if name == twice]
        raise UsageError(
            f"{samples.name}: column {client!r} spells one client {' and '.join(map(repr, spelt))}.",
            "Write the name in one way.",
        )


def _unseen_labels(partition: Partition, allowed: bool) -> tuple[str, ...]:
    """Classes that no training row of a training client has."""
    samples = partition.samples
    if samples.classes is None:
        return ()
    trained = len(partition) - partition.held_out
    rows = partition.train.rows[: partition.train.starts[trained]]
    # The first rows have all classes, most often.
    for some in (rows[:100_000], rows):
        unseen = np.flatnonzero(np.bincount(samples.y[some], minlength=len(samples.classes)) == 0)
        if not unseen.size:
            return ()
    label = samples.classes[unseen[0]]
    owners = [
        int(np.searchsorted(lists.starts, hits[0], "right")) - 1
        for lists in (partition.train, partition.query)
        if (hits := np.flatnonzero(samples.y[lists.rows] == unseen[0])).size
    ]
    who = f"client {partition.names[min(owners)]!r} has it" if owners and partition.names else "no client has it"
    if owners:
        who += ", which is held out" if min(owners) >= trained else ", for tests only"
    more = f" ({unseen.size} labels are)" if unseen.size > 1 else ""
    problem = f"{samples.name}: the label {label!r} is unseen in training{more}: {who}."
    if allowed:
        return (problem,)
    raise UsageError(
        problem,
        "Merge or leave out rare labels, hold out fewer or other clients (held_out, seed), "
        "or keep such labels with allow_unseen_labels = true.",
    )
