"""A second-order meta-gradient of conv-4 on a 5-way 1-shot task, with both forms of the convolution and in PyTorch.

    python -m benchmarks.conv_episode [--repeats 9]

28x28 images, 64 filters, one exact inner step, 15 queries a class. Also for several clients with weights of their own
computed together, where XLA's convolution becomes a grouped one. Without PyTorch its side is left out.
"""

from collections.abc import Callable
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import headstart as hs
from benchmarks.common import interleaved, parser
from headstart.core import tree
from headstart.models import Conv, ConvNet, conv

WAYS, QUERIES, SIDE, ALPHA, TOGETHER = 5, 15, 28, 0.1, 4
PROBLEM = hs.Classification(Conv((SIDE, SIDE), WAYS))


def episode() -> tuple[hs.Examples, hs.Examples]:
    """Random images to adapt on and to be judged by."""
    rng = np.random.default_rng(0)

    def side(each: int) -> hs.Examples:
        x = rng.random((WAYS * each, SIDE, SIDE), np.float32)
        return hs.Examples(jnp.asarray(x), jnp.repeat(jnp.arange(WAYS), each))

    return side(1), side(QUERIES)


def meta_gradient(params: ConvNet, support: hs.Examples, query: hs.Examples) -> ConvNet:
    """``(I - alpha H) grad f(u)`` after one inner step to ``u``."""

    def inner(w: ConvNet) -> ConvNet:
        return jax.grad(PROBLEM.loss)(w, support)

    adapted = tree.add_scaled(params, -ALPHA, inner(params))
    return hs.Exact().pull(inner, params, ALPHA, jax.grad(PROBLEM.loss)(adapted, query))


def compiled(form: Callable, function: Callable, *arguments: object) -> Callable[[], object]:
    """The function with one form of the convolution, traced and run once."""
    with patch.object(conv, "convolve", form):
        # A function of its own: what has been traced with the other form is not to be found.
        run = jax.jit(lambda *given: function(*given)).lower(*arguments).compile()
    side = lambda: jax.block_until_ready(run(*arguments))  # noqa: E731
    side()
    return side


def torch_side(params: ConvNet, support: hs.Examples, query: hs.Examples) -> Callable[[], list]:
    """The same arithmetic as a plain PyTorch loop."""
    from torch.nn import functional as F

    from benchmarks import plain_torch as plain

    def loss(weights: plain.Params, batch: tuple) -> "plain.torch.Tensor":
        x = batch[0][:, None]
        for i in range(0, len(weights) - 2, 3):
            weight, scale, shift = weights[i : i + 3]
            x = F.batch_norm(F.conv2d(x, weight, padding=1), None, None, scale, shift, training=True, eps=conv.EPSILON)
            x = F.max_pool2d(F.relu(x), 2)
        return F.cross_entropy(F.linear(x.flatten(1), weights[-2], weights[-1]), batch[1])

    arrays = [a for b in params.blocks for a in (jnp.transpose(b.weight, (3, 2, 0, 1)), b.scale, b.shift)]
    arrays += [params.head.weight, params.head.bias]
    w = [plain.torch.from_numpy(np.array(a, order="C")) for a in arrays]
    inner, outer = plain.to_torch(support), plain.to_torch(query)

    def run() -> list:
        u = [a - ALPHA * b for a, b in zip(w, plain.gradient(loss, w, inner), strict=True)]
        return plain.pull(loss, w, plain.gradient(loss, u, outer), inner, ALPHA, None)

    return run


def main() -> None:
    options = parser(__doc__).parse_args()
    params, (support, query) = PROBLEM.init(jax.random.key(0)), episode()
    forms = {"patches": conv.patch_convolution, "native": conv.native_convolution}
    sides = {name: compiled(form, meta_gradient, params, support, query) for name, form in forms.items()}
    ours = sides["patches"]()
    print(f"native differs by {_difference(ours.head.weight, sides['native']().head.weight):.1e} of the largest entry")
    try:
        sides["PyTorch loop"] = torch_side(params, support, query)
        theirs = sides["PyTorch loop"]()[-2].numpy()
        print(f"PyTorch differs by {_difference(ours.head.weight, theirs):.1e} of the largest entry")
    except (ImportError, SystemExit):
        print("PyTorch is not installed, so its side is left out.")
    _report("one client", interleaved(sides, options.repeats), 1)

    several = jax.tree.map(lambda a: jnp.stack([a] * TOGETHER), params)
    mapped = jax.vmap(meta_gradient, in_axes=(0, None, None))
    sides = {name: compiled(form, mapped, several, support, query) for name, form in forms.items()}
    _report(f"{TOGETHER} clients together, each", interleaved(sides, options.repeats), TOGETHER)


def _difference(one: object, two: object) -> float:
    return float(np.abs(np.asarray(one) - np.asarray(two)).max() / np.abs(np.asarray(two)).max())


def _report(what: str, seconds: dict[str, float], clients: int) -> None:
    print(f"{what}: " + ", ".join(f"{name} {1e3 * time / clients:.0f} ms" for name, time in seconds.items()))


if __name__ == "__main__":
    main()
