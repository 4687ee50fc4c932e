"""A small record, and result files with numbers of our choice."""

import json

import numpy as np

from headstart_papers.reading import read_record

RECORD = """
title = "A made-up table"
place = "Table 7"
seeds = 3
notes = "The paper does not say how."
explanation = "It is the scaling."
{top}

[data]
name = "sine"

[model]
name = "mlp"
hidden = [8]

[common]
outer_lr = 0.1

[methods.a]
title = "Method A"
name = "maml"
{grid}

[methods.b]
title = "Method B"
name = "fedavg"

[train]
rounds = 100

[evaluate]
times = 2

[final]

[scores.accuracy]
title = "Accuracy, %"
metric = "accuracy"
percent = true

[scores.loss]
title = "Loss"
metric = "loss"

[scores.ms]
title = "Milliseconds"
metric = "milliseconds"
extra = true

[[rows]]
id = "easy"
title = "Easy setting"
reported.accuracy = {{ a = [80.0, 0.5], b = 70.0 }}

[[rows]]
id = "hard"
title = "Hard setting"
set = {{ train.rounds = 200 }}

{rest}

[quick]
seeds = 2
set = {{ train.rounds = 10 }}

[tiny]
seeds = 2
rows = ["easy"]
set = {{ train.rounds = 1 }}
"""

GRID = "grid = { outer_lr = [0.1, 0.2, 0.3] }"


def experiment(tmp_path, top="", grid="", rest=""):
    path = tmp_path / "record.toml"
    path.write_text(RECORD.format(top=top, grid=grid, rest=rest))
    return read_record(path, "someone/table7")


def claim(order, score="accuracy", more=""):
    return f'[[claims]]\ntext = "A beats B"\nplace = "Table 7"\nscore = "{score}"\norder = "{order}"\n{more}\n'


def write(out, unit, final, curves=None, points=({},), **more):
    """The file of a unit: ``final`` by score, over points and seeds; a curve goes from zero to its end by default."""
    shape = (len(points), len(unit.seeds))
    final = {name: np.broadcast_to(np.array(values, float), shape) for name, values in final.items()}
    curves = curves or {name: values[..., None] * np.array([0.0, 0.5, 1.0]) for name, values in final.items()}
    rounds = unit.settings["train"]["rounds"]
    told = {
        "format": 1,
        "experiment": unit.experiment,
        "row": unit.row,
        "method": unit.method,
        "fingerprint": unit.fingerprint,
        "settings": unit.settings,
        "seeds": list(unit.seeds),
        "points": list(points),
        "rounds": rounds,
        "evaluated": [0, rounds // 2, rounds],
        "samples": [0.0, 50.0, 100.0],
        "seconds": [0.0, 6.0, 12.0],
        "final": {name: plain(values) for name, values in final.items()},
        "curves": {name: plain(values) for name, values in curves.items()},
        "extras": {},
        "took": 60.0,
        "commit": "abc1234",
        "versions": {"jax": "0.10.2"},
        "finished": "2026-01-01T00:01:00+00:00",
        **more,
    }
    path = out / unit.experiment / f"{unit.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told))
    return path


def plain(values):
    """As files keep them: nothing where a run diverged."""
    values = np.asarray(values)
    if values.ndim:
        return [plain(value) for value in values]
    return float(values) if np.isfinite(values) else None


def fill(experiment, out, values, profile="full", **more):
    """Files of all units, with accuracies by ``values(row, method, seed)`` and a loss that is one less them."""
    for unit in experiment.units(profile):
        accuracy = [values(unit.row, unit.method, seed) for seed in unit.seeds]
        write(out, unit, {"accuracy": [accuracy], "loss": [1 - np.array(accuracy, float)]}, **more)
