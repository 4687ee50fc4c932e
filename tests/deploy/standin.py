"""A federation in one process: a pooled one dealt to sites that have their own rows only, and an agreement on it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import headstart as hs
from headstart.core import ShapedSamples
from headstart.data import Clients, Federation
from headstart.deploy.events import Events
from headstart.deploy.federated import FederatedRun
from headstart.deploy.fleet import LocalFleet
from headstart.deploy.session import Book, Session
from headstart.deploy.settings import DeploySettings
from headstart.deploy.setup import Setup
from headstart.deploy.site import Reading, Site
from headstart.deploy.state import Memories
from headstart.experiment import Settings
from headstart.simulate import Simulation

SITES = {"north": [0, 3], "south": [1], "west": [2, 4]}
CONFIG = {"data": {"name": "toy"}}


class Elsewhere(Clients):
    """Clients of whom only the shapes of their samples are known."""

    row: ShapedSamples

    def shapes(self):
        return self.row

    def sample(self, part, client, key, size):
        raise AssertionError("the server has no data")

    def train_count(self, client):
        raise AssertionError("the server has no data")

    def rows(self, number):
        raise AssertionError("the server has no data")


class Agreement:
    digest = "agreed"

    def __init__(self, pooled, sites):
        self.pooled, self.sites = pooled, sites

    def to_json(self):
        return {"sites": self.sites}

    def federation(self):
        return replace(self.pooled, clients=Elsewhere(self.pooled.clients.shapes()))


class Local:
    """The rows of some clients, copied out of the pool."""

    def __init__(self, pooled, numbers):
        self.numbers = numbers
        parts = {name: pooled.clients.parts[name] for name in ("train", "support", "query")}
        own = {
            name: [
                np.asarray(lists.rows)[int(lists.starts[client]) : int(lists.starts[client + 1])] for client in numbers
            ]
            for name, lists in parts.items()
        }
        kept = np.unique(np.concatenate([rows for lists in own.values() for rows in lists]))
        pool = jax.tree.map(lambda a: np.asarray(a)[kept], pooled.clients.pool)
        moved = {name: [np.searchsorted(kept, rows) for rows in lists] for name, lists in own.items()}
        self.federation = Federation.from_arrays(
            pool, moved["train"], moved["query"], moved["support"], transform=pooled.clients.transform
        )

    def view(self, part, client):
        return self.federation.clients.view(part, jnp.asarray(self.numbers.index(client)))


class Holdings:
    def __init__(self, local):
        self.local = local

    def clients(self, agreement):
        return self.local


def stacked_memories(folder, run, places):
    """All training clients' states as the sites' disks have them after the last round, stacked by number."""
    sites = run.session.agreement.sites
    tags, found = run.state.clients.tags(list(sites)), {}
    for name, numbers in sites.items():
        memories = Memories(folder / name / places[name], run.setup.start.client)
        found |= {client: memories.read(client, tags[name]) for client in numbers if client < run.setup.clients}
    return jax.tree.map(lambda *rows: np.stack(rows), *[found[client] for client in sorted(found)])


class Trial:
    """Everything of a small federation: the pooled one, its sites, and runs over them."""

    def __init__(self, folder, algorithm, problem, pooled, sites=None, wire=None, seed=4, **training):
        self.algorithm, self.problem, self.pooled, self.wire, self.seed = algorithm, problem, pooled, wire, seed
        self.sites_of = SITES if sites is None else sites
        self.training = {"cohort": 1.0, "backend": "vmap", **training}
        self.settings = Settings.from_objects(
            {"method": algorithm}, problem, pooled, training=self.training, evaluation=hs.Evaluation(), wire=wire,
            seed=seed,
        )  # fmt: skip
        self.agreement = Agreement(pooled, self.sites_of)
        self.folder = folder
        self.locals = {name: Local(pooled, numbers) for name, numbers in self.sites_of.items()}
        self.sites = {name: self.site(name) for name in self.sites_of}
        self.events = Events()

    def site(self, name):
        """A site as its process would have it after a start."""
        reading = Reading(
            data=lambda section, site: Holdings(self.locals[site]),
            agreement=lambda told: self.agreement,
            question=lambda said, arrays: (said, arrays),
            settings=lambda tables: self.settings,
        )
        return Site(name, self.folder / name, reading)

    def fleet(self, **instead):
        return LocalFleet({name: site.answer for name, site in self.sites.items()} | instead)

    def run(self, fleet=None, book=None, secret=False, **settings):
        session = Session(
            fleet or self.fleet(), CONFIG, self.agreement, DeploySettings(**({"retry_seconds": 0.0} | settings)),
            self.events, book or Book(run="run1"),
        )  # fmt: skip
        setup = Setup.of(self.algorithm, self.problem, session.federation, self.settings, self.wire)
        return FederatedRun("method", setup, session, self.settings.train.weighting, secret)

    def simulation(self):
        train = self.settings.train
        return Simulation(
            self.algorithm, self.problem, self.pooled, cohort=train.cohort, weighting=train.weighting, seed=self.seed,
            wire=self.wire,
        )  # fmt: skip

    def memories(self, run):
        """All training clients' states as the sites have them after the last round, stacked by number."""
        return stacked_memories(self.folder, run, dict.fromkeys(self.sites_of, "state/run1/method"))

    def reasons(self, event="left_out"):
        return [(told["site"], told["reason"]) for told in self.events.told if told["event"] == event]
