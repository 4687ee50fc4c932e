"""The private run of the page on the wire is as private as it says."""

import headstart as hs
from headstart.wire import privacy_spent
from tests.docs.fences import ROOT, blocks


def test_the_private_experiment_has_the_epsilon_of_the_page():
    page = ROOT / "docs" / "wire.md"
    text = next(block.code for block in blocks(page) if block.language == "toml" and "[data]" in block.code)
    for setting, epsilon in (("wire.delta=1e-5", 8), ("wire.noise=17.85", 2)):
        experiment = hs.Experiment.from_toml(text, settings=[setting])
        federation, rounds = experiment.federation, experiment.settings.train.rounds
        assert (federation.trained, federation.total, experiment.settings.train.cohort) == (150, 180, 1.0)
        spent = privacy_spent(experiment.settings.wire.build(), rounds, cohort=150, clients=150)
        assert 0.99 * epsilon < spent.epsilon <= epsilon
        assert spent.delta == 1e-5
        assert f"epsilon = {epsilon}, delta = 1e-5" in page.read_text(encoding="utf-8")
