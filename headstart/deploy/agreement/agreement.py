"""What sites and server have agreed on: the clients, their roles and numbers of samples, and how rows are encoded."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Batch, Size
from headstart.data import Clients, Federation, Part, RowLists
from headstart.data.clients import PARTS
from headstart.data.partitions import Partition
from headstart.data.rows import starts_of
from headstart.data.samples import Samples, TargetScale
from headstart.data.tables import Encoding
from headstart.deploy.agreement.layout import Layout
from headstart.deploy.agreement.said import Answer, Said
from headstart.errors import UsageError
from headstart.problems import Examples

__all__ = ["AbsentClients", "Agreement"]

FORMAT = "headstart agreement 1"


class AbsentClients(Clients):
    """Clients whose samples are elsewhere: what they look like and how many there are, and nothing more."""

    counts: Array
    to_examples: Any = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    dtypes: tuple[str, str] = eqx.field(static=True)
    agreement: str = eqx.field(static=True)
    """The digest of the agreement, by which a run's data is known."""

    def sample(self, part: Part, client: Array, key: Array, size: Size) -> Batch:
        raise UsageError("A server has no samples of its clients.", "Ask the site that has them.")

    def rows(self, number: int) -> Batch:
        x, y = self.dtypes
        return self.to_examples(Examples(jnp.zeros((number, *self.shape), x), jnp.zeros(number, y)))

    def train_count(self, client: Array) -> Array:
        return self.counts[client]


@dataclass(frozen=True, eq=False)
class Agreement:
    """What every site and the server know of the data of all. Files hold it as JSON."""

    layout: Layout
    encoding: Encoding | None
    """Fitted on the training rows of all clients that train."""
    target: TargetScale
    site_of: tuple[str, ...]
    """The site of each client."""
    counts: dict[Part, np.ndarray]
    """Samples a client and part."""
    notes: tuple[str, ...] = ()
    """What a reader should know."""

    @property
    def sites(self) -> dict[str, list[int]]:
        """The numbers of each site's clients, those that never train among them."""
        found: dict[str, list[int]] = {}
        for number, site in enumerate(self.site_of):
            found.setdefault(site, []).append(number)
        return found

    @cached_property
    def digest(self) -> str:
        """The same for equal agreements."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:32]

    def samples(self) -> Samples:
        """Samples of which there are none, with all that is known of them."""
        return self.layout.samples("the sites", self.encoding, self.target)

    def federation(self) -> Federation:
        """The clients as a server sees them, which has no samples of theirs."""
        layout, samples = self.layout, self.samples()
        clients = AbsentClients(
            jnp.asarray(self.counts["train"], jnp.int32),
            samples.to_examples,
            layout.shape,
            (layout.dtype, samples.y.dtype.name),
            self.digest,
        )
        names = list(layout.names)
        lists = {part: RowLists(np.zeros(int(n.sum()), np.int64), starts_of(n)) for part, n in self.counts.items()}
        held_out = layout.total - layout.trained
        partition = Partition(samples, lists["train"], lists["query"], lists["support"], names, held_out, self.notes)
        return Federation(
            clients=clients,
            names=names,
            total=layout.total,
            trained=layout.trained,
            counts={str(part): counts for part, counts in self.counts.items()},
            task=samples.task,
            partition=replace(partition, validation=layout.validation),
            validation=layout.validation,
        )

    def welcome_question(self) -> Said:
        """What to ask a site that comes later."""
        return Said({"step": "welcome", "agreement": self.to_json()})

    def with_newcomer(self, site: str, answer: Said) -> "Agreement":
        """With the clients of a site that comes later; they are new, and come last."""
        told = Answer(site, answer)
        if site in self.site_of:
            raise UsageError(f"Site {site!r} has agreed already.", "Ask it to begin.")
        names = told.texts("names", most=10_000_000)
        twice = next((name for name in names if name in set(self.layout.names)), None)
        if twice is not None:
            owner = self.site_of[self.layout.names.index(twice)]
            raise told.refused(f"a client {twice!r}, whom site {owner!r} has")
        added = {part: told.counts(part, (len(names),)) for part in PARTS}
        return replace(
            self,
            layout=replace(self.layout, names=(*self.layout.names, *names)),
            site_of=(*self.site_of, *[site] * len(names)),
            counts={part: np.concatenate([self.counts[part], added[part]]) for part in PARTS},
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {
            "format": FORMAT,
            "layout": self.layout.to_json(),
            "encoding": None if self.encoding is None else self.encoding.to_json(),
            "target": asdict(self.target),
            "site_of": list(self.site_of),
            "counts": {part: counts.tolist() for part, counts in self.counts.items()},
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Agreement":
        """From plain values."""
        try:
            if content["format"] != FORMAT:
                raise ValueError(f"it is of format {content['format']!r:.40}")
            layout = Layout.from_json(content["layout"])
            counts = {part: np.array(content["counts"][part], np.int64) for part in PARTS}
            if {len(content["site_of"]), *map(len, counts.values())} != {layout.total}:
                raise ValueError("its lists of clients differ in length")
            encoding = content["encoding"]
            return cls(
                layout=layout,
                encoding=None if encoding is None else Encoding.from_json(encoding),
                target=TargetScale(**content["target"]),
                site_of=tuple(map(str, content["site_of"])),
                counts=counts,
                notes=tuple(map(str, content["notes"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"This is no agreement: {error}.", "Let the sites agree again.") from error
