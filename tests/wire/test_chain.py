import math
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import tree
from headstart.errors import UsageError
from headstart.wire import (
    AdaptiveClip,
    Clip,
    Compress,
    CoordinateMedian,
    GaussianMechanism,
    Krum,
    Noise,
    Quantize,
    Sent,
    TopK,
    TrimmedMean,
    Wire,
    WirePart,
    check_wire,
    wire,
)
from tests.wire.updates import same_bits, stacked, update

KEY = jax.random.key(0)


class Traced(WirePart):
    """A part that says when it was called."""

    calls: list
    label: str

    kind = "test"
    name = "traced"

    def announce(self, server_state):
        return self.label

    def send(self, up, announced, own, key):
        self.calls.append(f"{announced} sends")
        return Sent(up + 1, (self.label,), {"bit": jnp.ones(())})

    def receive(self, server_state, mean, note, members, key):
        self.calls.append(f"{self.label} receives")
        assert note["bit"] == 1
        return mean * 2, (self.label, members)


def test_an_empty_wire_is_not_there():
    chain, up = Wire(), update()
    assert chain.init_client(up) == chain.init_server(up) == chain.announce(()) == ()
    sent = chain.send(up, (), (), KEY)
    assert sent.up is up
    assert (sent.own, sent.note) == ((), ())
    assert chain.receive((), up, (), 5, KEY)[0] is up
    assert chain.payload_bytes(up) == tree.nbytes(up)


def test_parts_send_in_order_and_receive_in_reverse():
    calls = []
    chain = Wire((Traced(calls, "a"), Traced(calls, "b")))
    sent = chain.send(jnp.zeros(()), chain.announce(chain.init_server(None)), chain.init_client(None), KEY)
    mean, server = chain.receive(((), ()), sent.up, sent.note, 7, KEY)
    assert calls == ["a sends", "b sends", "b receives", "a receives"]
    assert sent.own == (("a",), ("b",))
    assert mean == 8
    assert server == (("a", 7), ("b", 7))


def test_parts_draw_for_themselves():
    noise = GaussianMechanism(Clip(1.0), Noise(1.0, "client"))
    up = {"x": jnp.zeros(1000)}
    once = Wire((noise,)).send(up, ((),), ((),), KEY).up["x"]
    after = Wire((Clip(1.0), noise)).send(up, ((), ()), ((), ()), KEY).up["x"]
    assert abs(np.corrcoef(once, after)[0, 1]) < 0.1


@pytest.mark.parametrize("at", ["server", "client"])
def test_without_noise_and_bound_training_is_the_same_to_the_bit(at):
    """Twenty rounds of gradient steps on quadratics, compiled, with and without the chain."""
    centres = stacked([update(i) for i in range(4)])

    def run(chain):
        def one_round(carry, key):
            params, server, own = carry
            ups = jax.vmap(lambda centre: jax.tree.map(lambda x, c: 0.1 * (c - x), params, centre))(centres)
            keys = jax.random.split(key, 4)
            sent = jax.vmap(chain.send, in_axes=(0, None, 0, 0))(ups, chain.announce(server), own, keys)
            mean, note = tree.mean((sent.up, sent.note))
            mean, server = chain.receive(server, mean, note, 4, key)
            return (tree.add(params, mean), server, sent.own), None

        like = update()
        own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (4, *leaf.shape)), chain.init_client(like))
        start = (tree.zeros_like(like), chain.init_server(like), own)
        return jax.jit(lambda: jax.lax.scan(one_round, start, jax.random.split(KEY, 20))[0][0])()

    same_bits(run(Wire((GaussianMechanism(Clip(math.inf), Noise(0.0, at)),))), run(Wire()))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: wire(noise=1.0), "noise needs a clip.*Set clip"),
        (lambda: wire(delta=1e-5), "delta.*no noise"),
        (lambda: wire(clip=1.0, noise=1.0, delta=2.0), "delta = 2.0"),
        (
            lambda: wire(clip=1.0, noise=1.0, aggregate=CoordinateMedian()),
            "'median' does not go with noise",
        ),
        (lambda: wire(clip=1.0, noise=1.0, compress=Quantize()), "'quantize' does not go with noise.*rounding"),
        (lambda: wire(clip=1.0, noise=1.0, compress=TopK()), "'top-k' does not go with noise.*feedback"),
        (lambda: wire(clip=1.0, noise=Noise(1.0, "client"), compress=TopK()), "top-k.*largest noise"),
        (lambda: wire(compress=TopK(), aggregate=CoordinateMedian()), "'median' does not go with top-k.*krum"),
        (lambda: Wire((Compress((Quantize(),)), Clip(1.0))), "clip = 'fixed' cannot follow compress = 'quantize'"),
        (lambda: Wire((GaussianMechanism(Clip(1.0), Noise(1.0)),) * 2), "noise twice"),
        (lambda: Wire((GaussianMechanism(Clip(1.0), Noise(1.0)), Traced([], "a"))), "test = 'traced' does not go"),
    ],
)
def test_refused_together(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()


def test_allowed_together():
    wire(clip=1.0, noise=1.0, compress=TopK(feedback=False))
    wire(clip=1.0, noise=Noise(1.0, "client"), compress=Quantize(feedback=True), aggregate=CoordinateMedian())
    wire(compress=(TopK(), Quantize()), aggregate=Krum(1))
    Wire((Traced([], "a"), GaussianMechanism(Clip(1.0), Noise(1.0))))


def test_chains_of_names_and_tables():
    text = """
        clip = { name = "adaptive", initial = 2.0, quantile = 0.4 }
        noise = { multiplier = 0.8, at = "client" }
        compress = [{ name = "quantize", bits = 4 }]
        aggregate = { name = "trimmed-mean", share = 0.2 }
        delta = 1e-6
    """
    noise = Noise(0.8, at="client")
    same = Wire(
        (GaussianMechanism(AdaptiveClip(2.0, quantile=0.4), noise), Compress((Quantize(4),))), TrimmedMean(0.2), 1e-6
    )
    assert wire(**tomllib.loads(text)) == same
    assert wire(clip=1.0, noise=0.8) == Wire((GaussianMechanism(Clip(1.0), Noise(0.8)),))
    assert wire(compress="top-k").parts == (Compress((TopK(),)),)
    assert wire(aggregate="median").aggregator == CoordinateMedian()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clip": "adaptve"}, "clip = 'adaptve' is not known.*'adaptive'"),
        ({"clip": {"initial": 1.0}}, "clip = None is not known.*adaptive, fixed"),
        ({"clip": {"name": "adaptive"}}, "clip.initial is missing"),
        ({"clip": {"name": []}}, "clip = .. is not known"),
        ({"clip": True}, "clip = True is not a number"),
        ({"clip": 1.0, "noise": {"multiplier": 1.0, "where": "client"}}, "noise.where is not a setting of 'gaussian'"),
        ({"compress": 8}, "compress = 8 is not known.*quantize, top-k"),
        ({"compress": ["quantize", "topk"]}, "compress = 'topk'.*'top-k'"),
        ({"aggregate": {"name": "krum"}}, "aggregate.attackers is missing"),
    ],
)
def test_wrong_settings_are_named(settings, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        wire(**settings)


def test_builder_keeps_the_order():
    chain = wire(clip=AdaptiveClip(1.0), noise=Noise(0.5, "client"), compress=(Quantize(),), aggregate=Krum(1))
    assert chain.labels() == (
        ("clip", "adaptive"),
        ("noise", "gaussian"),
        ("compress", "quantize"),
        ("aggregate", "krum"),
    )
    assert wire(clip=2.0).parts == (Clip(2.0),)
    assert wire() == Wire()


def test_what_does_nothing_is_left_out():
    assert wire(clip=math.inf) == wire(clip=math.inf, noise=0.0, delta=1e-5) == wire(noise=Noise(0.0)) == Wire()
    assert wire(clip=2.0, noise={"multiplier": 0.0}) == wire(clip=2.0)


@pytest.mark.parametrize("label", ["compress", "top-k"])
def test_a_method_refuses_by_kind_or_name(label):
    chain = wire(clip=1.0, compress=TopK())
    with pytest.raises(UsageError, match=r"(?s)reptile does not go with compress = 'top-k'.*: it sends nothing"):
        check_wire(chain, "reptile", {label: "it sends nothing."}, "uniform", 5)
    check_wire(chain, "reptile", {"noise": "no."}, "samples", 5)


def test_a_weighting_or_a_cohort_is_refused():
    with pytest.raises(UsageError, match="noise does not go with weighting = 'samples'"):
        check_wire(wire(clip=1.0, noise=1.0), "fedavg", {}, "samples", 5)
    with pytest.raises(UsageError, match="at least 7 clients"):
        check_wire(wire(aggregate=Krum(2)), "fedavg", {}, "uniform", 5)
    check_wire(wire(aggregate=Krum(1)), "fedavg", {}, "uniform", 5)
    check_wire(Wire(), "fedavg", {}, "samples", 1)
