"""What an experiment says of how data is dealt out, wherever the data is."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from headstart.config import plan
from headstart.data import DATASETS
from headstart.data.partitions import Natural, drawn_away
from headstart.data.tables import Choices
from headstart.data.tables.fitting import Standardize
from headstart.data.tables.labels import Kind
from headstart.data.tables.splitting import away, natural_of
from headstart.errors import UsageError

__all__ = ["AT_SITE", "HAR", "OWN", "Terms"]

AT_SITE = ("path", "folder", "describe", "least_count")
"""The settings of [data] that every site has for itself."""

OWN, HAR = "own", "har"
"""Data of the site's own, and the one data set whose samples are by person."""

CLIENT = "client"
"""What clients are called where nobody says it."""


@dataclass(frozen=True)
class Terms:
    """How rows become clients' parts: what the simulator would do with all of the rows."""

    name: str
    """``own``, or that of a data set whose samples have owners by nature."""
    natural: Natural
    choices: Choices
    label: str | None
    held_out: int | float | None
    validation: int | float | None

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> "Terms":
        """From the section [data] of an experiment."""
        settings = {key: value for key, value in section.items() if key not in (*AT_SITE, "name")}
        name = section.get("name", OWN)
        if name == HAR:
            return cls._named(name, settings)
        if name != OWN:
            raise UsageError(
                f"data.name = {name!r}: the samples of this data set have no owners that could be sites.",
                "Use name = 'own' with data of your own, or har.",
            )
        asked = plan(DATASETS[OWN], settings, "data", given={"path": ""}).arguments
        choices = Choices(**{field.name: asked[field.name] for field in fields(Choices) if field.name in asked})
        client, label = asked.get("client") or CLIENT, asked.get("label")
        return cls(name, natural_of(client, choices), choices, label, choices.held_out, choices.validation)

    @classmethod
    def _named(cls, name: str, settings: Mapping[str, Any]) -> "Terms":
        call = DATASETS[name]
        defaults = {key: p.default for key, p in inspect.signature(call).parameters.items()}
        asked = defaults | plan(call, settings, "data").arguments
        natural = asked["partition"]
        if not isinstance(natural, Natural):
            raise UsageError(
                f"data.partition of {name} deals samples out as they never were at sites.",
                "Leave the partition out, or choose natural.",
            )
        choices = Choices(seed=asked["seed"], standardize="none")
        return cls(name, natural, choices, None, asked["held_out"], asked["validation"])

    @property
    def client(self) -> str:
        """The column that says whose a row is."""
        return self.natural.column

    @property
    def kind(self) -> Kind:
        """What the label is to be taken for."""
        return self.choices.kind

    @property
    def seed(self) -> int:
        """Which rows are for tests and who is held out."""
        return self.choices.seed

    @property
    def standardize(self) -> Standardize:
        """Whose mean and deviation numbers are standardised with."""
        return self.choices.standardize

    def drawn_away(self, clients: int) -> tuple[np.ndarray, np.ndarray]:
        """Which of so many clients never train: those for validation, and those that are new."""
        held_out, validation = self.held_out, self.validation
        if self.name == OWN:
            held_out, validation = away(self.choices, clients)
        return drawn_away(clients, held_out or 0, self.seed, validation or 0)
