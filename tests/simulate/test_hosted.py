"""The program of several hosts, here on two devices of one process: what ``run_chunk`` finds, to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

import headstart as hs
from headstart.core import Keys
from headstart.data import share_of
from headstart.simulate.hosted.chunk import HOST_AXIS, Room, run_hosted_chunk
from headstart.simulate.hosted.placing import pack, unpack
from headstart.simulate.hosted.simulation import _share, _woven, living_on
from headstart.simulate.identity import data_digest
from headstart.simulate.rounds import CLIENT_AXIS, RoundPlan, RunState, draw_cohorts
from headstart.simulate.setting import Setting

ROUNDS = 3


def federation(clients=9, seed=0):
    """Clients with 6 to 12 samples of 3 numbers, some of them shared by several clients."""
    rng = np.random.default_rng(seed)
    pool = hs.Examples(rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 2, 60).astype(np.int32))
    rows = [rng.integers(0, 60, size) for size in rng.integers(6, 13, clients)]
    return hs.Federation.from_arrays(pool, [r[:-2] for r in rows], [r[-2:] for r in rows], held_out=2)


def padded(parts):
    """The arrays of two hosts beside each other, the shorter ones filled up."""

    def beside(*leaves):
        most = max(leaf.shape[0] if np.ndim(leaf) else 0 for leaf in leaves)
        fill = [np.pad(x, [(0, most - x.shape[0]), *[(0, 0)] * (x.ndim - 1)], mode="edge") if np.ndim(x) else x
                for x in map(np.asarray, leaves)]  # fmt: skip
        return np.stack(fill)

    return jax.tree.map(beside, *parts)


def on_hosts(algorithm, problem, data, **options):
    """The states and metrics of some rounds on two hosts."""
    setting = Setting(
        algorithm, problem, data, seed=1, params=None, backend="vmap", devices=None, hosts=2,
        **{"cohort": 4, "weighting": "uniform", "at_once": None, "wire": None} | options,
    )  # fmt: skip
    plan = setting.plan
    mesh = Mesh(np.array(jax.devices()[:2])[:, None], (HOST_AXIS, CLIENT_AXIS), axis_types=(AxisType.Auto,) * 2)
    shares = [share_of(data, host, 2, data_digest).clients for host in range(2)]
    drawn = jax.device_get(draw_cohorts(plan, setting.keys, jnp.int32(0), ROUNDS))

    def phase(cohorts):
        each = [living_on(host, plan, cohorts) for host in range(2)]
        return [c._replace(places=share.places(c.places)) for c, share in zip(each, shares, strict=True)]

    cohorts = phase(drawn)
    if drawn.refresh is not None:
        cohorts = [c._replace(refresh=r) for c, r in zip(cohorts, phase(drawn.refresh), strict=True)]
    rows = -(-plan.clients // 2)
    states = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (2, rows, *leaf.shape)), setting.start.client)
    state, metrics = run_hosted_chunk(
        problem, plan, mesh, setting.algorithm, setting.wire, padded([share.own for share in shares]),
        RunState(setting.start.server, states), [jax.random.key_data(key) for key in setting.keys],
        jax.tree.map(lambda *x: np.stack(x), *cohorts), np.int32(0), np.int32(ROUNDS),
    )  # fmt: skip
    clients = jax.tree.map(lambda leaf: _woven(tuple(np.asarray(leaf)), plan.clients), state.clients)
    return RunState(state.server, clients), metrics


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (hs.per_fedavg(batch_size=3, local_steps=2, inner_lr=0.1, outer_lr=0.1), {"weighting": "samples"}),
        (hs.MOML(batch_size=3, averaging=0.5), {"at_once": 1}),
        (hs.MOMLv2(batch_size=3, averaging=0.5), {}),
        (hs.fedavg(batch_size="full", outer_lr=0.1), {"wire": hs.wire.wire(aggregate="median")}),
        (hs.fedavg(batch_size=3), {"wire": hs.wire.wire(compress={"name": "top-k", "share": 0.3})}),
    ],
    ids=["samples", "memories", "refreshed", "median", "feedback"],
)
def test_clients_who_work_where_they_live_find_what_one_device_does(algorithm, options):
    data, problem = federation(), hs.Classification(hs.MLP(3, 2, hidden=(4,)))
    alone = hs.Simulation(algorithm, problem, data, cohort=4, seed=1, **options)
    table = alone.advance(ROUNDS)
    state, metrics = on_hosts(algorithm, problem, data, **options)
    for name, values in metrics.items():
        np.testing.assert_allclose(np.asarray(values), table[name].to_numpy(), rtol=2e-5, atol=1e-6)
    for ours, theirs in zip(jax.tree.leaves(state), jax.tree.leaves(alone.state), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-5, atol=2e-6)


def test_a_share_has_the_samples_of_its_clients_and_no_others():
    data = federation()
    for host in range(3):
        share = share_of(data, host, 3, data_digest)
        own = share.clients.own
        assert own.pool.x.shape[0] < 60
        assert data_digest(share) == data_digest(data), "the same run, whoever asks"
        for client in range(host, 9, 3):
            for part in ("train", "support", "query"):
                key = jax.random.key(client)
                ours, theirs = (
                    clients.view(part, jnp.asarray(client)).sample(key, 5) for clients in (share.clients, data.clients)
                )
                np.testing.assert_array_equal(ours.x, theirs.x)
                np.testing.assert_array_equal(ours.y, theirs.y)
        with pytest.raises(hs.UsageError, match=f"lives on host {(host + 1) % 3}"):
            share.clients.view("train", jnp.asarray((host + 1) % 3))


@pytest.mark.parametrize("clients", [1, 6, 7, 8])
def test_rows_of_all_hosts_are_woven_as_they_were_dealt(clients):
    rows = np.arange(2 * clients).reshape(clients, 2)
    for hosts in (1, 2, 3, 4):
        shares = [_share(rows, host, hosts) for host in range(hosts)]
        assert {len(share) for share in shares} == {-(-clients // hosts)}
        np.testing.assert_array_equal(_woven(tuple(shares), clients), rows)


def test_arrays_come_back_from_their_bytes():
    tree = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": jnp.ones(2, jnp.bfloat16), "k": np.int32(4)}
    back = unpack(pack(tree), tree)
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(ours, np.float64), np.asarray(theirs, np.float64))


def test_a_host_has_room_for_all_members_that_may_live_there():
    plan = RoundPlan(clients=10, cohort=6, devices=2, at_once=2, hosts=2)
    assert Room.of(plan) == Room(members=8, group=2)  # five clients live there, on two devices in pairs
    drawn = draw_cohorts(plan, Keys.of(0), jnp.int32(0), 50)
    for host in range(2):
        own = living_on(host, plan, jax.device_get(drawn))
        for members, cohort in zip(own.clients, np.asarray(drawn.clients), strict=True):
            real = members[members < 10]
            assert sorted(real) == sorted(i for i in cohort if i % 2 == host and i < 10)
            assert (members[len(real) :] == 10).all()
