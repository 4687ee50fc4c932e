"""Experiments with the methods that are to be compared."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from headstart.experiment import Experiment, read_tables, with_settings

__all__ = ["experiment_of"]


def experiment_of(
    source: str | Path | None = None,
    methods: Sequence[str] | None = None,
    settings: Iterable[str] = (),
    data: str | None = None,
    client: str | None = None,
    label: str | None = None,
    tune: bool | None = None,
) -> Experiment:
    """An experiment from a TOML file (left out, the default one), or on one's own data, with methods by their names.

    Methods that the file does not have take over every setting of its algorithm that they also have. ``tune`` leaves
    step sizes and weights that nobody has said to a search, as `Experiment.from_toml` and `Experiment.from_table` have
    it.
    """
    changes = list(settings)
    if methods is not None and data is None:
        tables = with_settings(read_tables(source), changes)
        there = {tables.get("algorithm", {}).get("name"), *tables.get("baselines", {})}
        changes += [f"baselines.{name}.name={name}" for name in methods if name not in there]
    elif methods is not None:
        first, *others = methods
        changes += [f"algorithm.name={first}", *(f"baselines.{name}.name={name}" for name in others)]
    if data is None:
        return Experiment.from_toml(source, settings=changes, tune=bool(tune))
    return Experiment.from_table(data, client=client, label=label, experiment=source, settings=changes, tune=tune)
