"""Sections of a configuration and the parts they ask for."""

import jax
import pytest

import headstart as hs
from headstart.experiment import Settings, read_tables
from headstart.experiment.settings import BUILDERS
from tests.experiment.conftest import TINY


def _settings(*changes):
    return hs.Experiment.from_toml(TINY, settings=changes).settings


def test_an_optimiser_and_a_schedule_by_name():
    settings = _settings(
        "algorithm.server_optimizer={name='adam', learning_rate=0.01}",
        "algorithm.outer_lr={name='cosine-decay', init_value=0.1, decay_steps=10}",
    )
    algorithm = settings.methods["per-fedavg"].build()
    assert algorithm.server_optimizer.name == "adam"
    assert float(algorithm.server_optimizer.numbers["learning_rate"]) == 0.01
    assert float(algorithm.outer_lr(0)) == pytest.approx(0.1)
    assert float(algorithm.outer_lr(10)) == pytest.approx(0.0)
    assert settings.methods["fedavg"].build().server_optimizer.name == "adam", "baselines inherit"
    assert Settings.from_tables(settings.resolved).resolved == settings.resolved


@pytest.mark.parametrize("algorithm", BUILDERS)
def test_what_is_resolved_is_itself_when_it_is_read_again(algorithm):
    """As when a run is resumed or deployed: no baseline takes over what the algorithm has by default and it has not."""
    baselines = {f"b-{name}": {"name": name} for name in BUILDERS}
    other = {"data": {"name": "sine"}, "model": {"name": "mlp"}, "train": {"rounds": 1}}
    first = Settings.from_tables({**other, "algorithm": {"name": algorithm}, "baselines": baselines})
    again = Settings.from_tables(first.resolved)
    assert again.resolved == first.resolved
    assert {label: plan.resolved for label, plan in again.methods.items()} == {
        label: plan.resolved for label, plan in first.methods.items()
    }


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("algorithm.server_optimizer=adm", "'adam'"),
        ("algorithm.server_optimizer=adam", "learning_rate is missing"),
        ("algorithm.server_optimizer={name='adam', learning_rate=0.1, bb=1}", "bb is not a setting"),
        ("algorithm.server_optimizer=[]", "one of sgd, adam"),
        ("algorithm.outer_lr={name='cosine'}", "'cosine-decay'"),
    ],
)
def test_mistakes_in_parts(setting, words):
    with pytest.raises(hs.UsageError, match=words):
        _settings(setting)


def test_a_method_without_a_slot_says_which_have_it():
    with pytest.raises(
        hs.UsageError, match=r"local-only takes none, for its clients send nothing(?s:.*)fedavg"
    ) as error:
        _settings("algorithm.name=local-only", "algorithm.server_optimizer={name='sgd', learning_rate=1.0}")
    assert "algorithm.server_optimizer is not a setting" in str(error.value)
    assert "These do: fedavg" in str(error.value)


def test_a_wire_trains(tiny):
    """With clipping at infinity and no noise, to the bit as without."""
    plain = tiny.run().results["fedavg"].params
    idle = hs.Experiment.from_toml(TINY, settings=["wire.clip=inf", "wire.noise=0.0"])
    clipped = hs.Experiment.from_toml(TINY, settings=["wire.clip=0.001", "wire.compress={name='quantize', bits=8}"])
    assert clipped.config["wire"] == {"clip": 0.001, "compress": {"name": "quantize", "bits": 8}}
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(idle.run().results["fedavg"].params), strict=True):
        assert (one == other).all()
    results = clipped.run().results["fedavg"]
    assert any(
        (one != other).any() for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(results.params), strict=True)
    )


def test_a_wire_that_a_method_refuses_names_the_reason():
    with pytest.raises(hs.UsageError, match=r"wire\.clp.*\n.*'clip'"):
        _settings("wire.clp=1.0")
    alone = hs.Experiment.from_toml(TINY, settings=["algorithm.name=local-only", "baselines={}", "wire.clip=1.0"])
    with pytest.raises(hs.UsageError, match="LocalOnly"):
        alone.run()


def test_metrics_by_name():
    pytest.importorskip("headstart.metrics")
    experiment = hs.Experiment.from_toml(TINY, settings=["evaluate.metrics=['mae', 'r2']"])
    assert [metric.name for metric in experiment.problem.metrics] == ["loss", "mae", "r2"]
    assert experiment.config["evaluate"]["metrics"] == ["mae", "r2"]
    for value, words in {"['ma']": "'mae'", "3": "a list", "[3]": "a string"}.items():
        with pytest.raises(hs.UsageError, match=words):
            hs.Experiment.from_toml(TINY, settings=[f"evaluate.metrics={value}"])


def test_the_packages_own_experiments_can_be_read():
    for name in ("default.toml", "own_data.toml"):
        tables = {"data": {"name": "sine"}, "model": {"name": "mlp"}, **read_tables(None, name)}
        assert Settings.from_tables(tables).resolved["algorithm"]["name"] == "per-fedavg"
