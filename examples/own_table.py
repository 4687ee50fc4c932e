"""From a table of one's own to a new client's own model: train, save, adapt, predict.

Each row of the table is a day of a shop: its weather, whether it is a weekend, and what was sold. Shops differ in how
much the weather matters to them. Run it with ``python examples/own_table.py``; it takes about a minute.
"""

from pathlib import Path

import numpy as np

import headstart as hs


def days(shops: range, each: int, seed: int) -> dict[str, list]:
    """Made-up sales; the column ``shop`` says whose each row is."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list] = {"shop": [], "degrees": [], "weekend": [], "sold": []}
    for shop in shops:
        taste = np.random.default_rng(shop)
        warm, busy, usual = taste.normal(0, 4), taste.normal(20, 10), taste.uniform(50, 150)
        for _ in range(each):
            degrees, weekend = rng.normal(15, 8), rng.random() < 2 / 7
            columns["shop"].append(f"shop {shop}")
            columns["degrees"].append(float(degrees))
            columns["weekend"].append("yes" if weekend else "no")
            columns["sold"].append(float(usual + warm * (degrees - 15) + busy * weekend + rng.normal(0, 5)))
    return columns


def main(rounds: int = 100, shops: int = 40, out: str | Path = "runs/shops") -> list[float]:
    """Train on all shops but the last, then make that one a model from two weeks of its own."""
    experiment = hs.Experiment.from_table(
        days(range(shops), each=60, seed=0), client="shop", label="sold", held_out=0.25, tune=False,
        settings=[f"train.rounds={rounds}", "algorithm.inner_lr=0.05", "algorithm.outer_lr=0.05"],
    )  # fmt: skip
    experiment.run(out)
    shared = hs.load(Path(out) / "per-fedavg" / "model.safetensors")

    new = range(shops + 5, shops + 6)  # a shop that nobody has seen
    own = shared.adapt(days(new, each=14, seed=1))
    own.save(Path(out) / "new_shop.safetensors")
    later = days(new, each=30, seed=2)
    errors = []
    for name, model in (("shared model", shared), ("own model", own)):
        predicted = np.asarray(model.predict(later), float)
        errors.append(float(np.sqrt(np.mean((predicted - later["sold"]) ** 2))))
        print(f"{name:13} is off by {errors[-1]:.1f} a day, where sales are {np.mean(later['sold']):.0f} on average")
    return errors


if __name__ == "__main__":
    main()
