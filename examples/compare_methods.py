"""Is one method better than another, or is it chance? Several seeds, equal budgets, paired tests.

Run it with ``python examples/compare_methods.py``; it takes about two minutes.
"""

from pathlib import Path

import headstart as hs


def main(rounds: int = 300, seeds: int = 5, out: str | Path = "compared.html") -> hs.comparisons.Comparison:
    """Four methods on sine waves, each with as many samples as Per-FedAvg's rounds draw."""
    steps = {"inner_lr": 0.01, "outer_lr": 0.01, "local_steps": 4, "batch_size": 10}
    experiment = hs.Experiment(
        hs.per_fedavg(**steps),
        hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(40, 40), activation="relu")),
        hs.data.sine(clients=25, held_out=20),
        baselines={
            "first-order": hs.per_fedavg(curvature="first-order", **steps),
            "fedavg": hs.fedavg(**steps),
            "reptile": hs.Reptile(inner_lr=0.01, outer_lr=0.5, local_steps=4, batch_size=10),
        },
        evaluation=hs.Evaluation(steps=(0, 1, 5)),
        rounds=rounds,
        cohort=10,
    )
    found = hs.compare(experiment, seeds=seeds, at="samples")
    means = found.means()
    for place in found.order():
        entry = found.entries[place]
        print(f"{entry.title:12} {entry.spent.rounds:5.0f} rounds, {found.metric.name} {means[place]}")
    for pair in found.over_seeds():
        verdict = "differ" if pair.differs() else "may be equal"
        print(f"{pair.first} and {pair.second} {verdict} (p = {pair.p:.3f} after Holm's correction)")
    print(f"the report: {hs.report.comparison_report(found).save(out)}")
    return found


if __name__ == "__main__":
    main()
