"""The server's side of the agreement: which questions it asks, one after the other, and what it concludes."""

import secrets
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from headstart.data.clients import PARTS
from headstart.data.rows import starts_of
from headstart.data.samples import TargetScale
from headstart.data.tables import Encoding
from headstart.data.tables.fitting import Bend, bend_of, fitted_by, sample_step, target_scale
from headstart.data.tables.middles import EXACT, ROUGH, STEP, Descent
from headstart.deploy.agreement.agreement import Agreement
from headstart.deploy.agreement.joining import (
    Answers,
    Table,
    joined_clients,
    joined_columns,
    joined_moments,
    joined_statistics,
    joined_table,
    joined_target,
    same,
)
from headstart.deploy.agreement.layout import Layout
from headstart.deploy.agreement.said import Answer, Said
from headstart.deploy.agreement.terms import Terms
from headstart.errors import UsageError

__all__ = ["Negotiation"]

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
"""What samples that are arrays may hold."""

MOST_BENT = 200.0
"""No number is larger than this once it was drawn in."""

Talk = Generator[Said, Answers, Any]


class Negotiation:
    """Question by question to an agreement; nothing is sent from here.

    Every question goes to all sites, and all of them must answer. An answer that cannot be right raises an error which
    names its site, and ends the negotiation.
    """

    def __init__(self, section: Mapping[str, Any]):
        self._terms = Terms.of(section)
        self._talk = self._to_agreement()
        self._question: Said | None = next(self._talk)
        self._sites: frozenset[str] | None = None
        self._agreement: Agreement | None = None

    def question(self) -> Said | None:
        """What to ask all sites next; ``None`` once there is an agreement."""
        return self._question

    def take(self, answers: Mapping[str, Said]) -> None:
        """The answers of all sites to the question."""
        sites = frozenset(answers)
        if not sites:
            raise UsageError("No site has answered.", "Start the sites.")
        if self._sites is not None and sites != self._sites:
            missing = ", ".join(sorted(self._sites ^ sites))
            raise UsageError(f"Not the same sites have answered all questions: {missing}.", "Agree again without them.")
        self._sites = sites
        try:
            # In the order of their names, so that nothing depends on who was first.
            self._question = self._talk.send({site: Answer(site, answers[site]) for site in sorted(answers)})
        except StopIteration as end:
            self._question, self._agreement = None, end.value

    def agreement(self) -> Agreement:
        """What was agreed on."""
        if self._agreement is None:
            raise UsageError("The sites have not agreed yet.", "Ask them the next question.")
        return self._agreement

    def _to_agreement(self) -> Talk:
        terms = self._terms
        answers = yield Said({"step": "survey", "salt": secrets.token_hex(16)})
        form = same([(site, answer.text("form")) for site, answer in answers.items()], "form of data")
        table: Table | None = None
        if form == "table":
            table = joined_table(answers, terms)
            shape, dtype = (len(table.roles.features),), "float32"
        elif form == "arrays":
            shape, dtype = same([(site, _shape(answer)) for site, answer in answers.items()], "shape of samples")
        else:
            raise UsageError(f"Data of the form {form!r:.40} is not known.", "Use one version of headstart everywhere.")
        roles = None if table is None else table.roles
        answers = yield Said({
            "step": "columns",
            "features": [] if roles is None else list(roles.features),
            "numeric": [] if table is None else list(table.numeric),
        })  # fmt: skip
        label = "y" if roles is None else roles.label
        names, site_of, small = joined_clients(answers, terms)
        target = joined_target(answers, terms, label)
        choosing, new = terms.drawn_away(len(names))
        order = [*np.setdiff1d(np.arange(len(names)), [*choosing, *new]), *choosing, *new]
        layout = Layout(
            names=tuple(names[i] for i in order),
            trained=len(names) - len(choosing) - len(new),
            validation=len(choosing),
            classes=target.classes,
            encoding=None if table is None else Encoding(joined_columns(answers, table)),
            shape=shape,
            dtype=dtype,
            offset=target.offset,
        )
        owners = tuple(site_of[name] for name in layout.names)
        answers = yield Said({"step": "fit", "layout": layout.to_json()})
        counts = _counts(answers, layout, owners)
        encoding = None
        if layout.encoding is not None:
            encoding = yield from self._fitted(answers, layout, counts["train"])
        scale = TargetScale(offset=layout.offset)
        notes = [target.note, *(() if table is None else table.notes), *small]
        if layout.classes is None:
            scale = target_scale(scale, joined_moments(answers, 1, "target "))
        else:
            notes += _unseen(answers, layout.classes)
        return Agreement(layout, encoding, scale, owners, counts, tuple(notes))

    def _fitted(self, answers: Answers, layout: Layout, train: np.ndarray) -> Talk:
        """The encoding with what the training rows of all sites say."""
        assert layout.encoding is not None
        statistics = joined_statistics(answers, layout.encoding.columns)
        where = [j for j, _ in layout.encoding.numbers]
        bends: dict[int, Bend] = {}
        drawn = None
        if self._terms.standardize == "federation" and where:
            starts = starts_of(train[: layout.trained])
            sample = {
                "layout": layout.to_json(),
                "every": sample_step(int(starts[-1])),
                "starts": starts[:-1].tolist(),
            }
            middles = yield from _medians(len(where), EXACT, sample, None)
            told = [0.0 if middle is None else middle for middle in middles]
            distances = yield from _medians(len(where), ROUGH, sample, told)
            for j, middle, distance in zip(where, middles, distances, strict=True):
                bend = bend_of(middle, distance, statistics.moments.deviations[j])
                if bend is not None:
                    bends[j] = bend
            if bends:
                bent = yield Said({
                    "step": "bend", "layout": layout.to_json(), "bends": [[j, *bend] for j, bend in bends.items()]
                })  # fmt: skip
                drawn = joined_moments(bent, len(bends), largest=MOST_BENT)
        return fitted_by(layout.encoding, self._terms.standardize, statistics, bends, drawn)


def _shape(answer: Answer) -> tuple[tuple[int, ...], str]:
    shape = answer.content.said.get("shape")
    if not isinstance(shape, list) or len(shape) > 8:
        raise answer.refused("no shape of its samples")
    if (dtype := answer.text("dtype")) not in DTYPES:
        raise answer.refused(f"{dtype!r:.50} as the type of its samples")
    return tuple(answer.wholes("shape", len(shape), 1, 2**20)), dtype


def _medians(columns: int, digits: int, sample: Mapping[str, Any], middles: list[float] | None) -> Talk:
    """The medians of some columns' values, or of their distances from ``middles``; ``None`` where there is no value."""
    descents = [Descent(digits) for _ in range(columns)]
    before: dict[str, np.ndarray] = {}
    while not all(descent.done for descent in descents):
        answers = yield Said({
            "step": "count",
            **sample,
            "middles": middles,
            "descents": [None if d.done else [d.digits, d.known, d.prefix] for d in descents],
        })  # fmt: skip
        told = {site: answer.counts("counts", (columns, 2**STEP)) for site, answer in answers.items()}
        for site, answer in answers.items():
            if site in before and (told[site].sum(axis=1) != before[site])[[not d.done for d in descents]].any():
                raise answer.refused("counts that do not add up to those before")
        total = np.sum(list(told.values()), axis=0)
        after = [d if d.done else d.after(total[k]) for k, d in enumerate(descents)]
        chosen = [d.prefix % 2**STEP for d in after]
        before = {site: counts[np.arange(columns), chosen] for site, counts in told.items()}
        descents = after
    return [descent.median for descent in descents]


def _counts(answers: Answers, layout: Layout, owners: tuple[str, ...]) -> dict[Any, np.ndarray]:
    """How many samples of each part each client has."""
    counts = {part: np.zeros(layout.total, np.int64) for part in PARTS}
    for site, answer in answers.items():
        own = np.array([number for number, owner in enumerate(owners) if owner == site], np.int64)
        if not np.array_equal(answer.counts("numbers", own.shape), own):
            raise answer.refused("other clients than before")
        for part in PARTS:
            counts[part][own] = answer.counts(part, own.shape)
            if (counts[part][own] == 0).any():
                raise answer.refused(f"a client without {part} samples")
    return counts


def _unseen(answers: Answers, classes: tuple[str, ...]) -> list[str]:
    seen = np.logical_or.reduce([answer.truths("classes", len(classes)) for answer in answers.values()])
    return [
        f"The label {name!r} is unseen in training, and will not be predicted."
        for name, there in zip(classes, seen, strict=True)
        if not there
    ][:3]
