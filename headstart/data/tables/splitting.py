"""From samples of one's own to clients: the split, what is held out, and an encoding fitted on the rest."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.data.partitions import Natural, Partition, SmallClients
from headstart.data.samples import Samples
from headstart.data.tables.choices import Choices
from headstart.data.tables.encoding import Encoding
from headstart.data.tables.fitting import fitted, fitted_target, standardize_by_client, training_rows
from headstart.errors import UsageError

__all__ = ["away", "check_spelling", "commonest_class", "deal_out", "natural_of", "worded"]

LEAST_DIVIDED = 10
"""Of fewer clients none are for validation: there would be too few to train with, or to report."""

HELD_OUT, FEW_HELD_OUT = 0.3, 0.2
"""The share of clients that never train, of as many as that and of fewer."""

UNEVEN = 0.8
"""Where so large a share of the labels is one class, the accuracy says little of the others."""

MOST_NAMED = 3
"""So many labels that are unseen in training are named; of more there is only the number."""


def deal_out(
    samples: Samples, client: str, choices: Choices, encoding: Encoding | None = None, notes: tuple[str, ...] = ()
) -> Partition:
    """Split every client's rows, hold clients out, and fit the encoding on what is left for training."""
    whose = samples.column(client)
    if not isinstance(whose, np.ndarray):
        check_spelling(whose.dictionary, f"{samples.name}: column {client!r}")
    try:
        partition = natural_of(client, choices)(samples, choices.seed)
    except SmallClients as error:
        raise worded(error) from None
    held_out, validation = away(choices, len(partition))
    partition = partition.holding_out(held_out, choices.seed, validation)
    notes = (
        *notes,
        *partition.notes,
        *_unseen_labels(partition),
        *_uneven(partition),
        *_nobody_new(choices, partition),
    )
    if encoding is not None:
        encoding = fitted(encoding, partition, choices.standardize)
        # Hashed before anything is rewritten: a row's fingerprint is that of what was read.
        samples = replace(samples, known_fingerprints=samples.fingerprints)
        if encoding.per_client:
            standardize_by_client(encoding, partition)
        samples = replace(samples, transform=encoding, features=encoding.features)
    if samples.classes is None:
        samples = replace(samples, target=fitted_target(partition))
    return replace(partition, samples=samples, notes=notes)


def natural_of(client: str, choices: Choices) -> Natural:
    """How one's own data is split by client."""
    return Natural(
        client,
        test_share=choices.test_share,
        group=choices.group,
        order=choices.order,
        min_samples=2 if choices.min_samples is None else choices.min_samples,
        small="refuse" if choices.min_samples is None else "drop",
        shots=choices.shots,
    )


def worded(error: SmallClients) -> UsageError:
    """The error in the words of the options that one's own data takes."""
    if not error.droppable:
        return error
    return UsageError(error.problem, "Leave such clients out with min_samples = 2, or give them more.")


def away(choices: Choices, clients: int) -> tuple[int | float, int | float]:
    """How many clients never train, and how many of them are for validation; a few clients are not divided further."""
    few = clients < LEAST_DIVIDED
    held_out = choices.held_out
    if held_out is None:
        held_out = FEW_HELD_OUT if few else HELD_OUT
    if choices.validation is not None:
        return held_out, choices.validation
    number = round(held_out * clients) if isinstance(held_out, float) else held_out
    return held_out, 0 if few else number // 3


def check_spelling(names: pa.Array, where: str) -> None:
    """Refuse names of clients that differ in blanks around them only."""
    if not pa.types.is_string(names.type):
        return
    trimmed = pc.utf8_trim_whitespace(names)
    if len(pc.unique(trimmed)) < len(trimmed):
        short = trimmed.to_pylist()
        twice = next(name for name, count in Counter(short).items() if count > 1)
        spelt = [whole for whole, name in zip(names.to_pylist(), short, strict=True) if name == twice]
        raise UsageError(f"{where} spells one client {' and '.join(map(repr, spelt))}.", "Write the name in one way.")


def _nobody_new(choices: Choices, partition: Partition) -> tuple[str, ...]:
    """A word where so few clients are there that nobody asked for it, and yet no client is new."""
    if choices.held_out is not None or partition.held_out:
        return ()
    count = "a single client" if len(partition) == 1 else f"{len(partition)} clients"
    return (f"With {count} none is held out: scores are of clients that trained, on rows that did not.",)


def commonest_class(partition: Partition) -> tuple[str, float] | None:
    """The class that most training rows have, and its share, where that is so large that accuracies say little."""
    samples = partition.samples
    rows = training_rows(partition)
    if samples.classes is None or samples.y.ndim != 1 or not rows.size:
        return None
    counts = np.bincount(samples.y[rows], minlength=len(samples.classes))
    share = float(counts.max() / rows.size)
    return (samples.classes[int(counts.argmax())], share) if share >= UNEVEN else None


def _uneven(partition: Partition) -> tuple[str, ...]:
    """A word about a class that nearly all rows have."""
    found = commonest_class(partition)
    if found is None:
        return ()
    name, share = found
    return (f"{share:.1%} of the labels are {name!r}: whoever says so always is as accurate; look at the AUC, too.",)


def _unseen_labels(partition: Partition) -> tuple[str, ...]:
    """A word about classes that no training row of a training client has, and about a client who has them."""
    samples = partition.samples
    if samples.classes is None:
        return ()
    trained = len(partition) - partition.held_out
    rows = training_rows(partition)
    # The first rows have all classes, most often.
    for some in (rows[:100_000], rows):
        unseen = np.flatnonzero(np.bincount(samples.y[some], minlength=len(samples.classes)) == 0)
        if not unseen.size:
            return ()
    notes = []
    for label in unseen[:MOST_NAMED]:
        owners = [
            int(np.searchsorted(lists.starts, hits[0], "right")) - 1
            for lists in (partition.train, partition.query)
            if (hits := np.flatnonzero(samples.y[lists.rows] == label)).size
        ]
        who = "no client has it"
        if owners and partition.names:
            held_out = "which is held out" if min(owners) >= trained else "for tests only"
            who = f"client {partition.names[min(owners)]!r} has it, {held_out}"
        notes.append(f"The label {samples.classes[label]!r} is unseen in training, and will not be predicted: {who}.")
    if len(unseen) > MOST_NAMED:
        notes.append(f"{len(unseen)} labels in all are unseen in training.")
    return tuple(notes)
