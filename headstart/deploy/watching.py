"""A server's event log, read while it is written, and what it says of the federation so far."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.deploy.events import FILE
from headstart.deploy.places import ServerPlace
from headstart.deploy.roster import FILE as ROSTER
from headstart.deploy.sole import has

__all__ = ["EventTail", "Seen", "SiteSeen", "status"]

FAULTS_KEPT = 8
BESIDE = {"agree": "agreement", "begin": "beginning", "model": "end"}
"""What happens before the first round and after the last, by its phase."""


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
    state: str = "starting"
    method: str = ""
    round: int = 0
    """How many rounds of the method are done."""
    rounds: int = 0
    seconds: float = 0.0
    """How long the last round took."""
    clients: int = 0
    """Whose updates counted in it."""
    bytes_up: int = 0
    bytes_down: int = 0
    fault_count: int = 0
    refused: int = 0
    """Calls that the gateway did not let through."""
    faults: list[str] = field(default_factory=list)
    """The last of all, in words."""
    _asked: list[str] = field(default_factory=list)

    def take(self, event: Mapping[str, Any]) -> None:
        """Learn from an event; one that is not as it should be tells nothing."""
        handler = getattr(self, f"_on_{event.get('event')}", None)
        if handler is not None:
            with suppress(TypeError, ValueError, KeyError):
                handler(event)

    def _site(self, event: Mapping[str, Any]) -> SiteSeen:
        return self.sites.setdefault(str(event["site"]), SiteSeen())

    def _fault(self, words: str) -> None:
        self.fault_count += 1
        self.faults = [*self.faults, words][-FAULTS_KEPT:]

    def _on_joined(self, event: Mapping[str, Any]) -> None:
        self._site(event).there = True

    def _on_lost(self, event: Mapping[str, Any]) -> None:
        self._site(event).there = False
        self._fault(f"{event['site']} is not there{_because(event)}")

    def _on_agreed(self, event: Mapping[str, Any]) -> None:
        self.state = "agreed"

    def _on_started(self, event: Mapping[str, Any]) -> None:
        self.method, self.state = str(event["method"]), "training"
        self.round, self.rounds = int(event["round"]), int(event["rounds"])

    _on_resumed = _on_started

    def _on_opened(self, event: Mapping[str, Any]) -> None:
        self.state = "training"
        self._asked = [str(site) for site in event["sites"]]

    def _on_closed(self, event: Mapping[str, Any]) -> None:
        self.state = "training"
        self.round = int(event["round"]) + 1
        for site in self._asked:
            self.sites.setdefault(site, SiteSeen()).answers += 1
        self.seconds, self.clients = float(event["seconds"]), int(event["clients"])
        self.bytes_up += int(event["bytes_up"])
        self.bytes_down += int(event["bytes_down"])

    def _on_left_out(self, event: Mapping[str, Any]) -> None:
        site = self._site(event)
        site.left_out += 1
        site.reason = str(event["reason"])
        if event["site"] in self._asked:
            self._asked.remove(event["site"])
        when = BESIDE.get(str(event.get("phase")), f"round {event.get('round')}")
        self._fault(f"{when}: {event['site']} is left out{_because(event)}")

    def _on_waiting(self, event: Mapping[str, Any]) -> None:
        sites = ", ".join(map(str, event.get("sites", ())))
        self.state = f"waiting{_because(event)}" + (f" ({sites})" if sites else "")

    def _on_process_ended(self, event: Mapping[str, Any]) -> None:
        self._fault(f"the {event['process']} {event['reason']}, and is started again")

    def _on_run_ended(self, event: Mapping[str, Any]) -> None:
        self._fault(f"training is started again{_because(event)}")

    def _on_refused(self, event: Mapping[str, Any]) -> None:
        self.refused += 1
        whose = f" of {event['site']}" if event.get("site") else ""
        self._fault(f"refused a call{whose} from {event.get('caller')}{_because(event)}")

    def _on_mangled(self, event: Mapping[str, Any]) -> None:
        self._fault(f"the roster cannot be read, and stays as it was{_because(event)}")

    def _on_finished(self, event: Mapping[str, Any]) -> None:
        self.state = "finished"

    def _on_stopped(self, event: Mapping[str, Any]) -> None:
        self.state = f"stopped{_because(event)}"


def _because(event: Mapping[str, Any]) -> str:
    """The reason of an event with its details, if it has any."""
    return "".join(f": {event[key]}" for key in ("reason", "detail") if event.get(key))


def status(folder: str | Path) -> Seen:
    """How a federation is, or was at its end, from the event log in the server's folder (or in the one around it)."""
    path = Path(folder)
    server = ServerPlace(path if (path / ROSTER).exists() else path / "server")
    server.door()  # complains if there is no server
    seen = Seen()
    events = EventTail(server.folder).read()
    seen.state = "starting" if events else "not started yet"
    for event in events:
        seen.take(event)
    if events and not seen.state.startswith(("finished", "stopped")) and not has(server.folder, "server"):
        seen.state = "no server is running; start it to go on"
    return seen


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
