"""Train a shared model, hand a client its own, and write a report that opens in a browser.

Run it with ``python examples/first_run.py``; it takes about a minute.
"""

from pathlib import Path

import jax

import headstart as hs


def main(rounds: int = 100, out: str | Path = "runs/first") -> hs.RunResult:
    """Per-FedAvg and FedAvg on handwritten digits, of which 20 people's never train."""
    experiment = hs.Experiment(
        hs.per_fedavg(inner_lr=0.05, outer_lr=0.05, local_steps=5, batch_size=20),
        hs.Classification(hs.MLP(inputs=(28, 28), outputs=10)),
        hs.data.mnist_small(clients=50, held_out=20),
        baselines={"fedavg": hs.fedavg(inner_lr=0.05, outer_lr=0.05, local_steps=5, batch_size=20)},
        rounds=rounds,
        cohort=0.2,
    )
    run = experiment.run(out)
    for name, result in run.results.items():
        before, after = (result.final("accuracy", steps=n, group="held-out")["mean"] for n in (0, 1))
        print(f"{name:8} new clients: {before:.1%} as it is, {after:.1%} after one step of their own")
    own = run.results["fedavg"].personalize(client=45)  # what a new client would use: parameters of its own
    print(f"client 45 has a model of its own, of {sum(leaf.size for leaf in jax.tree.leaves(own)):,} numbers")
    print(f"the report: {hs.report.make_report(out).save(Path(out) / 'report.html')}")
    return run


if __name__ == "__main__":
    main()
