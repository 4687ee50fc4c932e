"""A server's event log, read while it is written, and what it says of the federation so far."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.deploy.events import FILE

__all__ = ["EventTail", "Seen", "SiteSeen", "status"]

FAULTS_KEPT = 8


class EventTail:
    """Reads what has been added to a log since the last look; a line that is not whole yet is left for the next."""

    def __init__(self, folder: Path, at_end: bool = False):
        self._path = folder / FILE
        self._offset = self._path.stat().st_size if at_end and self._path.exists() else 0

    def read(self) -> list[dict[str, Any]]:
        """The new events."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [event for line in whole.splitlines() if (event := _parsed(line)) is not None]


@dataclass
class SiteSeen:
    """What the log says of one site."""

    there: bool = False
    answers: int = 0
    left_out: int = 0
    reason: str = ""
    """Of the last time that it was left out."""


@dataclass
class Seen:
    """What the log says of a federation."""

    sites: dict[str, SiteSeen] = field(default_factory=dict)
    method: str = ""
    round: int = 0
    rounds: int = 0
    seconds: float = 0.0
    """How long the last round took."""
    members: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    state: str = "starting"
    faults: list[str] = field(default_factory=list)
    """The last of them, in words."""
    fault_count: int = 0
    refused: int = 0
    resumed: int = 0
    scores: dict[str, Any] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> None:
        """Learn from an event."""
        kind = str(event.get("event", ""))
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(event)

    def _site(self, event: Mapping[str, Any]) -> SiteSeen:
        return self.sites.setdefault(str(event.get("site", "?")), SiteSeen())

    def _fault(self, words: str) -> None:
        self.fault_count += 1
        self.faults = [*self.faults, words][-FAULTS_KEPT:]

    def _on_joined(self, event: Mapping[str, Any]) -> None:
        self._site(event).there = True

    def _on_lost(self, event: Mapping[str, Any]) -> None:
        self._site(event).there = False
        self._fault(f"{event.get('site')}: {event.get('reason', 'lost')}")

    def _on_agreed(self, event: Mapping[str, Any]) -> None:
        self.state = "agreed"

    def _on_begun(self, event: Mapping[str, Any]) -> None:
        self.method, self.state = str(event.get("method", "")), "training"
        self.round, self.rounds = int(event.get("round", 0)), int(event.get("rounds", 0))

    def _on_opened(self, event: Mapping[str, Any]) -> None:
        self.state = "training"

    def _on_closed(self, event: Mapping[str, Any]) -> None:
        self.state = "training"
        self.round = int(event.get("round", self.round)) + 1
        self.seconds = float(event.get("seconds", 0.0))
        self.bytes_up += int(event.get("bytes_up", 0))
        self.bytes_down += int(event.get("bytes_down", 0))
        members = event.get("members", 0)
        self.members = len(members) if isinstance(members, (list, dict)) else int(members)
        for site in event.get("sites", ()):
            self.sites.setdefault(str(site), SiteSeen(there=True)).answers += 1

    def _on_left_out(self, event: Mapping[str, Any]) -> None:
        site = self._site(event)
        site.left_out += 1
        site.reason = str(event.get("reason", ""))
        self._fault(f"round {event.get('round')}: {event.get('site')} left out: {site.reason}")

    def _on_waiting(self, event: Mapping[str, Any]) -> None:
        self.state = f"waiting: {event.get('reason', '')}"

    def _on_resumed(self, event: Mapping[str, Any]) -> None:
        self.resumed += 1
        self.round = int(event.get("round", self.round))

    def _on_process_ended(self, event: Mapping[str, Any]) -> None:
        self._fault(f"{event.get('process')} {event.get('reason')}")

    def _on_run_ended(self, event: Mapping[str, Any]) -> None:
        self._fault(f"training is started again: {event.get('reason')}")

    def _on_refused(self, event: Mapping[str, Any]) -> None:
        self.refused += 1
        whose = f" of {event['site']}" if event.get("site") else ""
        self._fault(f"refused a call{whose} from {event.get('caller')}: {event.get('reason')}")

    def _on_finished(self, event: Mapping[str, Any]) -> None:
        self.state = "finished"

    def _on_stopped(self, event: Mapping[str, Any]) -> None:
        self.state = f"stopped: {event.get('reason', '')}"


def status(folder: str | Path) -> Seen:
    """How a federation is, or was at its end, from the event log in the server's folder (or in the one around it)."""
    path = Path(folder)
    seen = Seen()
    for event in EventTail(path if (path / FILE).exists() else path / "server").read():
        seen.take(event)
    return seen


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
