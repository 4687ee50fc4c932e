"""How sites come together: the agreement before the first round, and those that join later."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from headstart.deploy.agreement import Agreement, Negotiation, Said, WrongAnswer
from headstart.deploy.events import Events
from headstart.deploy.fleet import Answers, Fleet, consult
from headstart.deploy.messages import Fault, Head, Message
from headstart.deploy.patience import TRIES, BelowQuorum
from headstart.deploy.roster import LiveRoster
from headstart.deploy.session import Book, Session
from headstart.deploy.settings import DeploySettings
from headstart.deploy.setup import digest_of
from headstart.errors import UsageError
from headstart.simulate.files import write_json

__all__ = ["Welcome"]


LOOK_SECONDS = 0.5
WAITING_SECONDS = 10.0
"""Between two lines that say for whom is waited."""


class Welcome:
    """Brings sites together before the first round, and those in that come later."""

    def __init__(
        self,
        folder: Path,
        section: Mapping[str, Any],
        fleet: Fleet,
        settings: DeploySettings,
        events: Events,
        book: Book,
    ):
        self._path, self._folder, self._section = folder / "agreement.json", folder, section
        self._fleet, self._settings, self._events, self._book = fleet, settings, events, book
        self._refused: dict[str, float] = {}

    def agreement(self) -> Agreement:
        """What was agreed on before, or is now."""
        if self._path.exists():
            agreement = self._read()
        else:
            agreement = self._negotiated()
            write_json(self._path, agreement.to_json(), indent=None)
            self._events.tell("agreed", sites=sorted(agreement.sites), clients=agreement.federation().total)
        if not self._book.founding:
            self._book.founding = agreement.digest
            self._book.write()
        return agreement

    def newcomers(self, session: Session, sites: set[str]) -> Agreement | None:
        """The agreement with more sites, whose clients come as new ones; ``None`` if none of them can come in now."""
        due = [site for site in sorted(sites) if time.monotonic() >= self._refused.get(site, 0.0)]
        if not due:
            return None
        agreement = session.agreement
        assert isinstance(agreement, Agreement)
        before = agreement
        answers = self._ask(agreement.welcome_question(), due)
        for site, answer in answers.good.items():
            try:
                agreement = agreement.with_newcomer(site, _said(answer))
            except UsageError as error:
                self._refuse(site, Fault("refused", str(error)))
            else:
                self._events.tell("welcomed", site=site, clients=len(agreement.sites[site]))
        for site, fault in answers.faults.items():
            self._refuse(site, fault)
        if agreement is before:
            return None
        write_json(self._path, agreement.to_json(), indent=None)
        return agreement

    def _refuse(self, site: str, fault: Fault) -> None:
        self._refused[site] = time.monotonic() + self._settings.join_timeout
        self._leave_out(site, fault)

    def _leave_out(self, site: str, fault: Fault) -> None:
        self._events.tell("left_out", site=site, reason=fault.reason, detail=fault.detail, phase="agree")

    def _read(self) -> Agreement:
        try:
            return Agreement.from_json(json.loads(self._path.read_text()))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{self._path} cannot be read: {error}.", "Bring it back from a copy; a site has one in its folder."
            ) from error

    def _negotiated(self) -> Agreement:
        """With all sites of the roster, or after a while with those that are there."""
        sites, failed, out = self._gathered(), Counter[str](), set[str]()
        while True:
            talk, missing = Negotiation(self._section), set[str]()
            while (question := talk.question()) is not None:
                answers = self._ask(question, sorted(sites))
                for site, fault in answers.faults.items():
                    self._leave_out(site, fault)
                missing = set(answers.faults)
                if missing:
                    break
                try:
                    talk.take({site: _said(answer) for site, answer in answers.good.items()})
                except WrongAnswer as error:
                    # The others go on without it, as in a round.
                    answers.faults[error.site] = Fault("refused", error.problem)
                    self._leave_out(error.site, answers.faults[error.site])
                    missing = {error.site}
                    break
            if not missing:
                return talk.agreement()
            failed.update(missing)
            refusing = {
                site for site in missing if answers.faults[site].reason == "refused" or failed[site] >= TRIES
            }  # fmt: skip
            out |= refusing
            if refusing and len(sites - out) < self._settings.least_sites:
                named = "\n".join(f"  {site}: {answers.faults[site]}" for site in sorted(refusing))
                raise UsageError(f"Sites cannot take part:\n{named}", "Mend their data or settings, and start again.")
            sites = self._gathered(without=out)

    def _gathered(self, without: Set[str] = frozenset()) -> set[str]:
        """The sites to agree with, once all of the roster are there or the time is up and enough of them are."""
        began, told, roster = time.monotonic(), 0.0, LiveRoster(self._folder)
        end = began + self._settings.join_timeout
        while True:
            wanted = set(roster.look().keys.values()) - without
            here = self._fleet.present() & wanted
            if here == wanted and here:
                return here
            now = time.monotonic()
            if now > end and len(here) >= self._settings.least_sites:
                self._events.tell("waiting", reason="agreed without", sites=sorted(wanted - here))
                return here
            if now - began > self._settings.wait_timeout:
                raise BelowQuorum(
                    f"{len(here)} sites have come in {now - began:.0f} s; {self._settings.least_sites} are needed.\n"
                    f"  Not there: {', '.join(sorted(wanted - here))}. Start the server again when they are."
                )
            if now - told > WAITING_SECONDS:
                told = now
                self._events.tell("waiting", reason="for sites to join", sites=sorted(wanted - here))
            time.sleep(LOOK_SECONDS)

    def _ask(self, question: Said, sites: Sequence[str]) -> Answers:
        said = {"question": question.said, "section": self._section}
        deadline = self._settings.site_deadline
        asked = {
            site: Message(
                Head("agree", self._book.run, digest_of(self._section), site, deadline=deadline), said, question.arrays
            )
            for site in sites
        }
        return consult(self._fleet, asked, self._settings.round_timeout, self._settings.max_message_bytes)


def _said(answer: Message) -> Said:
    told = answer.said.get("answer")
    return Said(told if isinstance(told, dict) else {}, dict(answer.arrays))
