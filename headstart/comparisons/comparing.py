"""Training the methods of experiments with several seeds, all seeds of a method as one program."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from headstart.comparisons.budget import Budget, Spent, affordable, per_round
from headstart.comparisons.entries import Comparison, Entry
from headstart.comparisons.refining import REFINING_SEEDS, best_at_length, tries
from headstart.errors import UsageError, did_you_mean
from headstart.experiment import Experiment
from headstart.experiment.running import Job
from headstart.experiment.searching import Watch
from headstart.metrics import LOSS, Metric
from headstart.simulate import Callback, Evaluation, Sweep, sweep

__all__ = ["compare"]

Watching = Callable[[str], Sequence[Callback]]
"""Who watches the training of a method, by its title."""


def compare(
    experiments: Experiment | str | Path | Sequence[Experiment | str | Path],
    *,
    seeds: int | Iterable[int] = 5,
    at: Budget = "rounds",
    methods: Sequence[str] | None = None,
    callbacks: Watching = lambda title: (),
    searching: Watch = lambda told: None,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Train every method of one or more experiments with every seed, and compare them on the same clients.

    ``seeds`` is their number or a list. ``at`` says what methods are given equally much of: rounds, or as many samples
    or bytes as the first method's rounds cost. ``methods`` takes some of an experiment's methods only. ``names`` are
    what the experiments are called where there are several. The data is dealt out once: seeds vary the initial
    model, cohorts and batches.

    An experiment that leaves settings to a search (``tune=True``) is searched first, with the experiment's own seed;
    ``searching`` is told how far that has come. A search looks at a part of the rounds and at one seed. So
    smaller and larger steps than those found are then trained for all of the method's rounds with two seeds that are
    not compared, and validation clients choose among those of which twice the step does not diverge either. Every
    method has as many tries.

    >>> import headstart as hs
    >>> experiment = hs.Experiment(
    ...     hs.per_fedavg(batch_size=5, inner_lr=0.01),
    ...     hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,))),
    ...     hs.data.sine(clients=6, held_out=3),
    ...     baselines={"fedavg": hs.fedavg(batch_size=5)}, rounds=4, cohort=1.0,
    ... )
    >>> found = hs.compare(experiment, seeds=2, at="samples")
    >>> [(entry.title, int(entry.spent.rounds)) for entry in found.entries]
    [('MetaFL', 4), ('fedavg', 12)]
    """
    given = [experiments] if isinstance(experiments, (Experiment, str, Path)) else list(experiments)
    if not given:
        raise UsageError("There is no experiment to compare.", "Name one or more files.")
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not numbers or len(set(numbers)) < len(numbers):
        raise UsageError(f"seeds = {seeds!r} is no list of different seeds.", "Give a number of one or more.")
    loaded = [one if isinstance(one, Experiment) else Experiment.from_toml(one) for one in given]
    prefixes = _prefixes(given, names)
    entries: list[Entry] = []
    metric: Metric | None = None
    budget: Spent | None = None
    for experiment, prefix in zip(loaded, prefixes, strict=True):
        searched, job = experiment.settings.tune, Job(experiment.settings, experiment.federation)
        labels = _chosen(job.algorithms, methods)
        # Before the search, which changes none of it: a method that does not suit the data is found at once.
        costs = {label: _cost(job, label) for label in labels}
        if searched is not None:
            experiment = experiment.tuned(searching, methods=methods).experiment
            job = Job(experiment.settings, experiment.federation)
        own = next((m for m in job.problem.metrics if m.name != LOSS.name), LOSS)
        if metric is not None and own.name != metric.name:
            raise UsageError(f"One experiment measures {metric.name}, another {own.name}.", "Compare them one by one.")
        metric = own
        train = experiment.settings.train
        for label in labels:
            algorithm, each = job.algorithms[label], costs[label]
            budget = budget or each.times(train.rounds)
            rounds = affordable(each, budget, at)
            evaluation = replace(job.evaluation(label), groups=experiment.settings.evaluate.groups)
            if not algorithm.cost().gradients:
                evaluation = replace(evaluation, every=rounds)  # it stays as it is
            title = f"{prefix}{label}"
            settings = dict(experiment.settings.methods[label].resolved)
            if searched is not None and (tried := tries(experiment.settings.methods[label], searched.over[label])):
                place = best_at_length(tried, job, evaluation, rounds, seeds=_others(numbers, REFINING_SEEDS))
                settings, algorithm = {**settings, **tried[place].changed}, tried[place].algorithm
            done = sweep(
                [algorithm], job.problem, experiment.federation, seeds=numbers, rounds=rounds, cohort=train.cohort,
                weighting=train.weighting, wire=job.wire, evaluation=evaluation, callbacks=callbacks(title),
            )  # fmt: skip
            settings |= {"rounds": rounds, "adapt": _adapting(evaluation)}
            entries.append(_entry(title, settings, done, experiment, metric, each.times(rounds)))
    assert metric is not None
    same = len(loaded) == 1 or all(one.config["data"] == loaded[0].config["data"] for one in loaded)
    data = loaded[0].config["data"]["name"] if same else None
    return Comparison(metric, entries, at, loaded[0].federation if same else None, data)


def _prefixes(given: Sequence[Experiment | str | Path], names: Sequence[str] | None) -> list[str]:
    """What titles begin with, so that methods of several experiments are told apart."""
    if len(given) == 1:
        return [""]
    if names is None:
        names = [f"{i}" if isinstance(one, Experiment) else Path(one).stem for i, one in enumerate(given, 1)]
    if len(set(names)) < len(names):
        names = [f"{i} {name}" for i, name in enumerate(names, 1)]
    return [f"{name}: " for name in names]


def _chosen(known: Iterable[str], methods: Sequence[str] | None) -> list[str]:
    labels = list(known)
    if methods is None:
        return labels
    for label in methods:
        if label not in labels:
            raise UsageError(f"The experiment has no method {label!r}.", did_you_mean(label, labels))
    return list(methods)


def _cost(job: Job, label: str) -> Spent:
    """Of a method's round."""
    train = job.settings.train
    return per_round(
        job.algorithms[label], job.problem, job.federation, cohort=train.cohort, weighting=train.weighting,
        wire=job.wire,
    )  # fmt: skip


def _others(seeds: Sequence[int], number: int) -> list[int]:
    """Seeds that are not among those."""
    return [max(seeds) + 1 + i for i in range(number)]


def _adapting(evaluation: Evaluation) -> dict[str, object]:
    """How clients make the shared model their own before they are judged."""
    size = {} if evaluation.inner_lr is None else {"inner_lr": evaluation.inner_lr}
    return {"steps": evaluation.steps[-1], **size}


def _entry(
    title: str, settings: dict[str, object], done: Sweep, experiment: Experiment, metric: Metric, spent: Spent
) -> Entry:
    tested = experiment.federation.tasks or experiment.federation
    found = done.evaluated
    values = found.values[metric.name]
    new = found.held_out & ~found.validation
    judged = new if new.any() else np.ones(len(new), bool)
    return Entry(
        title=title,
        settings=settings,
        seeds=done.seeds,
        clients=np.array([tested.name(int(i)) for i in found.clients]),
        new=new,
        steps=found.steps,
        scores=values[-1],
        spent=spent,
        rounds=found.rounds,
        curve=values[:, :, -1][..., judged].mean(axis=-1),
    )
