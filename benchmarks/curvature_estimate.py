"""Constants of a 250,000-parameter perceptron on real images, estimated without a Hessian: time and peak RAM.

    python -m benchmarks.curvature_estimate [--clients 5] [--radius 0.1]

Bar: the smoothness L in under 60 s and 1 GB; one Hessian alone would be 250 GB. Times contain compilation, which
is most of them.
"""

import argparse
import resource
import time

import jax

import headstart as hs
from headstart.theory.constants import Constants
from headstart.theory.estimate import Ball, Effort, estimate_constants


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=5, help="how many of the 40 training clients to look at")
    parser.add_argument("--radius", type=float, default=0.1, help="of the ball around the initial parameters")
    parser.add_argument("--activation", default="elu")
    parser.add_argument("--constants", nargs="*", default=list(Constants.__dataclass_fields__))
    arguments = parser.parse_args()
    federation = hs.data.mnist_small()
    problem = hs.Classification(hs.MLP(784, 10, hidden=(256, 180), activation=arguments.activation))
    params = problem.init(jax.random.key(0))
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    effort = Effort(starts=2, climbs=1, steps=3, products=8, samples=6)
    print(
        f"parameters {size:,}, clients {arguments.clients} of {federation.trained}, ball of radius {arguments.radius}"
    )
    for name in arguments.constants:
        wall, cpu = time.perf_counter(), time.process_time()
        found = estimate_constants(
            problem, federation, Ball(params, arguments.radius), names=[name], clients=arguments.clients, effort=effort
        )
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(
            f"  {name:24} {wall:5.1f} s ({cpu:.1f} CPU)   peak RAM so far {_peak():.2f} GB   {found[name]}", flush=True
        )


def _peak() -> float:
    """The most RAM this process has held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
