"""How a federation is run, beside what it trains: the file ``deploy.toml`` of the server's folder."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headstart.config import plan
from headstart.core import checks
from headstart.deploy.messages import LARGEST_MESSAGE
from headstart.errors import UsageError

__all__ = ["DeploySettings"]


@dataclass(frozen=True)
class DeploySettings:
    """How long is waited, for whom, and what is taken.

    Args:
        quorum: The share of a cohort's clients, or their number, whose updates a round needs.
        below_quorum: What to do where fewer have come: ask again until they have, or stop with everything kept.
        round_timeout: Seconds that the server waits for a phase of a round.
        site_deadline: Seconds after which a site gives up on a phase, and can be asked again.
        join_timeout: Seconds that the server waits, before the agreement, for all sites of the roster.
        least_sites: How many sites the agreement needs at least once that time is over.
        retry_seconds: Seconds between attempts at a round without quorum.
        wait_timeout: Seconds after which a server that waits for sites gives up, with everything kept.
        poll_seconds: Seconds between looks for answers.
        max_update_norm: The largest L2 norm of an update that is taken; without it, what the wire clips to.
        max_message_bytes: The largest message that is taken.
        lost_memory: What to do with a site that has lost its memory: leave it out, or let its clients begin anew.
    """

    quorum: float | int = 0.5
    below_quorum: Literal["wait", "stop"] = "wait"
    round_timeout: float = 300.0
    site_deadline: float = 240.0
    join_timeout: float = 120.0
    least_sites: int = 2
    retry_seconds: float = 5.0
    wait_timeout: float = 86400.0
    poll_seconds: float = 0.2
    max_update_norm: float | None = None
    max_message_bytes: int = LARGEST_MESSAGE
    lost_memory: Literal["leave-out", "begin-anew"] = "leave-out"

    def __post_init__(self) -> None:
        if isinstance(self.quorum, float):
            checks.in_unit_interval("quorum", self.quorum)
        else:
            checks.whole("quorum", self.quorum, 1)
        for name in ("round_timeout", "site_deadline", "poll_seconds", "wait_timeout"):
            checks.positive(name, getattr(self, name))
        for name in ("join_timeout", "retry_seconds"):
            checks.at_least(name, getattr(self, name), 0)
        checks.whole("least_sites", self.least_sites, 1)
        checks.whole("max_message_bytes", self.max_message_bytes, 1)
        if self.max_update_norm is not None:
            checks.positive("max_update_norm", self.max_update_norm)
        if self.site_deadline >= self.round_timeout:
            raise UsageError(
                f"site_deadline = {self.site_deadline:g} is not below round_timeout = {self.round_timeout:g}: a site "
                "would still be working when nobody waits for it.",
                "Set site_deadline to four fifths of round_timeout, for example.",
            )

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "DeploySettings":
        """From a table's keys and values."""
        built: DeploySettings = plan(cls, table, "deploy").build()
        return built

    @classmethod
    def read(cls, folder: Path) -> "DeploySettings":
        """From ``deploy.toml`` of the server's folder, without its tables; all as usual where there is none."""
        path = folder / "deploy.toml"
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {error}.", "Mend the file, or remove it.") from error
        table.pop("gateway", None)
        if sections := [key for key, value in table.items() if isinstance(value, Mapping)]:
            raise UsageError(
                f"{path} has a section [{sections[0]}].",
                "The one that it can have is [gateway]; settings stand above it.",
            )
        return cls.from_table(table)

    def needed(self, cohort: int) -> int:
        """How many clients of a cohort a round needs.

        >>> DeploySettings(quorum=0.5).needed(5), DeploySettings(quorum=4).needed(3)
        (3, 3)
        """
        wanted = -int(-self.quorum * cohort // 1) if isinstance(self.quorum, float) else self.quorum
        return min(cohort, max(1, wanted))
