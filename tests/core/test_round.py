"""The round as a third driver has it: sites that have only their own arrays, and a server that has none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.core import Keys, Phase, Round, ShapedSamples, Shapes
from headstart.simulate import Simulation
from tests import toy
from tests.algorithms.contract import CONTRACT, setting

SIZES, ROUNDS, COHORT, SEED = (6, 6, 5), 3, 2, 4


class Site:
    """A client's own data and state, and its part of every round."""

    def __init__(self, number, work, problem, federation, state):
        rows = np.asarray(federation.clients.parts["train"].rows)
        starts = np.asarray(federation.clients.parts["train"].starts)
        pool = jax.tree.map(lambda a: np.asarray(a)[rows[starts[number] : starts[number + 1]]], federation.clients.pool)
        all_rows = [np.arange(len(jax.tree.leaves(pool)[0]))]
        own = hs.Federation.from_arrays(pool, all_rows, all_rows, transform=federation.clients.transform)
        self.number, self.state, self.work = number, state, work
        self.samples = problem.view(own.clients.view("train", jnp.asarray(0)))

    def answer(self, phase, down, k):
        result = self.work(phase, down, self.state, self.samples, k, self.number)
        self.state = self.state if result.state is None else result.state
        return jax.tree.map(np.asarray, result.up)


def _work(round_, phase, down, state, samples, k, number):
    return round_.at(k).work(phase, down, state, samples, number)


def drive(name, federation, problem, cohort, wire=None):
    """Three sites and a server; all that passes between them is arrays."""
    params = problem.init(jax.random.fold_in(jax.random.key(SEED), 0))
    row = hs.Examples(jnp.zeros(toy.FEATURES), jnp.zeros((), np.int32 if name == "protonet" else None))
    samples = ShapedSamples(Shapes.of(row))
    algorithm = CONTRACT[name].prepare(problem.objective(), params, samples)
    round_ = Round(algorithm, problem.objective(), Keys.of(SEED), wire, cohort / len(SIZES))
    start = round_.start(params, samples)
    # Compiled once for sites with equally many samples, as each of them would for itself.
    work = jax.jit(lambda phase, *args: _work(round_, phase, *args), static_argnums=0)
    server, sites = start.server, [Site(i, work, problem, federation, start.client) for i in range(len(SIZES))]
    for k in range(ROUNDS):
        now, means = round_.at(k), []
        down = now.open(server)
        for phase in round_.phases:
            members = np.asarray(now.cohort(phase, len(SIZES), cohort)).tolist()
            ups = [sites[i].answer(phase, down, k) for i in members]
            assert all(Shapes.of(up) == Shapes.of(start.ups[round_.phases.index(phase)]) for up in ups)
            means.append(now.combine(jax.tree.map(lambda *a: jnp.stack(a), *ups), jnp.ones(cohort)))
        server = now.close(server, tuple(means), cohort)
    return round_, server, [site.state for site in sites]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", CONTRACT)
def test_sites_that_share_nothing_agree_with_the_simulator(name):
    problem, _ = setting(name)
    federation = toy.federation(SIZES, transform=setting(name)[1].clients.transform)
    cohort = len(SIZES) if CONTRACT[name].needs_everyone else COHORT
    _, server, states = drive(name, federation, problem, cohort)
    sim = Simulation(CONTRACT[name], problem, federation, cohort=cohort, seed=SEED)
    sim.advance(ROUNDS)
    toy.assert_close(toy.to_numpy(server), toy.to_numpy(sim.state.server), 1e-6)
    stacked = jax.tree.map(lambda *rows: np.stack(rows), *states)
    toy.assert_close(stacked, toy.to_numpy(sim.state.clients), 1e-6)


def test_a_client_that_does_nothing_sends_zero():
    """With step sizes of zero: every method whose update is a way travelled."""
    federation = toy.federation(SIZES)
    for name, algorithm in {
        "fedavg": hs.fedavg(outer_lr=0.0, batch_size=4),
        "per-fedavg": hs.per_fedavg(outer_lr=0.0, batch_size=4, random_iterate=True),
        "fedprox": hs.FedProx(outer_lr=0.0, batch_size=4),
        "pfedme": hs.PFedMe(outer_lr=0.0, batch_size=4),
        "reptile": hs.Reptile(inner_lr=0.0, batch_size=4),
        "local-moml": hs.LocalMOML(outer_lr=0.0, batch_size=4),
    }.items():
        sim = Simulation(algorithm, toy.LOGISTIC, federation)
        down = sim.one_round.at(0).open(sim.state.server)
        view = federation.clients.view("train", jnp.asarray(0))
        up = sim.one_round.at(0).work(Phase.WORK, down, sim.start.client, view, 0).up
        assert all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(up)), name


def test_a_server_starts_from_shapes():
    """What it allocates is what the simulator has, and it has seen no sample."""
    federation = toy.federation(SIZES)
    sim = Simulation(CONTRACT["local-scgdm"], toy.LOGISTIC, federation)
    samples = ShapedSamples(Shapes.of(hs.Examples(jnp.zeros(toy.FEATURES), jnp.zeros(()))))
    start = sim.one_round.start(toy.start(), samples)
    assert Shapes.of(start.server) == Shapes.of(sim.state.server)
    assert Shapes.of(start.down) == Shapes.of(sim.one_round.at(0).open(sim.state.server))
