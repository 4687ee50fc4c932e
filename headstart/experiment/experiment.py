"""The experiment: data, a problem, an algorithm and its baselines, and how they are trained and evaluated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from headstart.config import PYTHON, Plan, type_path
from headstart.core import Algorithm, Params
from headstart.data import Federation
from headstart.data.tables import Options
from headstart.errors import UsageError
from headstart.experiment.defaults import fitted, has_step_sizes, suiting
from headstart.experiment.hosted import opened, own_share, recorded_config
from headstart.experiment.record import RunDirectory, RunRecord
from headstart.experiment.running import Callbacks, Directory, Job, RunResult
from headstart.experiment.searching import Watch, left_open, search_settings, with_found
from headstart.experiment.settings import Settings, check_label
from headstart.experiment.startup import start_jax
from headstart.experiment.tables import (
    LENIENT,
    OWN_DATA,
    data_section,
    given_options,
    read_tables,
    table_plan,
    with_settings,
)
from headstart.problems import Problem
from headstart.simulate import Callback, Evaluation, Sweep, sweep
from headstart.simulate.identity import data_digest
from headstart.tuning import SearchStopped

if TYPE_CHECKING:  # a run does without the theory, which takes a second to import
    from headstart.experiment.planning import MethodPlan, Plans, Told
    from headstart.experiment.tuning import How, Tuned
    from headstart.tuning import Range

__all__ = ["Experiment", "PlannedExperiment", "TunedExperiment", "resume"]


class Experiment:
    """What is trained on what, and how; from Python objects, from a TOML file, or from a table of data.

    ``training`` are the settings of the section ``[train]``: ``rounds``, ``cohort``, ``backend`` and so on, as
    `headstart.experiment.Training` lists them.

    >>> import headstart as hs
    >>> experiment = hs.Experiment(
    ...     hs.per_fedavg(batch_size=10, inner_lr=0.01),
    ...     hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,))),
    ...     hs.data.sine(clients=5, held_out=1),
    ...     baselines={"fedavg": hs.fedavg(batch_size=10)},
    ...     rounds=2, cohort=1.0, backend="vmap",
    ... )
    >>> run = experiment.run()
    >>> sorted(run.results), run.comparison.column_names[:3]
    (['MetaFL', 'fedavg'], ['method', 'round', 'group'])
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        federation: Federation,
        *,
        baselines: Mapping[str, Algorithm] | None = None,
        evaluation: Evaluation | None = None,
        wire: Any = None,
        seed: int = 0,
        **training: Any,
    ):
        algorithms = {type(algorithm).__name__: algorithm}
        for label, baseline in (baselines or {}).items():
            check_label(label, algorithms)
            algorithms[label] = baseline
        settings = Settings.from_objects(
            algorithms, problem, federation, training=training, evaluation=evaluation or Evaluation(), wire=wire,
            seed=seed,
        )  # fmt: skip
        self._begin(settings, None)

    def _begin(self, settings: Settings, tables: Mapping[str, Any] | None) -> None:
        self.settings = settings
        """What was asked for, checked."""
        self._tables = tables

    @classmethod
    def _of(cls, tables: Mapping[str, Any], data: Plan | None = None) -> "Experiment":
        experiment = cls.__new__(cls)
        experiment._begin(Settings.from_tables(tables, data), tables)
        return experiment

    @classmethod
    def from_toml(
        cls,
        source: str | Path | None = None,
        *,
        settings: Iterable[str] = (),
        seed: int | None = None,
        tune: bool = False,
    ) -> "Experiment":
        """An experiment from a TOML file, or from TOML text; left out, the default one on embedded data.

        ``settings`` change it, each as ``section.key=value``; ``seed`` is instead of the file's. With ``tune``, step
        sizes and weights that it does not say, and how clients adapt, are found by a search before the run.

        >>> experiment = Experiment.from_toml(settings=["train.rounds=5"])
        >>> experiment.config["train"]["rounds"], list(experiment.settings.methods)
        (5, ['per-fedavg', 'fedavg'])
        """
        tables = _changed(read_tables(source), settings, seed)
        return cls._of({**tables, "tune": left_open(tables).table} if tune else tables)

    @classmethod
    def from_table(
        cls,
        data: Any,
        *,
        client: str | None = None,
        label: str | None = None,
        experiment: str | Path | None = None,
        settings: Iterable[str] = (),
        tune: bool | None = None,
        **options: Unpack[Options],
    ) -> "Experiment":
        """An experiment on one's own data, with settings that suit it.

        ``data`` is a table (a CSV or Parquet file, a frame, an Arrow table, columns), the path of a folder with one
        file per client, of a tree of images or of prepared data, or a data set's name. Each value of the column
        ``client`` is a client, and ``label`` is what to predict. `headstart.data.tables.Choices` lists the options.
        What is done with the data is as ``experiment`` says, a TOML file or text, changed by ``settings``. ``seed`` is
        that of training; ``settings=["data.seed=1"]`` deals the data out in another way. Step sizes and weights that
        nobody has said, and how clients adapt, are found by a search before the run, unless ``tune`` is ``False``, or
        is left out and the data set is one that has step sizes of its own here.

        The data is read here, so that the settings can be fitted to it.
        """
        seed = options.pop("seed", None)
        tables = _changed(read_tables(experiment, OWN_DATA), (), seed)
        chosen: dict[str, Any] = {"client": client, "label": label, **options}
        if isinstance(data, (str, Path)):
            tables["data"] = data_section(data, **chosen)
        else:
            tables["data"] = {"name": "own", PYTHON: type_path(data), **given_options(chosen)}
        if tables["data"]["name"] == "own":
            tables["data"] = {**LENIENT, **tables["data"]}
        tables = with_settings(suiting(tables, experiment is not None), settings)
        plan = table_plan(data, tables["data"]) if PYTHON in tables["data"] else None
        federation = cls._of(tables, plan).federation
        if tune is None:
            tune = not has_step_sizes(tables["data"]["name"])
        ready = fitted(tables, federation, tune)
        suited = cls._of({**ready, "tune": left_open(ready).table} if tune else ready, plan)
        suited.__dict__["federation"] = federation
        return suited

    @classmethod
    def from_run(cls, path: str | Path) -> "Experiment":
        """The experiment that a run directory is the record of."""
        return cls._of(recorded_config(Path(path)))

    @property
    def config(self) -> dict[str, Any]:
        """The configuration with every default filled in, as the record has it."""
        return self.settings.resolved

    @cached_property
    def federation(self) -> Federation:
        """The data, loaded and dealt out when it is first asked for."""
        start_jax(self.settings.train)
        federation = self.settings.data.build()
        assert isinstance(federation, Federation)
        return federation

    @cached_property
    def problem(self) -> Problem:
        """The learning problem that fits the data."""
        return self.settings.problem(self.federation)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results should know about how the data was dealt out."""
        partition = self.federation.partition
        return () if partition is None else partition.notes

    def run(
        self, out: str | Path | None = None, callbacks: Callbacks = (), searching: Watch = lambda told: None
    ) -> RunResult:
        """Train every method and evaluate every client before and after it adapts.

        ``out`` is the folder for the record, from which the run can be resumed; left out, nothing is written.
        ``callbacks`` watch every method's training, or are what a function of the method's name returns. Where
        settings are left to a search, that comes first, and ``searching`` is told how far it has come.
        """
        # Everything that can be wrong with the data or the settings is found before the folder is made.
        job = Job(self.settings, self.federation)
        if self.settings.tune is not None:
            _refuse_to_search(job)
        if out is None:
            ready = self if self.settings.tune is None else self.tuned(searching).experiment
            return Job(ready.settings, self.federation).run(None, callbacks)

        def begin() -> RunDirectory:
            digest = data_digest(self.federation)
            return RunDirectory.create(Path(out), self.config, list(self.settings.methods), digest, job.privacy)

        with opened(Path(out), begin) as directory:
            return self._run_in(directory, callbacks, searching)

    def resume(self, path: str | Path, callbacks: Callbacks = (), searching: Watch = lambda told: None) -> RunResult:
        """Continue a run of this experiment where it stopped, bit for bit.

        A run of another experiment, or of data that has changed since, is refused.
        """

        def go_on() -> RunDirectory:
            directory = RunDirectory.open(Path(path))
            try:
                directory.check(self.config, data_digest(self.federation))
            except UsageError:
                directory.close()
                raise
            return directory

        with opened(Path(path), go_on) as directory:
            return self._run_in(directory, callbacks, searching)

    def _run_in(self, directory: Directory, callbacks: Callbacks, searching: Watch) -> RunResult:
        ready = self
        if self.settings.tune is not None:
            if not directory.searched:
                stopped = directory.led(lambda own: self._search_in(own, searching))
                if stopped is not None:
                    return RunResult({}, directory.record(lambda: RunRecord.of_results(self.config, {}, 0)), stopped)
            ready = self._with(directory.manifest["config"])
        self.__dict__["federation"] = ready.__dict__["federation"] = own_share(self.federation)
        return Job(ready.settings, self.federation).run(directory, callbacks)

    def _search_in(self, directory: RunDirectory, searching: Watch) -> str | None:
        """Search settings and write them into the record; the method at which the search was stopped, if it was."""
        folder = directory.path / "tuning"
        try:
            tuned = self.tuned(searching, folder)
        except SearchStopped:
            return next(label for label in self.settings.methods if not (folder / f"{label}.json").exists())
        directory.found(tuned.experiment.config, dict(tuned.found))
        return None

    def tuned(
        self,
        searching: Watch = lambda told: None,
        folder: Path | None = None,
        methods: Sequence[str] | None = None,
    ) -> "TunedExperiment":
        """This experiment with what a search has found for the settings that were left to it.

        ``folder`` is where every method's result is kept until all are done, so that a search can be stopped.
        ``methods`` are those that are searched, if not all.
        """
        if self.settings.tune is None:
            raise UsageError("This experiment leaves nothing to a search.", "Make it with tune=True.")
        job = Job(self.settings, self.federation)
        _refuse_to_search(job)
        labels = list(self.settings.methods) if methods is None else list(methods)
        found = search_settings(self.settings, self.federation, job.wire, folder, searching, labels)
        return TunedExperiment(self._with(with_found(self.config, found, self.federation)), found)

    def tune(
        self,
        over: "Mapping[str, Range | Sequence[float]] | Iterable[str]",
        how: "How" = "halving",
        trials: int = 24,
        searching: Watch = lambda told: None,
    ) -> "Tuned":
        """Try numbers for any settings of this experiment, and choose those that serve validation clients best.

        ``over`` says which and where: ``["algorithm.inner_lr=0.001:1:log"]`` or ``{"algorithm.inner_lr": (0.001, 1)}``.
        ``trials`` points are tried: those of a ``grid``, points at ``random``, points spread evenly of which the better
        ones go on (``halving``), or what ``optuna`` proposes. Points that differ in numbers of the algorithm alone are
        trained together as one program. Baselines are not trained.
        """
        from headstart.experiment.tuning import ranges_from, tune

        return tune(self, ranges_from(over), how, trials, searching)

    def changed(self, settings: Iterable[str]) -> "Experiment":
        """This experiment with other settings, each as ``section.key=value``; the same data, where that stays."""
        if self._tables is None:
            raise UsageError(
                "The settings of Python objects cannot be changed.",
                "Describe the experiment in TOML, or build another.",
            )
        tables = with_settings(self._tables, settings)
        if tables.get("data") != self._tables.get("data"):
            return type(self)._of(tables)
        return self._with(tables)

    def _with(self, tables: Mapping[str, Any]) -> "Experiment":
        """The same data and problem with other settings."""
        experiment = type(self)._of(tables, self.settings.data if PYTHON in self.config["data"] else None)
        experiment.__dict__["federation"] = self.federation
        return experiment

    def sweep(
        self,
        seeds: Sequence[int],
        algorithms: Sequence[Algorithm] | None = None,
        *,
        final: Evaluation | None = None,
        measure: Callable[[Params], dict[str, Any]] | None = None,
        devices: int | None = None,
        checkpoint: Path | None = None,
        checkpoint_seconds: float = 30.0,
        callbacks: Sequence[Callback] = (),
    ) -> Sweep:
        """Train with every seed, and with several algorithms that differ in numbers only, as one compiled program.

        Left out, the algorithm is the experiment's own; its baselines are not trained. The rest is as
        `headstart.simulate.sweep` has it.
        """
        job, train = Job(self.settings, self.federation), self.settings.train
        return sweep(
            list(job.algorithms.values())[:1] if algorithms is None else algorithms, job.problem, self.federation,
            seeds=seeds, rounds=train.rounds, cohort=train.cohort, weighting=train.weighting, wire=job.wire,
            evaluation=self.settings.evaluate, final=final, measure=measure, devices=devices,
            memory_limit=train.memory_limit,
            checkpoint=checkpoint, checkpoint_seconds=checkpoint_seconds, callbacks=callbacks,
        )  # fmt: skip

    def plan(
        self,
        epsilon: float | None = None,
        *,
        radius: float | None = None,
        safety: float = 1.0,
        clients: int | None = None,
        progress: "Told | None" = None,
    ) -> "Plans":
        """Step sizes, local steps, rounds and batch sizes by the papers' theorems, for every method they speak of.

        ``epsilon`` is what the mean squared gradient norm is to be at most; left out, a tenth of the initial. The
        constants of the losses are estimated on ``clients`` clients (4) within ``radius`` of the initial model (a
        tenth of its norm), and multiplied by ``safety``. ``progress`` is told what has been estimated.
        """
        from headstart.experiment.planning import make_plans

        return make_plans(
            self.settings, self.federation, epsilon=epsilon, radius=radius, safety=safety, clients=clients,
            progress=progress,
        )  # fmt: skip

    def planned(self, epsilon: float | None = None, **options: Any) -> "PlannedExperiment":
        """This experiment with the settings of a plan for its algorithm; the options are those of `plan`.

        Where ``epsilon`` is left out, it is about the smallest that the experiment's rounds reach.
        """
        if self._tables is None:
            raise UsageError(
                "The settings of Python objects cannot be planned.", "Describe the experiment in TOML, or use plan()."
            )
        plans = self.plan(epsilon, **options)
        found = plans.planned(self._tables)
        return PlannedExperiment(self._with(found.tables), plans, found.method, found.plan, found.notes)


@dataclass(frozen=True, eq=False)
class PlannedExperiment:
    """An experiment with settings from theory, and where they come from."""

    experiment: Experiment
    plans: "Plans"
    method: str
    plan: "MethodPlan"
    notes: list[str]
    """What a reader of the plan should know."""


@dataclass(frozen=True, eq=False)
class TunedExperiment:
    """An experiment with settings that a search has found, and how it found them."""

    experiment: Experiment
    found: Mapping[str, Any]
    """The smoothness of the loss, and for every method what was chosen, its score, and all that was tried."""


def resume(path: str | Path, callbacks: Callbacks = ()) -> RunResult:
    """Continue the run in a folder where it stopped, as its record says.

    A run of Python objects is continued by the experiment that has them: see `Experiment.resume`.
    """
    return Experiment.from_run(path).resume(path, callbacks)


def _refuse_to_search(job: Job) -> None:
    if job.privacy is not None:
        raise UsageError(
            "A search looks at the data many times, which the privacy of the run would not count.",
            "Give the step sizes and leave the search out: --no-tune, or tune=False.",
        )


def _changed(tables: Mapping[str, Any], settings: Iterable[str], seed: int | None) -> dict[str, Any]:
    changed = with_settings(tables, settings)
    return changed if seed is None else {**changed, "seed": seed}
