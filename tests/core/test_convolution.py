from dataclasses import dataclass, field
from functools import partial

import equinox as eqx
import flax.linen as linen
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import headstart as hs
from headstart.core import with_canonical_convolutions
from headstart.core.convolution import forms
from headstart.core.convolution.window import Window

SIZES = {"N": 2, "C": 4, "D": 4, "H": 7, "W": 6, "I": 4, "O": 6}
KERNEL = {"D": 2, "H": 3, "W": 2}


@dataclass(frozen=True)
class Case:
    """A convolution of images (batch 2, 4 channels) with a kernel to 6 channels."""

    numbers: tuple[str, str, str] = ("NHWC", "HWIO", "NHWC")
    strides: tuple[int, ...] = (1, 1)
    padding: str | tuple[tuple[int, int], ...] = "SAME"
    lhs_dilation: tuple[int, ...] | None = None
    rhs_dilation: tuple[int, ...] | None = None
    groups: dict[str, int] = field(default_factory=dict)

    def shapes(self):
        features, batches = self.groups.get("feature_group_count", 1), self.groups.get("batch_group_count", 1)
        sizes = SIZES | {"I": SIZES["C"] // features, "O": 2 * SIZES["C"] if features > 2 else SIZES["O"]}
        image = tuple(sizes[letter] * (batches if letter == "N" else 1) for letter in self.numbers[0])
        return image, tuple((sizes | KERNEL)[letter] for letter in self.numbers[1])

    def __call__(self, image, kernel):
        return lax.conv_general_dilated(
            image,
            kernel,
            self.strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            self.numbers,
            **self.groups,
        )


CASES = [
    Case(),
    Case(strides=(2, 3), padding="VALID"),
    Case(strides=(2, 1), padding=((2, 0), (-1, 3)), rhs_dilation=(2, 1)),
    Case(padding=((2, 1), (1, 2)), lhs_dilation=(2, 3)),
    Case(strides=(3, 2), padding=((0, 1), (2, 2)), lhs_dilation=(1, 2), rhs_dilation=(2, 3)),
    Case(("NCHW", "OIHW", "NCHW"), strides=(2, 2), padding=((1, 1), (1, 1))),
    Case(("CHWN", "IHWO", "HNWC")),
    Case(groups={"feature_group_count": 2}),
    Case(strides=(2, 1), groups={"feature_group_count": 4}),
    Case(("NCHW", "OIHW", "NCHW"), groups={"batch_group_count": 2}),
    Case(("NCW", "OIW", "NCW"), strides=(2,)),
    Case(("NWC", "WIO", "NWC"), (1,), ((2, 0),), rhs_dilation=(2,)),
    Case(("NDHWC", "DHWIO", "NDHWC"), strides=(2, 1, 1)),
    Case(("NCDHW", "OIDHW", "NCDHW"), (1, 1, 1), "VALID", groups={"feature_group_count": 2}),
]


def draw(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def entry(convolved):
    """A scalar whose derivatives of every order are not zero."""

    def loss(image, kernel):
        out = convolved(image, kernel)
        return jnp.sum(jnp.sin(out) * jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape))

    return loss


def derivatives(loss):
    """Value, gradient and Hessian-vector product."""

    def all_of(image, kernel):
        gradient = jax.grad(loss, (0, 1))
        return loss(image, kernel), jax.jvp(gradient, (image, kernel), (jnp.cos(image), jnp.sin(kernel)))

    return all_of


def close(ours, theirs, tolerance=1e-10):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(np.abs(b).max(initial=1)))


def agree(cases):
    """All cases in one program for each side."""
    inputs = [tuple(draw(shape, seed) for seed, shape in enumerate(case.shapes())) for case in cases]

    def side(wrap):
        return jax.jit(lambda inputs: [derivatives(wrap(entry(c)))(*i) for c, i in zip(cases, inputs, strict=True)])

    close(side(with_canonical_convolutions)(inputs), side(lambda loss: loss)(inputs))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def test_values_and_derivatives_are_those_of_the_native_convolution():
    agree(CASES)


whole = st.integers(1, 3)


@given(
    st.tuples(whole, whole),
    st.tuples(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), st.tuples(st.integers(-1, 3), st.integers(-1, 3))),
    st.tuples(whole, whole),
    st.tuples(whole, st.integers(1, 2)),
    st.sampled_from([1, 2, 4]),
)
@settings(max_examples=5, deadline=None)
def test_any_window(strides, padding, lhs_dilation, rhs_dilation, groups):
    agree(
        [Case(("NCHW", "IOHW", "NHWC"), strides, padding, lhs_dilation, rhs_dilation, {"feature_group_count": groups})]
    )


def test_every_form_is_the_native_convolution():
    """In single precision too, where XLA's own kernel is one of the forms, on one problem and on several."""
    windows = [
        Window((1, 1), ((1, 1), (0, 1)), (1, 1), (1, 1)),
        Window((2, 1), ((-1, 2), (3, -1)), (2, 1), (1, 2)),
    ]
    images, kernels = draw((3, 16, 9, 8, 5)).astype("float32"), draw((3, 3, 2, 5, 4), 1).astype("float32")

    def reference(window):
        def one(image, kernel):
            dilations = window.image_dilation, window.kernel_dilation
            numbers = ("NHWC", "HWIO", "NHWC")
            return lax.conv_general_dilated(image, kernel, window.strides, window.padding, *dilations, numbers)

        return jnp.stack([one(*pair) for pair in zip(images, kernels, strict=True)])

    def kernel_gradient(window, result):
        return jax.vjp(lambda k: forms.patches_convolve(images.astype(float), k, window), kernels.astype(float))[1](
            result.astype(float)
        )[0]

    @jax.jit
    def compare():
        pairs = []
        for window in windows:
            result = reference(window)
            by_kernel = kernel_gradient(window, result)
            wide = (2, 4) if window.strides[-1] == 1 and window.kernel_dilation[-1] == 1 else ()
            for form in (
                forms.native_convolve,
                forms.patches_convolve,
                *(partial(forms.widened_convolve, pixels=pixels) for pixels in wide),
            ):
                pairs.append((form(images, kernels, window), result))
                pairs.append((form(images[:1], kernels[:1], window), result[:1]))
            for form in (
                forms.native_correlate,
                forms.patches_correlate,
                *(partial(forms.widened_correlate, pixels=pixels) for pixels in wide),
            ):
                pairs.append((form(images, result, window, (3, 2)), by_kernel))
                pairs.append((form(images[:1], result[:1], window, (3, 2)), by_kernel[:1]))
        return pairs

    for ours, theirs in compare():
        close(ours, theirs, 2e-5)


@pytest.mark.parametrize(
    ("size", "channels", "filters", "strides", "together"),
    [(16, 3, 16, 1, 4), (8, 3, 16, 1, 2), (4, 3, 16, 1, 1), (15, 3, 16, 1, 1), (8, 3, 32, 1, 2), (8, 16, 16, 1, 2),
     (8, 16, 16, 2, 1), (8, 16, 32, 1, 1), (8, 32, 16, 1, 1)],
)  # fmt: skip
def test_few_filters_are_widened_until_there_is_a_fast_kernel(size, channels, filters, strides, together):
    image, kernel = (
        jnp.zeros((1, 2, size, size, channels), "float32"),
        jnp.zeros((1, 3, 3, channels, filters), "float32"),
    )
    window = Window((strides, strides), ((1, 1), (1, 1)), (1, 1), (1, 1))
    traced = jax.make_jaxpr(partial(forms.convolve, window=window))(image, kernel)
    (found,) = (eqn for eqn in traced.jaxpr.eqns if eqn.primitive.name == "conv_general_dilated")
    assert found.invars[1].aval.shape[-1] == filters * together


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_other_convolution_is_left_in_any_order(case):
    loss = with_canonical_convolutions(entry(case))

    def third(image, kernel):
        return jax.grad(lambda k: jnp.sum(jax.jvp(jax.grad(loss, 1), (image, k), (image, k))[1]))(kernel)

    inputs = [jax.ShapeDtypeStruct(shape, "float64") for shape in case.shapes()]
    assert "conv_general_dilated" in str(jax.make_jaxpr(entry(case))(*inputs))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(third)(*inputs))


def test_mapped_over_images_kernels_or_both():
    case, loss = Case(strides=(2, 1)), entry(Case(strides=(2, 1)))
    image, kernel = case.shapes()
    images, kernels = draw((3, *image)), draw((3, *kernel), 1)
    ours = derivatives(with_canonical_convolutions(loss))

    @jax.jit
    def both_sides():
        mapped = [
            jax.vmap(ours)(images, kernels),
            jax.vmap(ours, (0, None))(images, kernels[0]),
            jax.vmap(ours, (None, 0))(images[0], kernels),
        ]
        theirs = derivatives(loss)
        one_by_one = [
            [theirs(images[i], kernels[i]) for i in range(3)],
            [theirs(images[i], kernels[0]) for i in range(3)],
            [theirs(images[0], kernels[i]) for i in range(3)],
        ]
        return mapped, [jax.tree.map(lambda *rows: jnp.stack(rows), *each) for each in one_by_one]

    close(*both_sides())


POOLS = {
    "max": lambda x: linen.max_pool(x, (2, 2), (2, 2)),
    "overlapping": lambda x: linen.max_pool(x, (3, 2), (2, 1), "SAME"),
    "mean": lambda x: linen.avg_pool(x, (2, 3), (2, 2), "SAME"),
}


def test_pooling_and_its_derivatives():
    x = draw((2, 7, 6, 3))
    losses = [entry(lambda x, _, pool=pool: pool(x)) for pool in POOLS.values()]
    scale = jnp.ones(())

    def side(wrap):
        return jax.jit(lambda x: [derivatives(wrap(loss))(x, scale) for loss in losses])(x)

    close(side(with_canonical_convolutions), side(lambda loss: loss))
    text = str(jax.make_jaxpr(lambda x: [jax.grad(with_canonical_convolutions(loss))(x, scale) for loss in losses])(x))
    assert "reduce_window" not in text
    assert "select_and" not in text


def test_the_first_of_equal_pixels_gets_the_derivative_and_nan_stays():
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, (4, 6, 6, 3)), float)
    for pool in (POOLS["max"], POOLS["overlapping"]):
        both = [
            jax.grad(lambda x, f=f: jnp.sum(jnp.sin(f(x) + jnp.arange(3))))(x)
            for f in (pool, with_canonical_convolutions(pool))
        ]
        close(*both)
    torn = x.at[0, 1, 1, 0].set(jnp.nan)
    np.testing.assert_array_equal(with_canonical_convolutions(POOLS["max"])(torn), POOLS["max"](torn))


def plain(params, x):
    hidden = jax.nn.relu(x @ params["w"])
    hidden = lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h), hidden)
    return {"loss": jnp.mean(jax.checkpoint(jnp.sin)(hidden)), "out": (hidden, None)}


def test_a_function_without_convolution_is_traced_as_it_is():
    params, x = {"w": jnp.ones((3, 2))}, jnp.ones((4, 3))
    rewritten = with_canonical_convolutions(plain)
    assert str(jax.make_jaxpr(rewritten)(params, x)) == str(jax.make_jaxpr(plain)(params, x))
    assert jax.tree.structure(rewritten(params, x)) == jax.tree.structure(plain(params, x))


@jax.custom_vjp
def clipped(x):
    return Case()(x, jnp.ones(Case().shapes()[1]))


clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (jnp.clip(x, 0, 0.5) * jnp.mean(g),))


@jax.custom_jvp
def slanted(x):
    return Case()(x, jnp.ones(Case().shapes()[1]))


@slanted.defjvp
def _(primals, tangents):
    return slanted(primals[0]), 3 * slanted(tangents[0])


def conv(x, k):
    return Case()(x, k)[..., :4]


def nested(image, kernel):
    image = jax.jit(conv)(image, kernel)
    image = jax.checkpoint(conv)(image, kernel)
    image = lax.scan(lambda x, _: (jnp.tanh(conv(x, kernel)), None), image, None, length=2)[0]
    image = lax.cond(image.sum() > 0, conv, lambda x, k: x, image, kernel)
    image = lax.switch(jnp.argmax(image) % 2, [conv, lambda x, k: 2 * conv(x, k)], image, kernel)
    return jnp.sum(jnp.sin(clipped(image))) + jnp.sum(jnp.sin(slanted(image)))


def test_functions_inside_are_rewritten_and_custom_rules_kept():
    inputs = [draw(shape, seed) for seed, shape in enumerate(Case().shapes())]
    ours = with_canonical_convolutions(nested)

    @jax.jit
    def both(inputs):
        return [(f(*inputs), jax.grad(f, (0, 1))(*inputs)) for f in (ours, nested)]

    close(*both(inputs))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(jax.grad(ours, (0, 1)))(*inputs))

    def counted(x):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, conv(c[1], inputs[1])), (0, x))[1]

    close(jax.jit(with_canonical_convolutions(counted))(inputs[0]), counted(inputs[0]))


def test_a_function_used_twice_is_rewritten_once():
    inner = jax.jit(conv)

    def twice(x, k):
        return inner(inner(x, k), k)

    jaxpr = jax.make_jaxpr(with_canonical_convolutions(twice))(*[draw(shape) for shape in Case().shapes()])
    first, second = [equation.params["jaxpr"] for equation in jaxpr.eqns]
    assert first is second


def test_other_platforms_keep_their_own_convolution(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    inputs = [draw(shape) for shape in Case().shapes()]
    assert "conv_general_dilated" in str(jax.make_jaxpr(with_canonical_convolutions(conv))(*inputs))


def test_an_empty_result_keeps_the_native_convolution():
    image, kernel = jnp.ones((2, 2, 6, 4)), jnp.ones((3, 2, 4, 6))
    out = with_canonical_convolutions(Case(padding="VALID"))(image, kernel)
    assert out.shape == (2, 0, 5, 6)


def test_pooling_with_dilated_windows():
    x, ones = draw((2, 7, 8, 3)), (1,) * 4

    def pool(x):
        return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), ones, "VALID", ones, (1, 2, 3, 1))

    close(with_canonical_convolutions(pool)(x), pool(x))


def test_integers_keep_the_native_convolution():
    image, kernel = (jnp.ones(shape, int) for shape in Case().shapes())
    np.testing.assert_array_equal(with_canonical_convolutions(conv)(image, kernel), conv(image, kernel))


class EquinoxNet(eqx.Module):
    conv: eqx.nn.Conv2d
    up: eqx.nn.ConvTranspose2d
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.conv = eqx.nn.Conv2d(1, 4, 3, 2, key=keys[0])
        self.up = eqx.nn.ConvTranspose2d(4, 2, 2, 2, key=keys[1])
        self.head = eqx.nn.Linear(18, 2, key=keys[2])

    def __call__(self, x):
        x = eqx.nn.MaxPool2d(2, 2)(jax.nn.relu(self.up(jax.nn.relu(self.conv(x[None])))))
        return self.head(x.reshape(-1))


class NNXNet(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.depthwise = nnx.Conv(4, 4, (3, 3), feature_group_count=4, rngs=rngs)
        self.head = nnx.Linear(36, 2, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.depthwise(nnx.relu(self.conv(x[..., None])))), (2, 2), (2, 2))
        return self.head(x.reshape(x.shape[0], -1))


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.avg_pool(linen.relu(linen.Conv(4, (3, 3))(x[..., None])), (2, 2), (2, 2))
        return linen.Dense(2)(x.reshape(x.shape[0], -1))


def haiku_net(x):
    x = hk.max_pool(jax.nn.relu(hk.Conv2D(4, 3)(x[..., None])), (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
    return hk.Linear(2)(hk.Flatten()(x))


@dataclass(frozen=True)
class Functions(hs.models.Model):
    """A pair of functions as a model."""

    network: object
    extra: tuple = ()

    def init(self, key):
        return self.network.init(key, jnp.zeros((1, 7, 7), jnp.float32))

    def apply(self, params, x):
        return self.network.apply(params, *self.extra, x)


NETWORKS = {
    "equinox": hs.EquinoxModel(EquinoxNet),
    "nnx": hs.NNXModel(NNXNet),
    "linen": Functions(LinenNet()),
    "haiku": Functions(hk.transform(haiku_net), (None,)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_every_library_in_a_scan_over_clients_of_their_own(name):
    problem = hs.Classification(NETWORKS[name])
    with jax.enable_x64(False):
        params = problem.init(jax.random.key(0))
        batch = hs.Examples(draw((3, 2, 7, 7)).astype("float32"), jnp.zeros((3, 2), "int32"))

        def descended(loss):
            def gradient(w, batch):
                return jax.grad(loss)(w, batch)

            def step(w, batch):
                moved = jax.tree.map(lambda a, b: a - 0.1 * b, w, gradient(w, batch))
                product = jax.jvp(lambda p: gradient(p, batch), (w,), (moved,))[1]
                return jax.tree.map(lambda a, b: a - 0.1 * b, moved, product), loss(w, batch)

            return lambda w: jax.vmap(lambda b: lax.scan(lambda w, _: step(w, b), w, None, length=2))(batch)

        text = str(jax.make_jaxpr(descended(problem.objective()))(params))
        assert "headstart_convolve" in text
        assert "conv_general_dilated" not in text
        ours, theirs = jax.jit(lambda w: [descended(f)(w) for f in (problem.objective(), problem.loss)])(params)
        close(ours, theirs, 1e-4)
        one = jax.tree.map(lambda a: a[0], batch)
        close(*(f(params, one) for f in (with_canonical_convolutions(problem.scores), problem.scores)), 1e-5)


def test_sharded_over_devices_with_varying_axes_checked():
    mesh = jax.make_mesh((1,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    split, same = jax.sharding.PartitionSpec("clients"), jax.sharding.PartitionSpec()
    image, kernel = (draw(shape) for shape in Case().shapes())
    loss = with_canonical_convolutions(entry(Case()))
    gradient = jax.shard_map(jax.grad(loss, 1), mesh=mesh, in_specs=(split, same), out_specs=same)
    close(jax.jit(gradient)(image, kernel), jax.grad(entry(Case()), 1)(image, kernel))
