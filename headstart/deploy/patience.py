"""How long a server asks again when too few sites answer, and what it says when it gives up."""

import time
from collections.abc import Mapping

from headstart.deploy.events import Events
from headstart.deploy.messages import Fault, Reason
from headstart.deploy.settings import DeploySettings
from headstart.errors import HeadstartError

__all__ = ["PASSING", "TRIES", "BelowQuorum", "Patience"]

PASSING: frozenset[Reason] = frozenset({"absent", "silent", "slow", "unreachable", "stale", "unknown run"})
"""Faults that time may mend. The others are in what a site has or computes, and come again."""
TRIES = 5
"""So often in a row is asked again where time mends nothing."""


class BelowQuorum(HeadstartError):
    """Too few clients' updates came for a round to count."""


class Patience:
    """Asks sites again for one thing until enough of them have answered, but not without end."""

    def __init__(self, settings: DeploySettings, events: Events):
        self._settings, self._events = settings, events
        self._began = time.monotonic()
        self._futile = 0

    def wait(self, what: str, needed: str, faults: Mapping[str, Fault], **about: object) -> None:
        """Wait before the next attempt, or raise `BelowQuorum` where that is no use or not wanted.

        ``what`` has happened, though ``needed`` says what a round needs. ``about`` is for the event log.
        """
        lasting = faults and not any(fault.reason in PASSING for fault in faults.values())
        self._futile = self._futile + 1 if lasting else 0
        waited = time.monotonic() - self._began
        if self._settings.below_quorum == "stop":
            raise BelowQuorum(_stopped(what, needed, faults, "start the server again when the sites are back"))
        if self._futile >= TRIES:
            what = f"{what}, {TRIES} times in a row"
            raise BelowQuorum(_stopped(what, needed, faults, "mend this at the sites, and start the server again"))
        if waited > self._settings.wait_timeout:
            what = f"{what} for {waited:.0f} s"
            raise BelowQuorum(_stopped(what, needed, faults, "start the server again when the sites are back"))
        self._events.tell("waiting", reason=needed, **about)
        time.sleep(self._settings.retry_seconds)


def _stopped(what: str, needed: str, faults: Mapping[str, Fault], remedy: str) -> str:
    lines = [f"{what}: {needed}.", *(f"{site}: {fault}" for site, fault in sorted(faults.items()))]
    return "\n  ".join([*lines, f"Everything up to the last round is kept: {remedy}."])
