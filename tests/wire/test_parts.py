"""What every part keeps: one table puts all of them through the same tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import tree
from headstart.wire import (
    AdaptiveClip,
    Clip,
    Compress,
    CoordinateMedian,
    GaussianMechanism,
    Krum,
    Noise,
    Quantize,
    TopK,
    TrimmedMean,
    Wire,
    wire,
)
from tests.wire.updates import flat, same_bits, stacked, update

PARTS = {
    "clip": Clip(2.0),
    "adaptive": AdaptiveClip(2.0),
    "central": GaussianMechanism(Clip(2.0), Noise(0.5)),
    "local": GaussianMechanism(AdaptiveClip(2.0), Noise(0.5, "client")),
    "quantize": Compress((Quantize(5, feedback=True),)),
    "top-k": Compress((TopK(0.3, feedback=False),)),
    "both": Compress((TopK(0.3), Quantize(8))),
}
CHAINS = {name: Wire((part,)) for name, part in PARTS.items()} | {
    "empty": Wire(),
    "all": wire(clip=AdaptiveClip(2.0), noise=Noise(0.5, "client"), compress=Quantize()),
}
AGGREGATORS = [CoordinateMedian(), TrimmedMean(0.3), Krum(1, keep=2)]
DTYPES = [jnp.float32, jnp.bfloat16, jnp.float16]


def a_round(chain, ups, key):
    """What three clients send one after the other, and what the server makes of their mean."""
    server = chain.init_server(ups[0])
    sent = [
        chain.send(up, chain.announce(server), chain.init_client(up), jax.random.fold_in(key, i))
        for i, up in enumerate(ups)
    ]
    means = tree.mean(stacked([(one.up, one.note) for one in sent]))
    return sent, chain.receive(server, *means, len(ups), jax.random.fold_in(key, 99))


@pytest.fixture(params=CHAINS, ids=str)
def chain(request):
    return CHAINS[request.param]


def test_shapes_and_types_stay(chain):
    for dtype in DTYPES:
        ups = [update(i, dtype) for i in range(3)]
        sent, (mean, _) = jax.eval_shape(lambda ups, chain=chain: a_round(chain, ups, jax.random.key(0)), ups)
        for out in (sent[0].up, mean):
            assert jax.tree.structure(out) == jax.tree.structure(ups[0])
            assert all(o.shape == u.shape and o.dtype == u.dtype for o, u in _pairs(out, ups[0]))


def test_states_keep_their_types(chain):
    ups = [update(i) for i in range(3)]
    sent, (_, server) = jax.eval_shape(lambda ups: a_round(chain, ups, jax.random.key(0)), ups)
    for after, before in ((sent[0].own, chain.init_client(ups[0])), (server, chain.init_server(ups[0]))):
        assert jax.tree.structure(after) == jax.tree.structure(before)
        assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in _pairs(after, before))


def test_one_program_for_all_clients(chain):
    """Jitted and vmapped over clients, a chain gives what it gives client by client."""
    ups = [update(i) for i in range(3)]
    keys = jax.random.split(jax.random.key(1), 3)
    told, own = chain.announce(chain.init_server(ups[0])), chain.init_client(ups[0])
    together = jax.jit(jax.vmap(chain.send, in_axes=(0, None, None, 0)))(stacked(ups), told, own, keys)
    for i, up in enumerate(ups):
        alone = chain.send(up, told, own, keys[i])
        np.testing.assert_allclose(flat(jax.tree.map(lambda a, i=i: a[i], together)), flat(alone), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_update_is_finite(chain, dtype):
    nothing = tree.zeros_like(update(0, dtype))
    sent, (mean, server) = a_round(chain, [nothing] * 3, jax.random.key(0))
    assert np.isfinite(flat((sent, mean, server))).all()
    if chain.mechanism() is None:
        assert not flat((sent[0].up, mean)).any()


def test_double_precision(x64):
    up = update(0, jnp.float64)
    for chain in CHAINS.values():
        sent, (mean, _) = a_round(chain, [up] * 3, jax.random.key(0))
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves((sent[0].up, mean)))
    tight = CHAINS["clip"].send(up, ((),), ((),), jax.random.key(0)).up
    np.testing.assert_allclose(flat(tight), flat(up) * 2 / np.linalg.norm(flat(up)), rtol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_encoded_bytes_are_those_of_the_accounts(chain, dtype):
    up = update(3, dtype)
    told, own, key = chain.announce(chain.init_server(up)), chain.init_client(up), jax.random.key(5)
    payload, sent = jax.jit(chain.encode)(up, told, own, key)
    arrays = {name: np.asarray(array) for name, array in payload.items()}
    assert sum(array.nbytes for array in arrays.values()) == chain.payload_bytes(up)
    assert chain.payload_bytes(jax.eval_shape(lambda: up)) == chain.payload_bytes(up)
    same_bits(chain.decode(arrays, up), (sent.up, sent.note))
    same_bits(sent, jax.jit(chain.send)(up, told, own, key))


def test_settings_can_be_swept():
    """Numbers are leaves: one program runs a grid of them."""
    up = update()

    def clipped_norm(norm, multiplier):
        chain = wire(clip=Clip(norm), noise=Noise(multiplier))
        return tree.norm(chain.send(up, ((),), ((),), jax.random.key(0)).up)

    norms = jnp.asarray([0.5, 1.0, 1e9])
    np.testing.assert_allclose(jax.vmap(clipped_norm)(norms, norms), [0.5, 1.0, np.linalg.norm(flat(up))], rtol=1e-5)


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=lambda a: a.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_aggregates_keep_shapes_and_ignore_filling(aggregator, dtype):
    ups = [update(i, dtype) for i in range(6)]
    weights = jnp.asarray([1.0, 0, 1, 1, 1, 1])
    combine = jax.jit(aggregator.combine)
    results = []
    for filling in (0.0, jnp.nan, jnp.inf, -jnp.inf):
        ups[1] = jax.tree.map(lambda leaf, filling=filling: jnp.full_like(leaf, filling), ups[1])
        results.append(combine(stacked(ups), weights))
    assert np.isfinite(flat(results[0])).all()
    for result in results:
        assert all(r.shape == u.shape and r.dtype == u.dtype for r, u in _pairs(result, ups[0]))
        same_bits(result, results[0])


def _pairs(one, other):
    return zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
