"""Mean-variance portfolio optimisation across desks that do not share their returns.

Each desk k sees daily returns r of the same assets, from a market of its own. Together they look for one portfolio x
that maximises mean minus c times variance of the return, on average over desks:

    min_x 1/K sum_k  -E[r.x] + c (E[(r.x)^2] - E[r.x]^2)

The variance is a function of expectations, so the gradient on a batch is biased. On one day there is no variance at
all, on B days the share (B - 1) / B of it: local_bsgd ends at B / (B - 1) times the portfolio that is right. A memory
of the two moments has no such bias. The moments differ from desk to desk, so each desk keeps its own
(``separate_states``).

Run it with ``python examples/portfolio.py``.
"""

import jax.numpy as jnp
import numpy as np

import headstart as hs

DESKS, DAYS, ASSETS = 6, 400, 5
AVERSION = 2.0
BATCH = 2


def returns(seed: int = 0) -> np.ndarray:
    """Daily returns in percent, (desks, days, assets): assets move together, and desks differ in what they earn."""
    rng = np.random.default_rng(seed)
    drift = 0.3 + 0.2 * rng.normal(size=(DESKS, 1, ASSETS))
    common = 0.3 * rng.normal(size=(DESKS, DAYS, 1))
    return drift + common + rng.normal(size=(DESKS, DAYS, ASSETS)) * np.linspace(0.5, 1.0, ASSETS)


def optimum(data: np.ndarray) -> np.ndarray:
    """The best portfolio in closed form: ``(2 c mean covariance)^(-1) mean return``."""
    covariance = np.mean([np.cov(desk.T, bias=True) for desk in data], axis=0)
    return np.linalg.solve(2 * AVERSION * covariance, data.mean(axis=(0, 1)))


def moments(portfolio, days):
    """The inner function g: the first two moments of the portfolio's return."""
    gain = days @ portfolio
    return {"first": jnp.mean(gain), "second": jnp.mean(gain**2)}


def cost(u, days):
    """The outer function f: what risk costs, less what is earned."""
    return AVERSION * (u["second"] - u["first"] ** 2) - u["first"]


PROBLEM = hs.CompositionalProblem(lambda key: jnp.zeros(ASSETS), moments, cost)


def train(algorithm, data: np.ndarray, rounds: int = 400) -> np.ndarray:
    """The portfolio after so many rounds with every desk."""
    rows = np.arange(DESKS * DAYS).reshape(DESKS, DAYS)
    federation = hs.Federation.from_arrays(data.reshape(-1, ASSETS), rows, rows)
    return np.asarray(hs.train(algorithm, PROBLEM, federation, rounds=rounds).params)


def main() -> dict[str, np.ndarray]:
    """Train both ways and compare with the closed form."""
    data = returns()
    steps = {"local_steps": 5, "batch_size": BATCH, "outer_lr": hs.StepDecay(0.05, (150, 300), factor=0.2)}
    memory = hs.LocalSCGDM(averaging=0.02, momentum=0.1, separate_states=True, **steps)
    portfolios = {
        "closed form": optimum(data),
        "local-scgdm": train(memory, data),
        "local-bsgd": train(hs.local_bsgd(**steps), data),
    }
    right = portfolios["closed form"]
    print(f"{'':12}  portfolio{' ' * (8 * ASSETS - 9)}  error  cost (mean over desks)")
    for name, x in portfolios.items():
        error = np.linalg.norm(x - right) / np.linalg.norm(right)
        value = np.mean([float(PROBLEM.loss(x, desk)) for desk in jnp.asarray(data)])
        print(f"{name:12}  {' '.join(f'{weight:7.3f}' for weight in x)}  {error:5.1%}  {value:.4f}")
    return portfolios


if __name__ == "__main__":
    main()
