"""Every method over real processes, with the simulator's numbers; three of them are among the quick tests too."""

import pytest

import headstart as hs
from headstart.algorithms import ALGORITHMS
from headstart.deploy.trial import up
from tests.deploy.real.parity import assert_simulated
from tests.deploy.real.trial import write_experiment

pytestmark = [pytest.mark.federation, pytest.mark.slow]

EVERYONE = [name for name, entry in ALGORITHMS.items() if entry.build().needs_everyone]
OTHERS = [name for name in ALGORITHMS if name not in EVERYONE and name != "protonet"]
"""ProtoNet learns from episodes of a problem of its own, which tables do not have."""
MORE = {"bspiderboost": "large_batch_size = 20"}
"""Settings for clients as small as these."""


@pytest.mark.parametrize(("methods", "cohort"), [(OTHERS, 4), (EVERYONE, "1.0")], ids=["cohorts", "everyone"])
def test_all_methods_are_the_simulators(short_path, methods, cohort):
    first, *others = methods
    tables = f'[algorithm]\nname = "{first}"\nbatch_size = 8\n'
    tables += "".join(f'\n[baselines.other-{name}]\nname = "{name}"\n{MORE.get(name, "")}\n' for name in others)
    path = write_experiment(short_path, tables, cohort=cohort)
    trial = up(short_path / "federation", path, 3)
    assert trial.outcome.finished, trial.outcome.reason
    assert_simulated(trial.server, short_path / "federation" / "sites", hs.Experiment.from_toml(path).run())
