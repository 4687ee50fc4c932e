"""A rare class across hospitals: training for the worst class instead of for the average sample.

Few samples are positive, and hospitals differ in how many they have. A model trained for the mean loss hardly looks at
them. Here each class counts by its own mean loss, the worse one more, with a temperature T that makes it smooth:

    min_x  T log mean_c exp(loss_c(x) / T),    loss_c(x) = E[loss(x; s) 1(s in c)] / E[1(s in c)]

over the classes c of all hospitals' samples s: distributionally robust optimisation over the mix of classes. It is a
function of expectations. A batch says little about the rare class, and nothing where it has none of it; a memory does.
Local-SCGDM averages the hospitals' memories, so that the loss of a class is over all of them, as it is meant here.

Run it with ``python examples/rare_class.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np

import headstart as hs

HOSPITALS, SAMPLES, FEATURES = 10, 300, 8
SHARE = (0.02, 0.1)
"""The smallest and the largest share of positive samples in a hospital."""
TEMPERATURE = 0.1


def samples(seed: int = 0) -> tuple[hs.Examples, np.ndarray]:
    """All hospitals' samples with labels -1 and 1, and which hospital each one is from."""
    rng = np.random.default_rng(seed)
    shares = np.repeat(np.linspace(*SHARE, HOSPITALS), SAMPLES)
    y = np.where(rng.random(len(shares)) < shares, 1.0, -1.0)
    toward = np.ones(FEATURES) / np.sqrt(FEATURES)
    return hs.Examples(rng.normal(size=(len(y), FEATURES)) + 1.2 * y[:, None] * toward, y), np.repeat(
        np.arange(HOSPITALS), SAMPLES
    )


def start(key):
    """A linear classifier."""
    return {"weight": jnp.zeros(FEATURES), "bias": jnp.zeros(())}


def losses(params, batch):
    """The logistic loss of every sample."""
    return jax.nn.softplus(-batch.y * (batch.x @ params["weight"] + params["bias"]))


def of_classes(params, batch):
    """The inner function g: what each class adds to the mean loss, and its share of the samples."""
    member = jnp.stack([batch.y < 0, batch.y > 0]).astype(batch.x.dtype)
    return {"loss": member @ losses(params, batch) / len(batch.y), "share": jnp.mean(member, axis=1)}


def worst_class(u, batch):
    """The outer function f: a smooth maximum of the classes' losses."""
    of_class = u["loss"] / jnp.maximum(u["share"], 1e-3)
    return TEMPERATURE * (jax.nn.logsumexp(of_class / TEMPERATURE) - jnp.log(2.0))


ROBUST = hs.CompositionalProblem(start, of_classes, worst_class)
AVERAGE = hs.CustomProblem(start, lambda params, batch: jnp.mean(losses(params, batch)))


def recognised(params, data: hs.Examples) -> dict[str, float]:
    """The share of each class that is recognised."""
    score = data.x @ np.asarray(params["weight"]) + float(params["bias"])
    return {"common": float(np.mean(score[data.y < 0] < 0)), "rare": float(np.mean(score[data.y > 0] > 0))}


def train(algorithm, problem, data: hs.Examples, owner: np.ndarray, rounds: int = 300):
    """The shared model after so many rounds with every hospital."""
    rows = [np.flatnonzero(owner == k) for k in range(HOSPITALS)]
    return hs.train(algorithm, problem, hs.Federation.from_arrays(data, rows, rows), rounds=rounds).params


def main() -> dict[str, dict]:
    """Train both ways and compare them on new samples."""
    data, owner = samples(seed=0)
    steps = {"local_steps": 5, "batch_size": 20, "outer_lr": hs.StepDecay(0.2, (150, 250), factor=0.3)}
    models = {
        "fedavg": train(hs.fedavg(**steps), AVERAGE, data, owner),
        "local-scgdm": train(hs.LocalSCGDM(averaging=0.05, momentum=0.1, **steps), ROBUST, data, owner),
    }
    new, _ = samples(seed=1)
    print(f"{'recognised':12}  {'common class':>12}  {'rare class':>10}")
    for name, params in models.items():
        score = recognised(params, new)
        print(f"{name:12}  {score['common']:12.1%}  {score['rare']:10.1%}")
    return models


if __name__ == "__main__":
    main()
