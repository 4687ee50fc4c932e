"""The server's side of all that is said in a run: who is there, who has begun, who is left out and why."""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headstart.data import Federation
from headstart.deploy.events import Events
from headstart.deploy.fleet import Answers, Fleet, consult, readable
from headstart.deploy.messages import Fault, Head, Kind, Message
from headstart.deploy.settings import DeploySettings
from headstart.deploy.setup import digest_of
from headstart.deploy.site import Agreed
from headstart.deploy.whole import write_secret
from headstart.errors import UsageError
from headstart.simulate.files import write_json

__all__ = ["Asked", "Book", "Session"]


class Asked(NamedTuple):
    """What one site is asked."""

    said: Mapping[str, Any] = {}
    arrays: Mapping[str, np.ndarray] = {}


@dataclass
class Book:
    """What a server must not forget beside its checkpoints: which run it is, and how often it has opened a round.

    Without a folder it is forgotten with the process.
    """

    folder: Path | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    attempts: int = 0
    founding: str = ""
    """The digest of the agreement that the run was begun with; sites that join later make others of it."""

    FILE = "federation.json"

    @classmethod
    def open(cls, folder: Path) -> "Book":
        """The book of a server's folder, a new one if there is none."""
        path = folder / cls.FILE
        if not path.exists():
            return cls(folder)
        try:
            told = json.loads(path.read_text())
            return cls(folder, str(told["run"]), int(told["attempts"]), str(told["founding"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path} cannot be read: {error}.", "Without it a run cannot go on: begin a new one in another folder."
            ) from error

    def next_attempt(self) -> int:
        """A number that no round of this run was opened with, whatever has been killed since."""
        self.attempts += 1
        self.write()
        return self.attempts

    def write(self) -> None:
        """To the disk, if there is a folder."""
        if self.folder is not None:
            told = {"run": self.run, "attempts": self.attempts, "founding": self.founding}
            write_json(self.folder / self.FILE, told)

    @cached_property
    def secret(self) -> bytes:
        """A key that never leaves the server, for noise that no site may know."""
        if self.folder is None:
            return secrets.token_bytes(32)
        path = self.folder / "noise.key"
        if not path.exists():
            write_secret(path, secrets.token_bytes(32))
        return path.read_bytes()


class Session:
    """A run of an experiment over a fleet that has agreed on its data."""

    def __init__(
        self,
        fleet: Fleet,
        config: Mapping[str, Any],
        agreement: Agreed,
        settings: DeploySettings,
        events: Events,
        book: Book,
        newcomers: Callable[["Session", set[str]], Agreed | None] | None = None,
    ):
        self.fleet, self.settings, self.events, self.book = fleet, settings, events, book
        self._config, self._newcomers = config, newcomers
        self._present: set[str] = set()
        self._agree(agreement)

    def _agree(self, agreement: Agreed) -> None:
        self.agreement = agreement
        self.digest = digest_of(self._config, agreement.digest)
        self.federation: Federation = agreement.federation()
        self.site_of = {client: site for site, clients in agreement.sites.items() for client in clients}
        self._begun: set[str] = set()

    def look(self) -> set[str]:
        """Who is there now; who has come and who has gone since the last look is told."""
        here = self.fleet.present()
        for site in sorted(here - self._present):
            self.events.tell("joined", site=site)
        for site in sorted(self._present - here):
            self.events.tell("lost", site=site)
            self._begun.discard(site)
        self._present = here
        unknown = here - set(self.agreement.sites)
        if unknown and self._newcomers is not None:
            joined = self._newcomers(self, unknown)
            if joined is not None:
                self._agree(joined)
        return here

    def by_site(self, clients: list[int]) -> dict[str, list[int]]:
        """Some clients, by the sites that have them."""
        sites: dict[str, list[int]] = {}
        for client in clients:
            sites.setdefault(self.site_of[client], []).append(client)
        return sites

    def ask(
        self, kind: Kind, asked: Mapping[str, Asked], *, method: str, round_: int, attempt: int = 0, phase: str = ""
    ) -> Answers:
        """Ask sites something about the run, those first to begin it who have not."""
        self.look()
        unable = self._begin(set(asked))

        def question(site: str) -> Message:
            head = Head(kind, self.book.run, self.digest, site, method, round_, attempt, phase, self._deadline)
            return Message(head, *asked[site])

        answers = self._consult({site: question(site) for site in asked if site not in unable})
        answers.faults.update(unable)
        for site, fault in answers.faults.items():
            if fault.reason == "unknown run":
                self._begun.discard(site)
            self.leave_out(site, fault, method=method, round_=round_, attempt=attempt, phase=phase or kind)
        return answers

    def leave_out(self, site: str, fault: Fault, *, method: str, round_: int, attempt: int, phase: str) -> None:
        """Tell that a site's answer does not count."""
        about = {"method": method, "round": round_, "attempt": attempt, "phase": phase}
        self.events.tell("left_out", site=site, reason=fault.reason, detail=fault.detail, **about)

    def _begin(self, sites: set[str]) -> dict[str, Fault]:
        """Have sites begin the run that have not; those that cannot are returned, with what is wrong."""
        new = sorted((sites & self._present) - self._begun)
        if not new:
            return {}
        said = {"config": self._config, "agreement": self.agreement.to_json()}
        answers = self._consult(
            {
                site: Message(Head("begin", self.book.run, self.digest, site, deadline=self._deadline), said)
                for site in new
            }
        )
        for site, answer in answers.good.items():
            self._begun.add(site)
            self.events.tell("begun", site=site, versions=_few(answer.said.get("versions")))
        for site, fault in answers.faults.items():
            self.events.tell("left_out", site=site, reason=fault.reason, detail=fault.detail, phase="begin")
        return answers.faults

    def _consult(self, questions: Mapping[str, Message]) -> Answers:
        return consult(self.fleet, questions, self.settings.round_timeout, self.settings.max_message_bytes)

    @property
    def _deadline(self) -> float:
        return self.settings.site_deadline


def _few(told: Any) -> dict[str, str]:
    """A small table of what a site has, whatever it tells."""
    pairs = list(told.items())[:MOST_VERSIONS] if isinstance(told, dict) else []
    return {readable(name): readable(version) for name, version in pairs}


MOST_VERSIONS = 20
