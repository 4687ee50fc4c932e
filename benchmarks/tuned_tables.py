"""Generated tables of all scales and sizes: does a tuned run never diverge, and is sharing never worse than not?

    python -m benchmarks.tuned_tables --tables 0:60 --out tables.jsonl [--rounds 100]

Each table has inputs and targets of scales from 1e-6 to 1e6, 5 to 5,000 clients, 3 to 3,000 rows per client, 2 to 100
classes or a number to predict, and clients that agree more or less. A run is `headstart run --data` with nothing set
but its rounds. Tables whose row is in the file already are not run again; the last line is about all rows of the file.

**Noise.** On every new client the tuned shared model after adaptation is compared with the better of "alone" and
"FedAvg" (after adaptation), the better being the one with the better mean. It counts as worse if the mean of the
differences, less 2% of the better mean (of the error, for accuracies), is above zero by a one-sided paired t-test at
the level of 1%. With one new client no test is possible, and the difference is only shown.
"""

import argparse
import json
import math
import time
import traceback
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy import stats

TOLERANCE, LEVEL = 0.02, 0.01
MOST_ROWS = 30_000
SHAPES = 12


def generated(number: int) -> tuple[pa.Table, dict]:
    """The table of a number, and what it is like. Every twelfth has the same shape, and so the same programs."""
    shape, rng = np.random.default_rng(number % SHAPES), np.random.default_rng(1000 + number)
    clients = int(np.exp(shape.uniform(np.log(5), np.log(5000))))
    rows = int(np.exp(shape.uniform(np.log(3), np.log(3000))))
    if clients * rows > MOST_ROWS:  # the one or the other is large, not both
        if shape.random() < 0.5:
            clients = max(5, MOST_ROWS // rows)
        else:
            rows = max(3, MOST_ROWS // clients)
    regression = bool(number % 2)
    classes = 0 if regression else int(np.exp(shape.uniform(np.log(2), np.log(100))))
    features = int(shape.integers(1, 20))
    counts = np.maximum(3, (rows * shape.uniform(0.5, 1.0, clients)).astype(int))
    agreement = float(rng.choice([0.0, 0.5, 0.9, 1.0]))
    noise = float(rng.choice([0.0, 0.1, 0.5]))
    who = np.repeat(np.arange(clients), counts)
    x = rng.normal(size=(len(who), features))
    outputs = max(classes, 1)
    shared = rng.normal(size=(features + 1, outputs))
    own = rng.normal(size=(min(clients, 200), features + 1, outputs))[np.arange(clients) % 200]
    weights = agreement * shared + (1 - agreement) * own
    bent = np.concatenate([np.tanh(2 * x), np.ones((len(x), 1))], 1)
    z = np.concatenate(
        [np.einsum("nf,nfo->no", part, weights[whose])
         for part, whose in zip(np.array_split(bent, 64), np.array_split(who, 64), strict=True)]
    )  # fmt: skip
    z += noise * rng.normal(size=z.shape) * (z.std() + 1e-12)
    scales = 10.0 ** rng.uniform(-6, 6, features)
    columns = {f"x{j}": x[:, j] * scales[j] + rng.normal() * scales[j] * 3 for j in range(features)}
    target_scale = float(10.0 ** rng.uniform(-6, 6))
    labels = np.where(np.arange(len(z)) < classes, np.arange(len(z)), z.argmax(1))  # every class is there
    target = z[:, 0] * target_scale + 2 * target_scale if regression else [f"c{k}" for k in labels]
    table = pa.table({"who": [f"p{i}" for i in who], **columns, "y": target})
    kinds = {"clients": clients, "rows": rows, "classes": classes, "features": features, "agreement": agreement}
    return table, {"table": number, **kinds, "noise": noise, "target_scale": target_scale}


def own_scores(record, label: str, metric: str) -> np.ndarray:
    """Every new client's score after adapting, in the round that was kept."""
    from headstart.simulate.evaluate import kept_round

    method = record.methods[label]
    rows = method.table.to_pylist()
    kept, most = kept_round(method.summary), {}
    for row in rows:
        if row["round"] == kept and row["held_out"] and not row.get("validation", False):
            steps, _ = most.get(row["client"], (-1, 0.0))
            if row["steps"] > steps:
                most[row["client"]] = (row["steps"], row[metric])
    return np.array([most[name][1] for name in sorted(most)])


def judged(scores: dict[str, np.ndarray], higher: bool) -> dict:
    """How the main method stands beside the better of the others."""
    sign = -1.0 if higher else 1.0
    means = {label: float(np.mean(values)) for label, values in scores.items()}
    main, *others = scores
    better = min(others, key=lambda label: sign * means[label])
    differences = sign * (scores[main] - scores[better])
    scale = (1 - means[better]) if higher else abs(means[better])
    excess = differences - TOLERANCE * scale
    n = len(differences)
    p = math.nan
    if n > 1:
        error = excess.std(ddof=1) / math.sqrt(n)
        p = float(stats.t.sf(excess.mean() / error, n - 1)) if error > 0 else float(excess.mean() <= 0)
    worse = bool(n > 1 and (p < LEVEL if differences.std() > 0 else excess.mean() > 0))
    return {"means": means, "better": better, "new": n, "p": p, "worse": worse}


def one(number: int, rounds: int, seed: int = 0) -> dict:
    import headstart as hs

    table, about = generated(number)
    began, cpu = time.time(), time.process_time()
    experiment = hs.Experiment.from_table(
        table,
        client="who",
        label="y",
        kind="classification" if about["classes"] else "regression",
        seed=seed,
        settings=[f"train.rounds={rounds}"],
    )
    run = experiment.run()
    metric = "accuracy" if about["classes"] else "rmse"
    scores = {label: own_scores(run.record, label, metric) for label in run.record.methods}
    about["diverged"] = {label: m.diverged for label, m in run.record.methods.items() if m.diverged}
    about["lost"] = {label: int((~np.isfinite(v)).sum()) for label, v in scores.items()}
    about["adapt"] = run.record.config["adapt"]
    scale = 1.0 if about["classes"] else about["target_scale"]
    scores = {label: np.nan_to_num(v / scale, nan=1e6, posinf=1e6) for label, v in scores.items()}
    return {**about, **judged(scores, bool(about["classes"])), "seconds": time.time() - began,
            "cpu": time.process_time() - cpu}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="0:60")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("tuned_tables.jsonl"))
    options = parser.parse_args()
    for number in range(*map(int, options.tables.split(":"))):
        if number in {row["table"] for row in done(options.out)}:
            continue
        try:
            row = one(number, options.rounds)
        except Exception as error:
            row = {"table": number, "error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-800:]}
        print(json.dumps(row, default=float), flush=True)
        with options.out.open("a") as file:
            file.write(json.dumps(row, default=float) + "\n")
    found = done(options.out)
    bad = [r["table"] for r in found if "error" in r or r["diverged"] or r["worse"] or any(r["lost"].values())]
    print(f"{len(found)} tables; diverged, lost clients or worse than noise: {bad or 'none'}")


def done(path: Path) -> list[dict]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
