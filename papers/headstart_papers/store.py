"""Where results are kept: one small JSON file per unit, whole or not there."""

import json
import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headstart.errors import UsageError
from headstart.simulate.files import write_json
from headstart_papers.record import Unit

__all__ = ["Store", "code_version"]


class Store:
    """A folder of results, ``<experiment>/<row>.<method>[.seedN].json``, with checkpoints of what is under way."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, unit: Unit) -> Path:
        """A unit's result file."""
        return self.folder / unit.experiment / f"{unit.name}.json"

    def checkpoint(self, unit: Unit) -> Path:
        """Where a unit keeps how far it has come; another setting has another folder."""
        return self.folder / ".unfinished" / unit.experiment / f"{unit.name}.{unit.fingerprint}"

    def read(self, unit: Unit) -> dict[str, Any] | None:
        """A unit's result; ``None`` where there is none, or one of other settings."""
        path = self.path(unit)
        try:
            result: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise UsageError(
                f"{path} is not a result file: {error}.", "Remove it; the unit then runs again."
            ) from error
        return result if result.get("fingerprint") == unit.fingerprint else None

    def write(self, unit: Unit, result: dict[str, Any]) -> None:
        """Keep a unit's result, with what it was made by."""
        write_json(
            self.path(unit),
            result | {"finished": datetime.now(UTC).isoformat(timespec="seconds"), **code_version()},
            indent=None,
        )


@lru_cache(maxsize=1)
def code_version() -> dict[str, Any]:
    """The commit of the code, where it is in a repository, and the versions that numbers depend on."""
    versions = {}
    for name in ("headstart", "jax", "jaxlib", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    root = Path(__file__).resolve().parents[2]
    commit = None
    if (root / ".git").exists():
        try:
            told = subprocess.run(
                ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"],
                cwd=root, capture_output=True, text=True, timeout=10, check=True,
            )  # fmt: skip
            commit = told.stdout.strip()
        except (OSError, subprocess.SubprocessError):
            commit = None
    return {"commit": commit, "versions": versions}
