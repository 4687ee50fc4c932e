"""The networks people expect: shapes, numbers of parameters and forward passes against plain numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.core import tree
from headstart.errors import UsageError
from headstart.models import CNN, MODELS, Linear, Recurrent, ResNet, conv
from tests.toy import assert_close


def numbers(model):
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))


def numpy_convolution(x, weight, stride=1):
    """By the definition: every pixel of the result is the sum over its neighbourhood; outside there is nothing."""
    n, height, width, _ = x.shape
    kernel = weight.shape[0]
    result = np.zeros((n, -(-height // stride), -(-width // stride), weight.shape[-1]))
    for row in range(0, height, stride):
        for column in range(0, width, stride):
            for i in range(kernel):
                for j in range(kernel):
                    r, c = row + i - kernel // 2, column + j - kernel // 2
                    if 0 <= r < height and 0 <= c < width:
                        result[:, row // stride, column // stride] += x[:, r, c] @ weight[i, j]
    return result


def numpy_pool(x):
    high, wide = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return np.max([x[:, i:high:2, j:wide:2] for i in range(2) for j in range(2)], axis=0)


def dense(layer, x):
    return x @ layer.weight.T + layer.bias


def prepared(model, samples, seed=0):
    """Parameters moved away from ones and zeros, as numpy too, and inputs."""
    rng = np.random.default_rng(seed)
    params = model.init(jax.random.key(seed))
    params = jax.tree.map(lambda a: jnp.asarray(np.asarray(a) + 0.1 * rng.normal(size=a.shape)), params)
    return params, jax.tree.map(np.asarray, params), rng.normal(size=(samples, *model.inputs))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_convolution(kernel, stride):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(2, 7, 6, 3)), rng.normal(size=(kernel, kernel, 3, 4))
    want = numpy_convolution(x, weight, stride)
    np.testing.assert_allclose(conv.convolve(jnp.asarray(x), jnp.asarray(weight), stride), want, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_two_layer_network_of_federated_averaging():
    assert numbers(CNN((28, 28), 10)) == 1_663_370  # McMahan et al. 2017, section 3
    model = CNN((9, 7, 2), outputs=3, filters=(4, 5), hidden=6)
    params, plain, x = prepared(model, 3)
    want = x
    for block in plain.blocks:
        want = np.maximum(numpy_pool(numpy_convolution(want, block.weight) + block.shift), 0)
    want = dense(plain.head, np.maximum(dense(plain.hidden, want.reshape(3, -1)), 0))
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), want, rtol=1e-10)


def numpy_group_norm(x, groups):
    n, height, width, filters = x.shape
    flat = x.reshape(n, height * width, groups, filters // groups)
    mean, variance = flat.mean(axis=(1, 3), keepdims=True), flat.var(axis=(1, 3), keepdims=True)
    return ((flat - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)


@pytest.mark.usefixtures("x64")
def test_the_residual_network():
    assert numbers(ResNet((32, 32, 3), 10, depth=20)) == 269_722  # He et al. 2016, table 6: 0.27M
    assert numbers(ResNet((32, 32, 3), 10, depth=32)) == 464_154
    model = ResNet((7, 6, 2), outputs=3, depth=8, width=4, groups=2)
    params, plain, x = prepared(model, 3)

    def layer(part, x, stride=1):
        return numpy_group_norm(numpy_convolution(x, part.weight, stride), 2) * part.scale + part.shift

    want = np.maximum(layer(plain.stem, x), 0)
    for number, block in enumerate(plain.blocks):
        stride = 2 if number else 1
        skipped = want[:, ::stride, ::stride]
        more = block.first.weight.shape[-1] - skipped.shape[-1]
        skipped = np.concatenate([skipped, np.zeros((*skipped.shape[:3], more))], axis=-1)
        inside = layer(block.second, np.maximum(layer(block.first, want, stride), 0))
        want = np.maximum(skipped + inside, 0)
    want = dense(plain.head, want.mean(axis=(1, 2)))
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), want, rtol=1e-9)
    alone = [model.apply(params, x[i : i + 1])[0] for i in range(3)]
    np.testing.assert_allclose(alone, want, rtol=1e-9)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_recurrent(layer, x):
    """PyTorch's equations, a step and a sample at a time."""
    units = layer.recurrent.shape[1]
    result = np.zeros((*x.shape[:2], units))
    for sample in range(len(x)):
        h, c = np.zeros(units), np.zeros(units)
        for t in range(x.shape[1]):
            drive = layer.weight @ x[sample, t] + layer.bias
            own = layer.recurrent @ h + layer.recurrent_bias
            if layer.cell == "gru":
                r, z = (sigmoid(drive[g * units : (g + 1) * units] + own[g * units : (g + 1) * units]) for g in (0, 1))
                h = (1 - z) * np.tanh(drive[2 * units :] + r * own[2 * units :]) + z * h
            else:
                i, f, g, o = np.split(drive + own, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            result[sample, t] = h
    return result


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_networks(cell):
    model = Recurrent((5, 4), outputs=3, embedding=2, hidden=(6, 7), cell=cell)
    params, plain, x = prepared(model, 3)
    want = x @ plain.embedding
    for layer in plain.layers:
        want = numpy_recurrent(layer, want)
    want = dense(plain.head, want[:, -1])
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), want, rtol=1e-10)


def test_codes_and_one_hot_vectors_are_the_same():
    by_code = Recurrent((6,), outputs=5, vocabulary=5, hidden=(4,))
    one_hot = Recurrent((6, 5), outputs=5, hidden=(4,))
    params, codes = by_code.init(jax.random.key(0)), np.random.default_rng(0).integers(0, 5, (3, 6))
    want = one_hot.apply(params, np.eye(5, dtype=np.float32)[codes])
    for kind in (np.uint8, np.int32, np.float32):  # numbers are what samples of no other kind become
        np.testing.assert_allclose(by_code.apply(params, jnp.asarray(codes.astype(kind))), want, rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_linear():
    model = Linear((2, 3), outputs=2)
    params, plain, x = prepared(model, 4)
    np.testing.assert_allclose(model.apply(params, x), dense(plain.layers[0], x.reshape(4, 6)), rtol=1e-12)
    assert numbers(model) == 14


SMALL = {
    "cnn": ((8, 8), {"filters": (3, 4), "hidden": 5}),
    "conv": ((8, 8), {"filters": 3, "blocks": 2, "normalisation": "none"}),
    "linear": ((3,), {}),
    "mlp": ((3,), {"hidden": (4,), "dropout": 0.3}),
    "recurrent": ((4, 3), {"hidden": (5,)}),
    "resnet": ((8, 8), {"width": 4, "groups": 2}),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MODELS)
def test_curvature_of_every_network(name):
    """The Hessian-vector product is the difference of gradients."""
    inputs, options = SMALL[name]
    model = MODELS[name](inputs=inputs, outputs=3, **options)
    params, _, x = prepared(model, 4)
    batch, loss, h = hs.Examples(jnp.asarray(x), jnp.asarray([0, 1, 2, 1])), hs.Classification(model).loss, 1e-6
    v = jax.tree.map(lambda a: jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), params)

    @jax.jit
    def products(params):
        gradient = jax.grad(loss)
        ahead, behind = (gradient(tree.add_scaled(params, step, v), batch) for step in (h, -h))
        product = jax.jvp(lambda w: gradient(w, batch), (params,), (v,))[1]
        return product, tree.scale(1 / (2 * h), tree.sub(ahead, behind))

    exact, difference = products(params)
    assert_close(exact, difference, 1e-5)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: CNN(784, 10), "inputs = 784 are not images"),
        (lambda: CNN((3, 9), 10), "3x9 are too small"),
        (lambda: CNN((28, 28), 10, kernel=4), "kernel = 4 has no pixel in its middle"),
        (lambda: ResNet((28, 28), 10, depth=10), "depth = 10 is not 6 n [+] 2"),
        (lambda: ResNet((28, 28), 10, groups=3), "width = 16 .* groups = 3"),
        (lambda: ResNet((784,), 10), "are not images"),
        (lambda: Recurrent((80,), 80), "are codes, but not how many.*Set vocabulary"),
        (lambda: Recurrent((8, 8, 3), 80), "are not sequences"),
        (lambda: Recurrent((8, 5), 80, vocabulary=7), "vocabulary = 7, but every step has 5"),
        (lambda: Recurrent((8, 5), 80, cell="lstmm"), "no cell 'lstmm'.*'lstm'"),
        (lambda: Recurrent((8, 5), 80, hidden=()), "hidden is empty"),
        (lambda: Linear(0, 1), "inputs = 0"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()
