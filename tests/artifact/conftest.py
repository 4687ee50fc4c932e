"""Two trained runs of a second each, shared by all tests here: a classification and a regression of small tables."""

import numpy as np
import pandas as pd
import pytest

import headstart as hs

SETTINGS = ["train.rounds=8", "train.backend=vmap", "model.hidden=[6]", "evaluate.steps=[0,1]", "evaluate.every=8"]


def people(seed=0, clients=8, rows=24):
    """Who likes what: numbers with gaps, a category, a label of texts and one of numbers."""
    rng = np.random.default_rng(seed)
    count = clients * rows
    shift = np.repeat(rng.normal(size=clients), rows)
    size, age = 100 * rng.normal(size=count) + 5, rng.integers(18, 80, count)
    colour = rng.choice(np.array(["red", "green", None], object), count)
    score = (size - 5) / 100 + shift + (colour == "red")
    size[rng.random(count) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "who": np.repeat([f"p{i}" for i in range(clients)], rows),
            "size": size,
            "age": age,
            "colour": colour,
            "likes": np.where(score > 0, "yes", "no"),
            "score": 1000 + 50 * score,
        }
    )


@pytest.fixture(scope="session")
def frame():
    return people()


@pytest.fixture(scope="session")
def run(tmp_path_factory, frame):
    """A classification by Per-FedAvg, and by clients alone."""
    experiment = hs.Experiment.from_table(
        frame.drop(columns="score"), client="who", label="likes",
        settings=[*SETTINGS, "baselines={alone={name='local-only', own_steps=3, batch_size=4}}"], tune=False,
    )  # fmt: skip
    return experiment.run(tmp_path_factory.mktemp("runs") / "likes"), experiment


@pytest.fixture(scope="session")
def path(run):
    return run[0].record.path / "per-fedavg" / "model.safetensors"


@pytest.fixture(scope="session")
def model(path):
    return hs.load(path)


@pytest.fixture(scope="session")
def regression(tmp_path_factory, frame):
    data = frame.drop(columns="likes")
    experiment = hs.Experiment.from_table(
        data, client="who", label="score", settings=[*SETTINGS, "baselines={}"], tune=False
    )
    folder = tmp_path_factory.mktemp("runs") / "score"
    return hs.load(experiment.run(folder).record.path / "per-fedavg" / "model.safetensors"), data
