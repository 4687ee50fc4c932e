"""A site's own models, from the shared one and its own rows."""

import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.errors import UsageError
from tests.deploy.real.trial import write_experiment


def test_each_client_of_a_site_gets_a_model_of_its_own(tmp_path):
    experiment = write_experiment(tmp_path, methods='[algorithm]\nname = "per-fedavg"\nbatch_size = 8\n')
    made = hs.deploy.init(tmp_path / "fed", experiment, 3, split=True)
    site = made.sites["site-1"]
    with pytest.raises(UsageError, match="the server sends it at the end"):
        hs.deploy.adapt(site)
    run = hs.Experiment.from_toml(experiment).run(tmp_path / "run")
    assert run.stopped is None
    shared = tmp_path / "run" / "per-fedavg" / "model.safetensors"
    (site / "state" / "r").mkdir(parents=True)
    (site / "state" / "r" / "begun.json").write_text('{"config": {"data": {"client": "who", "label": "ill"}}}')
    own = hs.deploy.adapt(site, model=shared, steps=2)
    assert list(own) == ["p0", "p3"]
    rows = pq.read_table(site / "data.parquet")
    again = hs.load(site / "models" / "p3.safetensors")
    assert (again.predict(rows) == own["p3"].predict(rows)).all()
    with pytest.raises(UsageError, match="has no client 'p1'"):
        hs.deploy.adapt(site, model=shared, clients=["p1"])
