"""Every method over real processes, with the simulator's numbers; three of them are among the quick tests."""

import pytest

import headstart as hs
from headstart.deploy.trial import up
from tests.deploy.real.parity import assert_simulated
from tests.deploy.real.trial import write_experiment

pytestmark = [pytest.mark.federation, pytest.mark.slow]

OTHERS = ["fedavg", "fedprox", "meta-fl", "pfedme", "aruba", "reptile", "local-scgd", "local-bsgd", "maml", "scgd",
          "bspiderboost", "moml-v2", "local-only", "fedavgm", "fedadam", "fedyogi", "fedadagrad"]  # fmt: skip
EVERYONE = ["nasa", "moml"]


@pytest.mark.parametrize(("methods", "cohort"), [(OTHERS, 4), (EVERYONE, "1.0")], ids=["cohorts", "everyone"])
def test_all_methods_are_the_simulators(short_path, methods, cohort):
    first, *others = methods
    tables = f'[algorithm]\nname = "{first}"\nbatch_size = 8\n'
    tables += "".join(f'\n[baselines.other-{name}]\nname = "{name}"\n' for name in others)
    path = write_experiment(short_path, tables, cohort=cohort)
    trial = up(short_path / "federation", path, 3)
    assert_simulated(trial.server, short_path / "federation" / "sites", hs.Experiment.from_toml(path).run())
