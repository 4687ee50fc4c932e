"""Updates on the wire, in every driver: what goes through clipping, noise, compression and robust means."""

import jax
import numpy as np
import pytest

import headstart as hs
from headstart.core import Shapes
from headstart.errors import UsageError
from headstart.simulate import Simulation, trace_count
from headstart.wire import AdaptiveClip, CoordinateMedian, Krum, Noise, Quantize, TopK, wire
from tests import toy
from tests.algorithms.contract import CONTRACT, setting

WIRES = {
    "clip": {"clip": 0.05},
    "adaptive clip": {"clip": AdaptiveClip(0.1)},
    "noise at the server": {"clip": 0.05, "noise": 0.5},
    "noise at the clients": {"clip": 0.05, "noise": Noise(0.5, at="client")},
    "quantize": {"compress": Quantize(8)},
    "top-k": {"compress": TopK(0.5)},
    "median": {"aggregate": CoordinateMedian()},
    "krum": {"aggregate": Krum(1)},
}


def trained(name, wire_, backend="vmap", cohort=4, rounds=3, **options):
    devices = 2 if backend == "sharded" else None
    cohort = 1.0 if CONTRACT[name].needs_everyone else cohort
    sim = Simulation(
        CONTRACT[name], *setting(name), cohort=cohort, backend=backend, devices=devices, wire=wire_, **options
    )
    history = sim.advance(rounds)
    return sim, history


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("parts", WIRES)
@pytest.mark.parametrize("backend", ["loop", "sharded"])
def test_all_drivers_agree(parts, backend):
    built = wire(**WIRES[parts])
    cohort = 5 if parts == "krum" else 4
    (sim, history), (want, want_history) = (trained("per-fedavg, exact", built, b, cohort) for b in (backend, "vmap"))
    toy.assert_close(toy.to_numpy(sim.state), toy.to_numpy(want.state), 1e-10)
    assert history["bytes_up"] == want_history["bytes_up"]
    plain, _ = trained("per-fedavg, exact", None)
    different = np.abs(toy.flat(sim.state.server.params) - toy.flat(plain.state.server.params)).max()
    assert different > 1e-12


@pytest.mark.parametrize("name", CONTRACT)
def test_nothing_on_the_wire_changes_no_bit(name):
    """Noise of zero and clipping at infinity; every method that takes them."""
    refused = {"clip", "noise"} & set(CONTRACT[name].refuses)
    settings = {"clip": float("inf"), "noise": 0.0}
    built = wire(**{part: value for part, value in settings.items() if part not in refused})
    (sim, _), (plain, _) = trained(name, built), trained(name, None)
    toy.assert_same_bits(sim.one_round.of_method(sim.state.server), plain.state.server)
    toy.assert_same_bits(sim.one_round.of_method(sim.state.clients), plain.state.clients)


@pytest.mark.parametrize("name", [n for n in CONTRACT if "compress" not in CONTRACT[n].refuses])
def test_every_update_can_be_compressed(name):
    plain, history = trained(name, None)
    sim, compressed = trained(name, wire(compress=Quantize(8)))
    assert np.isfinite(history["loss"].to_numpy()).all()
    assert Shapes.of(sim.one_round.of_method(sim.state.server)) == Shapes.of(plain.state.server)
    large = sum(leaf.size for leaf in jax.tree.leaves(plain.start.ups[-1])) > 30
    assert not large or compressed["bytes_up"][0].as_py() < history["bytes_up"][0].as_py()


def test_a_wire_is_traced_once():
    before = trace_count()
    sim, _ = trained("fedavg", wire(clip=0.05, noise=0.5), rounds=7)
    sim.advance(2, capacity=7)
    assert trace_count() == before + 1


def test_a_poisoned_client_breaks_the_mean_and_not_the_median():
    federation = toy.federation()
    pool = federation.clients.pool
    rows = np.asarray(federation.clients.parts["train"].rows)[: toy.SIZES[0]]
    poisoned = pool._replace(x=pool.x.at[rows].mul(1e6))
    broken = jax.tree.map(lambda a: a, federation.clients)
    object.__setattr__(broken, "pool", poisoned)
    ends = {}
    for aggregate in (None, CoordinateMedian()):
        sim = Simulation(
            hs.fedavg(outer_lr=0.1, batch_size=4), toy.LOGISTIC,
            hs.Federation(broken, None, federation.total, federation.trained, federation.counts),
            wire=wire(aggregate=aggregate),
        )  # fmt: skip
        sim.advance(2)
        ends[aggregate] = np.abs(toy.flat(sim.state.server.params)).max()
    assert ends[None] > 1e3
    assert ends[CoordinateMedian()] < 2


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("aruba", {"clip": 1.0, "noise": 1.0}, "Aruba.*noise.*negative"),
        ("local-only", {"clip": 1.0}, "LocalOnly.*clip.*send nothing"),
        ("bspiderboost", {"clip": 1.0, "noise": 1.0}, "BSpiderBoost.*noise.*grow"),
    ],
)
def test_a_method_refuses_by_name_what_makes_no_sense(name, settings, words):
    with pytest.raises(UsageError, match=words):
        trained(name, wire(**settings))


def test_noise_refuses_weights_by_samples():
    with pytest.raises(UsageError, match="samples"):
        trained("fedavg", wire(clip=1.0, noise=1.0), weighting="samples")


def test_noise_refuses_what_goes_beside_the_update():
    with pytest.raises(UsageError, match=r"MOMLv2.*gradient norms"):
        trained("moml-v2, gradient-lipschitz", wire(clip=1.0, noise=1.0))
