"""An experiment on a table, and the same one over sites that have its rows: equal figures and equal model files."""

import numpy as np
import pyarrow.csv
import pytest

import headstart as hs
from headstart.deploy.events import read_events
from headstart.deploy.fleet import LocalFleet
from headstart.deploy.folders import init
from headstart.deploy.messages import Fault, Message
from headstart.deploy.places import SitePlace
from headstart.deploy.running import serve
from headstart.deploy.worker import site_of
from tests.deploy.agreement.sites import assert_same_encoding
from tests.deploy.agreement.test_same import COLUMNS, made

EXPERIMENT = """
seed = 3

[data]
name = "own"
path = "{path}"
client = "who"
label = "label"
group = "visit"

[model]
name = "mlp"
hidden = [4]

[algorithm]
name = "fedavg"
outer_lr = 0.1
local_steps = 2
batch_size = 4

[train]
rounds = 2
cohort = 0.5
weighting = "samples"
backend = "vmap"

[evaluate]
every = 2
"""


@pytest.fixture
def experiment(tmp_path):
    columns = ["heavy", "missing", "rare", "seconds", "id"]
    assert set(columns) <= set(COLUMNS)
    table = made(np.random.default_rng(8), columns, "texts", clients=8, named=True)
    pyarrow.csv.write_csv(table, tmp_path / "table.csv")
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT.format(path=tmp_path / "table.csv"))
    return file


def test_sites_train_what_the_simulator_trains(experiment, tmp_path):
    federation = init(tmp_path / "federation", experiment, 3, split=True)
    sites = {name: site_of(SitePlace.read(folder)).answer for name, folder in federation.sites.items()}
    result = serve(federation.server, LocalFleet(sites))
    simulated = hs.Experiment.from_toml(experiment).run(out=tmp_path / "simulated")
    mine, theirs = (each.comparison.to_pylist() for each in (result, simulated))
    assert [(row["group"], row["metric"], row["steps"]) for row in mine] == [
        (row["group"], row["metric"], row["steps"]) for row in theirs
    ]
    np.testing.assert_allclose([row["mean"] for row in mine], [row["mean"] for row in theirs], rtol=1e-6)
    one, other = (
        hs.load(folder / "fedavg" / "model.safetensors")
        for folder in (federation.server / "run", tmp_path / "simulated")
    )
    assert one.description.target == other.description.target
    assert_same_encoding(one.description.inputs.encoding, other.description.inputs.encoding, 1e-6)
    rows = pyarrow.csv.read_csv(tmp_path / "table.csv").slice(0, 20)
    np.testing.assert_allclose(one.predict_proba(rows), other.predict_proba(rows), atol=1e-5)


def test_a_site_that_lies_in_the_agreement_or_is_away_at_the_end_holds_nobody_up(experiment, tmp_path):
    federation = init(
        tmp_path / "federation", experiment, 3, split=True, deploy={"join_timeout": 1.2, "retry_seconds": 0.1}
    )
    sites = {name: site_of(SitePlace.read(folder)).answer for name, folder in federation.sites.items()}
    away = iter(range(2))

    def lying(content):
        answer = Message.unpack(sites["site-1"](content))
        if answer.head.kind == "agree" and "rows" in answer.said["answer"]:
            return Message(answer.head, {"answer": {**answer.said["answer"], "rows": -5}}, answer.arrays).pack()
        return answer.pack()

    def leaving(content):
        if Message.unpack(content).head.kind == "model" and next(away, None) is not None:
            return Fault("silent")
        return sites["site-2"](content)

    def deaf(content):
        return Fault("silent") if Message.unpack(content).head.kind == "model" else sites["site-3"](content)

    serve(federation.server, LocalFleet({"site-1": lying, "site-2": leaving, "site-3": deaf}))
    left_out = [event for event in read_events(federation.server) if event["event"] == "left_out"]
    told = [(event["site"], event["phase"]) for event in left_out]
    assert told[0] == ("site-1", "agree")
    assert "-5 as rows" in left_out[0]["detail"]
    assert told[-1] == ("site-3", "model")
    assert "has not got the model" in left_out[-1]["detail"]
    assert [path.name for path in SitePlace.read(federation.sites["site-2"]).models.iterdir()] == ["fedavg.safetensors"]
