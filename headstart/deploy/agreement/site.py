"""The site's side of the agreement: what it tells of its rows, and how it then prepares them.

What crosses, and so what a server learns of a site, is this and nothing else:

- the names and types of its columns, how many rows and clients it has, and its clients' names (use pseudonyms);
- of a column of texts, first marks that are equal for equal texts (salted hashes: who can guess a text can check the
  guess) and how many clients have which; then, of columns that stay features and so hold 100 texts at most, the texts;
- of a column of numbers, whether its values lie close together, and then about where (to within their distance from
  each other; the value itself of a constant column);
- the classes, or the set of different labels where these are at most 20 whole numbers (none with kind = "regression");
- of each client, how many rows it has, in how many groups, and how many are for training, support and tests;
- over the training rows of all its clients that train: of each column of numbers how many values there are, their mean
  and the sum of squares; which categories and classes there are; mean and sum of squares of a regression's targets;
- with standardize = "federation", counts of values of a sample of training rows by their leading binary digits, from
  which the median of all sites is found: the last of these counts tell the values next to the median.

A mean over few rows tells much of each: a site that is one client of two training rows tells them, in effect. A site
may name the columns that it is willing to ``describe``, and a ``least_count`` of rows below which it tells neither a
category nor moments or counts of a column; the encoding is then no longer exactly that of all rows.

All this holds of a server that asks what `Negotiation` asks. One that asks otherwise, say as if a single client
trained, is told the same sums over that client's rows: then ``least_count`` stands between it and single rows.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headstart.data.clients import PARTS
from headstart.data.partitions.dealing import factorized
from headstart.data.tables import Encoding
from headstart.data.tables.fitting import (
    Bend,
    Statistics,
    distances_of,
    drawn_in,
    target_moments,
    training_rows,
    values_of,
)
from headstart.data.tables.labels import FEW_CLASSES, MAX_CLASSES, LabelSummary
from headstart.data.tables.middles import STEP, Descent
from headstart.data.tables.moments import Moments
from headstart.deploy.agreement.agreement import Agreement
from headstart.deploy.agreement.holdings import Found
from headstart.deploy.agreement.layout import Layout
from headstart.deploy.agreement.local import LocalClients, LocalRows, split_rows
from headstart.deploy.agreement.opening import open_holding
from headstart.deploy.agreement.said import Said
from headstart.deploy.agreement.terms import Terms
from headstart.errors import UsageError

__all__ = ["SiteData"]


class SiteData:
    """A site's own data, which answers the server's questions with sums, counts and sets."""

    def __init__(self, section: Mapping[str, Any], site: str):
        self.site, self._section, self._terms = site, dict(section), Terms.of(section)
        self._least_count = int(section.get("least_count", 1))
        self._holding = open_holding(section, self._terms, site)
        self._split: tuple[dict[str, Any], LocalRows | None] | None = None

    @classmethod
    def read(cls, section: Mapping[str, Any], site: str) -> "SiteData":
        """From the section [data] of the experiment with the site's own ``path``, and the site's name."""
        return cls(section, site)

    def answer(self, question: Said) -> Said:
        """One step of the agreement. Questions say all that an answer depends on."""
        said = question.said
        steps = {
            "survey": self._survey,
            "columns": self._columns,
            "fit": self._fit,
            "count": self._count,
            "bend": self._bend,
            "welcome": self._welcome,
        }
        if said.get("step") not in steps:
            raise UsageError(
                f"There is no answer to {said.get('step')!r:.40}.", "Use one version of headstart at all sites."
            )
        return steps[said["step"]](said)

    def clients(self, agreement: Agreement) -> LocalClients:
        """The site's clients, split and encoded as agreed."""
        local = self._local(agreement.layout)
        numbers = [] if local is None else local.numbers
        agreed = agreement.sites.get(self.site, [])
        if numbers != agreed:
            raise self._changed(f"it has {len(numbers)} clients of the agreement rather than {len(agreed)}")
        if local is not None:
            for part, lists in local.parts.items():
                wrong = np.flatnonzero(lists.counts != agreement.counts[part][numbers])
                if wrong.size:
                    name = agreement.layout.names[numbers[int(wrong[0])]]
                    raise self._changed(f"client {name!r} has another number of {part} samples")
        self._split = None  # what follows may rewrite the rows
        return LocalClients.encoded(local, agreement.encoding, agreement.target)

    def _changed(self, how: str) -> UsageError:
        return UsageError(
            f"The data of site {self.site!r} is no longer what was agreed on: {how}.",
            "Bring back the data, or let the sites agree again.",
        )

    def _survey(self, said: Mapping[str, Any]) -> Said:
        return Said(self._holding.survey(str(said["salt"])))

    def _columns(self, said: Mapping[str, Any]) -> Said:
        self._split = None
        found = self._holding.found([str(name) for name in said["features"]], [str(name) for name in said["numeric"]])
        clients, arrays = self._clients(found)
        return Said({**self._holding.described(), "clients": clients, "labels": self._labels(found)}, arrays)

    def _clients(self, found: Found) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Who the clients are, and how many rows, groups and rows for tests each has."""
        natural = self._terms.natural
        values, owner = factorized(found.columns[natural.column], natural.column)
        arrays = {"rows": np.bincount(owner, minlength=len(values))}
        if natural.group is not None:
            groups, group = factorized(found.columns[natural.group], natural.group)
            pairs = np.unique(owner * len(groups) + group)
            arrays["groups"] = np.bincount(pairs // max(len(groups), 1), minlength=len(values))
        if natural.test_share == "own":
            if found.test is None:
                raise UsageError("The data have no test set of their own.", "Give test_share a value between 0 and 1.")
            arrays["tests"] = np.bincount(owner[found.test.astype(bool)], minlength=len(values))
        kind = "text"
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            kind = "whole" if pa.types.is_integer(values.type) else "number"
        return {"kind": kind, "names": values.cast(pa.string()).to_pylist()}, arrays

    def _labels(self, found: Found) -> dict[str, Any]:
        labels = found.labels
        if not isinstance(labels, LabelSummary):
            return {"listed": list(labels)}
        if labels.texts is not None:
            return {"texts": sorted(labels.texts)}
        few = {"auto": FEW_CLASSES, "classification": MAX_CLASSES, "regression": 0}[self._terms.kind]
        whole = labels.whole if labels.whole is not None and len(labels.whole) <= few else None
        extent = labels.extent
        return {
            "whole": None if whole is None else list(whole),
            "extent": "wide" if extent is None else [extent.level, extent.low, extent.high],
        }

    def _fit(self, said: Mapping[str, Any]) -> Said:
        """How many samples each client has of each part, and what those for training say of the columns."""
        layout = Layout.from_json(said["layout"])
        local = self._local(layout)
        arrays: dict[str, np.ndarray] = {"numbers": np.array([] if local is None else local.numbers, np.int64)}
        for part in PARTS:
            arrays[part] = np.zeros(0, np.int64) if local is None else local.parts[part].counts
        x, y, rows = _training(local, layout)
        if layout.classes is not None:
            arrays["classes"] = np.bincount(y[rows], minlength=len(layout.classes)) > 0
        else:
            arrays |= self._told(target_moments(y, rows), "target ")
        if layout.encoding is not None:
            statistics = Statistics.of(layout.encoding, x, rows)
            where = [j for j, _ in layout.encoding.numbers]
            arrays |= self._told(_chosen(statistics.moments, where))
            seen = [self._seen(x[rows, j], there) for j, there in statistics.seen.items()]
            arrays["seen"] = np.concatenate([np.zeros(0, bool), *seen])
        return Said({"rows": len(rows)}, arrays)

    def _count(self, said: Mapping[str, Any]) -> Said:
        """Of a sample of the training rows: how many values, or distances from a median, begin with which digits."""
        layout = Layout.from_json(said["layout"])
        assert layout.encoding is not None
        local = self._local(layout)
        x, _, _ = _training(local, layout)
        rows = _sampled(local, said)
        if len(rows) < self._least_count:
            rows = rows[:0]
        counts = np.zeros((len(layout.encoding.numbers), 2**STEP), np.int64)
        for k, (j, _) in enumerate(layout.encoding.numbers):
            descent = said["descents"][k]
            if descent is not None:
                values = values_of(x[rows, j])
                if said["middles"] is not None:
                    values = distances_of(values, float(said["middles"][k]))
                counts[k] = Descent(*descent).counts(values)
        return Said({}, {"counts": counts})

    def _bend(self, said: Mapping[str, Any]) -> Said:
        """Mean and squares of columns that are drawn in about their medians."""
        layout = Layout.from_json(said["layout"])
        bends = {int(j): Bend(float(middle), float(width)) for j, middle, width in said["bends"]}
        x, _, rows = _training(self._local(layout), layout)
        return Said({}, self._told(Moments.of(x, rows, drawn_in(bends))))

    def _welcome(self, said: Mapping[str, Any]) -> Said:
        """The clients of a site that comes later, and how many samples of each part they have."""
        layout = Agreement.from_json(said["agreement"]).layout
        encoding = layout.encoding or Encoding(())
        names = [column.name for column in encoding.columns]
        found = self._holding.found(names, [column.name for _, column in encoding.numbers])
        clients, sizes = self._clients(found)
        everyone = pa.array(clients["names"], pa.string())
        # Of the size that all clients of this experiment have.
        kept, _ = self._terms.natural.large_enough(
            everyone, "The data", sizes["rows"], sizes.get("groups"), sizes.get("tests")
        )
        own = everyone.filter(pa.array(kept)).to_pylist()
        alone = Layout(tuple(own), 0, 0, layout.classes, layout.encoding, layout.shape, layout.dtype, layout.offset)
        local = split_rows(self._holding.samples(layout), self._terms.natural, self._terms.seed, alone)
        self._split = None
        return Said({"names": own}, {part: lists.counts for part, lists in local.parts.items()} if local else {})

    def _told(self, moments: Moments, prefix: str = "") -> dict[str, np.ndarray]:
        """Moments, without those of columns that have too few values to be told."""
        enough = moments.counts >= self._least_count
        told = {"counts": moments.counts.astype(np.int64), "means": moments.means, "squares": moments.squares}
        return {prefix + name: np.where(enough, values, 0) for name, values in told.items()}

    def _seen(self, codes: np.ndarray, there: np.ndarray) -> np.ndarray:
        counts = np.bincount(codes[codes >= 0].astype(np.int64), minlength=len(there))
        return there & (counts >= self._least_count)

    def _local(self, layout: Layout) -> LocalRows | None:
        """The site's rows as the layout stores and splits them; kept until another one is asked for."""
        said = layout.to_json()
        if self._split is None or self._split[0] != said:
            samples = self._holding.samples(layout)
            self._split = said, split_rows(samples, self._terms.natural, self._terms.seed, layout)
        return self._split[1]


def _training(local: LocalRows | None, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stored samples, their labels, and the rows that clients train on."""
    if local is None:
        y = np.zeros(0, np.float32 if layout.classes is None else np.int32)
        return np.zeros((0, *layout.shape), layout.dtype), y, np.zeros(0, np.int64)
    samples = local.partition.samples
    return samples.x, samples.y, training_rows(local.partition)


def _sampled(local: LocalRows | None, said: Mapping[str, Any]) -> np.ndarray:
    """Every so manieth training row, counted through those of all clients in the order of their numbers."""
    if local is None:
        return np.zeros(0, np.int64)
    step, starts = int(said["every"]), said["starts"]
    trained = len(local.numbers) - local.partition.held_out
    picked = [
        local.partition.train[place][-int(starts[number]) % step :: step]
        for place, number in enumerate(local.numbers[:trained])
    ]
    return np.concatenate([np.zeros(0, np.int64), *picked])


def _chosen(moments: Moments, where: list[int]) -> Moments:
    return Moments(moments.counts[where], moments.means[where], moments.squares[where])
