import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.core.batch import Weighted, weighing
from headstart.data.episodes import Episodes
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from headstart.errors import UsageError
from headstart.experiment import Settings, with_settings
from headstart.models import Conv, conv
from tests.toy import assert_close

FORMS = ("cpu", "gpu")
"""The machines that have a form of the convolution of their own."""


def images(number, *shape, seed=0):
    return np.random.default_rng(seed).random((number, *shape))


def numbers(params):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def numpy_convolution(x, weight):
    """By the definition: every pixel of the result is the sum over its neighbourhood; outside there is nothing."""
    n, height, width, _ = x.shape
    result = np.zeros((n, height, width, weight.shape[-1]))
    for row in range(height):
        for column in range(width):
            for i in range(3):
                for j in range(3):
                    r, c = row + i - 1, column + j - 1
                    if 0 <= r < height and 0 <= c < width:
                        result[:, row, column] += x[:, r, c] @ weight[i, j]
    return result


def numpy_forward(params, x):
    for block in params.blocks:
        z = numpy_convolution(x, np.asarray(block.weight))
        if block.scale is not None:
            flat = z.reshape(-1, z.shape[-1])
            z = np.asarray(block.scale) * (z - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-3)
        z = np.maximum(z + np.asarray(block.shift), 0)
        high, wide = z.shape[1] // 2 * 2, z.shape[2] // 2 * 2
        x = np.max([z[:, i:high:2, j:wide:2] for i in range(2) for j in range(2)], axis=0)
    return x.reshape(len(x), -1) @ np.asarray(params.head.weight).T + np.asarray(params.head.bias)


def unsettled(params):
    """Parameters moved away from scales of one and shifts of zero; the first scale of every block is negative."""
    rng = np.random.default_rng(5)
    params = jax.tree.map(lambda a: jnp.asarray(np.asarray(a) + 0.1 * rng.normal(size=a.shape), a.dtype), params)
    scales = [block.scale for block in params.blocks]
    turned = [None if scale is None else scale.at[0].multiply(-1) for scale in scales]
    return eqx.tree_at(lambda p: [b.scale for b in p.blocks], params, turned, is_leaf=lambda leaf: leaf is None)


@pytest.mark.parametrize(
    ("inputs", "blocks", "features"),
    [
        ((28, 28), 4, (1, 1)),
        ((28, 28, 1), 2, (7, 7)),
        ((32, 32, 3), 4, (2, 2)),
        ((17, 21), 4, (1, 1)),
        ((9, 14, 2), 2, (2, 3)),
    ],
)
def test_shapes(inputs, blocks, features):
    model = Conv(inputs, outputs=5, filters=4, blocks=blocks)
    params = model.init(jax.random.key(0))
    assert params.head.weight.shape == (5, 4 * features[0] * features[1])
    shape = jax.eval_shape(model.apply, params, jnp.zeros((3, *inputs), jnp.float32))
    assert (shape.shape, shape.dtype) == ((3, 5), jnp.float32)


def test_parameters_of_the_papers_network():
    params = Conv((28, 28), outputs=5).init(jax.random.key(0))
    convolutions = 9 * 64 + 3 * 9 * 64 * 64
    assert numbers(params) == convolutions + 4 * 2 * 64 + (64 * 5 + 5) == 112_005
    for block in params.blocks:
        bound = 1 / np.sqrt(np.prod(block.weight.shape[:3]))
        assert np.abs(block.weight).max() <= bound
        assert abs(np.std(block.weight) * np.sqrt(3) / bound - 1) < 0.1
        np.testing.assert_array_equal(block.scale, 1)
        np.testing.assert_array_equal(block.shift, 0)
    plain = Conv((28, 28), outputs=5, normalisation="none").init(jax.random.key(0))
    assert numbers(plain) == 112_005 - 4 * 64
    assert 0 < np.abs(plain.blocks[0].shift).max() <= 1 / 3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("backend", FORMS)
@pytest.mark.parametrize("normalisation", ["batch", "none"])
def test_forward_pass(monkeypatch, backend, normalisation):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    model = Conv((9, 7, 2), outputs=3, filters=4, blocks=2, normalisation=normalisation)
    params, x = unsettled(model.init(jax.random.key(0))), images(5, 9, 7, 2)
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), numpy_forward(params, x), rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_samples_with_weights_are_each_normalised_alone():
    model = Conv((8, 8), outputs=3, filters=4, blocks=2)
    loss, params = jax.jit(hs.Classification(model).loss), unsettled(model.init(jax.random.key(0)))
    batch = hs.Examples(jnp.asarray(images(4, 8, 8)), jnp.asarray([0, 1, 2, 0]))
    weighted = Weighted(batch, jnp.asarray([1.0, 1.0, 1.0, 0.0]))
    alone = [loss(params, jax.tree.map(lambda a, i=i: a[i : i + 1], batch)) for i in range(3)]
    np.testing.assert_allclose(weighing(loss)(params, weighted), np.mean(alone), rtol=1e-10)
    together = loss(params, jax.tree.map(lambda a: a[:3], batch))
    assert abs(together - np.mean(alone)) > 1e-3


@pytest.mark.parametrize(("precision", "tolerance"), [(32, 1e-5), (64, 1e-10)])
def test_both_forms_agree_in_value_gradient_and_curvature(monkeypatch, precision, tolerance):
    with jax.enable_x64(precision == 64):
        model = Conv((10, 9, 2), outputs=3, filters=5, blocks=2)
        problem = hs.Classification(model)
        params, v = (unsettled(model.init(jax.random.key(seed))) for seed in (0, 1))
        batch = hs.Examples(jnp.asarray(images(6, 10, 9, 2)), jnp.arange(6) % 3)

        def all_of_it(backend):
            monkeypatch.setattr(jax, "default_backend", lambda: backend)

            @jax.jit
            def values(params, v, batch):
                gradient_and_product = jax.jvp(lambda w: jax.grad(problem.objective())(w, batch), (params,), (v,))
                return model.apply(params, batch.x), gradient_and_product

            return values(params, v, batch)

        canonical, native = (all_of_it(backend) for backend in FORMS)
        assert canonical[0].dtype == jnp.dtype(f"float{precision}")
        assert_close(canonical, native, tolerance)


@pytest.mark.usefixtures("x64")
def test_a_block_is_the_textbooks_in_value_gradient_and_curvature():
    def textbook(block, x):
        x = conv.convolve(x, block.weight)
        x = block.scale * (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + conv.EPSILON)
        return conv.pool(jax.nn.relu(x + block.shift))

    net, v = (unsettled(Conv((9, 7, 2), 3, filters=4, blocks=2).init(jax.random.key(seed))) for seed in (0, 1))
    x = jnp.asarray(images(5, 9, 7, 2))

    def all_of_it(apply):
        def loss(block):
            return jnp.sum(jnp.sin(apply(block, x)))

        return loss(net.blocks[0]), jax.jvp(jax.grad(loss), (net.blocks[0],), (v.blocks[0],))

    ours, theirs = (jax.jit(all_of_it, static_argnums=0)(apply) for apply in (conv.ConvBlock.__call__, textbook))
    assert_close(ours, theirs, 1e-9)


def test_the_convolution_follows_the_machine(monkeypatch):
    model = Conv((8, 8, 2), outputs=3, filters=4, blocks=2)
    params, batch = model.init(jax.random.key(0)), hs.Examples(jnp.ones((2, 8, 8, 2)), jnp.arange(2))
    for backend in FORMS:
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        text = str(jax.make_jaxpr(hs.Classification(model).objective())(params, batch))
        assert ("conv_general_dilated" in text) == (backend == "gpu")


def test_equal_pixels_are_pooled_with_a_finite_derivative():
    gradient = jax.jit(jax.grad(lambda x: conv.pool(x).sum()))(jnp.ones((2, 5, 4, 3)))
    assert gradient.sum() == 2 * 2 * 2 * 3
    assert set(np.unique(gradient)) == {0, 1}


def few_shot(ways, held_out):
    """Clients with classes of their own: where a bright square is, with noise."""
    rng, classes, each, side = np.random.default_rng(0), 12, 8, 8
    y = np.repeat(np.arange(classes), each)
    x = rng.integers(0, 40, (len(y), side, side), dtype=np.uint8)
    for image, label in zip(x, y, strict=True):
        row, column = divmod(label, 4)
        image[2 * row : 2 * row + 3, 2 * column : 2 * column + 2] += 200
    samples = Samples("squares", x, y, tuple(map(str, range(classes))))
    return hs.Federation.from_episodes(
        samples, RowLists.by_owner(y // 3, 4), Episodes(ways, shots=1, queries=4), held_out=held_out
    )


def test_per_fedavg_trains_one_on_episodes():
    federation = few_shot(ways=3, held_out=1)
    problem = hs.Classification(Conv(federation.task.inputs, federation.task.outputs, filters=8, blocks=2))
    algorithm = hs.per_fedavg(inner_lr=0.05, outer_lr=0.05, batch_size="full", local_steps=5)
    result = hs.train(algorithm, problem, federation, rounds=5, evaluation=hs.Evaluation(steps=(0, 1), every=5))
    loss = result.history["loss"].to_numpy()
    assert np.isfinite(loss).all()
    assert result.final("loss", 1)["mean"] < np.log(3) / 2


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Conv(784, 10), "inputs = 784 are not images.*height, width"),
        (lambda: Conv((80,), 10), r"inputs = \(80,\) are not images"),
        (lambda: Conv((8, 9), 10), "8x9 are too small .* 4 blocks.*blocks to 3 or less"),
        (lambda: Conv((28, 0), 10), "inputs = 0"),
        (lambda: Conv((28, 28), 0), "outputs = 0"),
        (lambda: Conv((28, 28), 10, filters=0), "filters = 0"),
        (lambda: Conv((28, 28), 10, normalisation="bach"), "no normalisation 'bach'.*Did you mean 'batch'"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()


def test_a_configuration_can_ask_for_one():
    tables = {
        "data": {"name": "mnist-small", "clients": 4, "held_out": 1},
        "model": {"name": "mlp", "hidden": [8]},
        "algorithm": {"name": "fedavg"},
    }
    asked = Settings.from_tables(with_settings(tables, ["model.name=conv", "model.filters=2"]))
    assert asked.resolved["model"] == {"name": "conv", "filters": 2, "blocks": 4, "normalisation": "batch"}
    assert asked.problem(asked.data.build()) == hs.Classification(Conv((28, 28), 10, filters=2))

    waves = Settings.from_tables(with_settings(tables, ["model.name=conv", "data.name=sine"]))
    with pytest.raises(UsageError, match="inputs = 1 are not images"):
        waves.problem(waves.data.build())
