"""A site: its own data, its clients' memories, and its part of every exchange with the server."""

import json
import secrets
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from headstart.data import Federation
from headstart.deploy.events import Events
from headstart.deploy.messages import Fault, Garbled, Head, Message, Reason, Tag
from headstart.deploy.setup import Setup, digest_of, noise_at_clients, settings_of
from headstart.deploy.state import LostMemory, Memories
from headstart.deploy.tasks import Secret, evaluated, worked
from headstart.deploy.trees import WrongArrays
from headstart.deploy.whole import write_secret
from headstart.errors import CannotWrite, HeadstartError
from headstart.experiment import Settings
from headstart.experiment.record import versions
from headstart.simulate.files import write_bytes, write_json

__all__ = ["Agreed", "Holdings", "LocalClients", "Reading", "Site"]


class LocalClients(Protocol):
    """The clients that a site holds data of, by their numbers in the whole federation."""

    numbers: list[int]

    def view(self, part: Any, client: int) -> Any:
        """One part of a client's samples, as an algorithm wants it."""
        ...


class Agreed(Protocol):
    """What all sites have agreed on about their data."""

    @property
    def digest(self) -> str: ...

    @property
    def sites(self) -> dict[str, list[int]]: ...

    def to_json(self) -> dict[str, Any]: ...

    def federation(self) -> Federation: ...


class Holdings(Protocol):
    """A site's data."""

    def answer(self, question: Any) -> Any:
        """One step of the agreement."""
        ...

    def clients(self, agreement: Any) -> LocalClients: ...


class Reading(NamedTuple):
    """How a site makes objects of what is told."""

    data: Callable[[Mapping[str, Any], str], Holdings]
    """From the section [data] and the site's name."""
    agreement: Callable[[Mapping[str, Any]], Agreed]
    question: Callable[[dict[str, Any], dict[str, np.ndarray]], Any]
    """From what is said and the arrays beside it."""
    settings: Callable[[Mapping[str, Any]], Settings] = settings_of
    prepare: Callable[[Settings], None] = lambda settings: None
    """What must be settled before JAX computes anything."""


class Refused(Exception):
    """What a site will not do."""

    def __init__(self, fault: Fault):
        self.fault = fault
        super().__init__(str(fault))


class Site:
    """Answers every message with another; whatever goes wrong, the answer says so.

    What exactly went wrong with the site's own data or disk may quote a row or a path. It is told in the site's own
    ``events``, and the server learns of what kind it is.
    """

    def __init__(self, name: str, folder: Path, reading: Reading, events: Events | None = None):
        self.name, self.folder, self._reading = name, folder, reading
        self.events = Events() if events is None else events
        self._holdings: dict[str, Holdings] = {}
        self._run: _RunAtSite | None = None

    def answer(self, content: bytes) -> bytes:
        """The answer to a message of the server."""
        try:
            question = Message.unpack(content)
        except Garbled as error:
            return Message(Head("fault", "", "", self.name), {"reason": "garbled", "detail": str(error)}).pack()
        try:
            return self._answer(question).pack()
        except (Refused, WrongArrays) as error:
            return question.fault(error.fault).pack()
        except LostMemory as error:
            return question.fault(Fault("memory", str(error))).pack()
        except CannotWrite as error:
            return self._trouble(question, "refused", "it cannot read or write its files", error)
        except HeadstartError as error:
            return self._trouble(question, "refused", "it cannot do this with the data that it has", error)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return self._trouble(question, "error", type(error).__name__, error)

    def _trouble(self, question: Message, reason: Reason, kind: str, error: Exception) -> bytes:
        self.events.tell("trouble", asked=question.head.kind, round=question.head.round, detail=str(error))
        return question.fault(Fault(reason, f"{kind}; its own events.jsonl says more")).pack()

    def _answer(self, question: Message) -> Message:
        head = question.head
        if head.site != self.name:
            raise Refused(Fault("refused", f"it is for {head.site}, and this is {self.name}"))
        if head.kind == "agree":
            asked = self._reading.question(question.said["question"], dict(question.arrays))
            told = self._data(question.said["section"]).answer(asked)
            return question.answer({"answer": told.said}, told.arrays)
        if head.kind == "begin":
            return self._begin(question)
        run = self._running(head)
        answers = {"work": run.work, "evaluate": run.evaluate, "model": run.keep_model}
        if head.kind not in answers:
            raise Refused(Fault("refused", f"nothing can be answered to a message of the kind {head.kind}"))
        return answers[head.kind](question)

    def _begin(self, question: Message) -> Message:
        """Take part in a run from now on."""
        told = {"digest": question.head.digest, **question.said}
        self._run = self._open(question.head.run, told)
        write_json(self._run_folder(question.head.run) / "begun.json", told)
        write_json(self.folder / "agreement.json", told["agreement"])
        return question.answer({"versions": versions(), "clients": self._run.local.numbers})

    def _running(self, head: Head) -> "_RunAtSite":
        """The run that a message is of; a worker that was started again finds it on the disk."""
        if self._run is None or self._run.name != head.run:
            try:
                told = json.loads((self._run_folder(head.run) / "begun.json").read_text())
            except (OSError, ValueError) as error:
                raise Refused(Fault("unknown run", "it has not been begun here")) from error
            self._run = self._open(head.run, told)
        if self._run.digest != head.digest:
            raise Refused(Fault("unknown run", "it was begun with another experiment or agreement"))
        return self._run

    def _open(self, run: str, told: Mapping[str, Any]) -> "_RunAtSite":
        settings, agreement = self._reading.settings(told["config"]), self._reading.agreement(told["agreement"])
        if digest_of(told["config"], agreement.digest) != told["digest"]:
            raise Refused(Fault("refused", "the experiment or the agreement is not the one of its digest"))
        self._reading.prepare(settings)
        local = self._data(told["config"].get("data", {})).clients(agreement)
        return _RunAtSite(run, told["digest"], self.folder, self._run_folder(run), settings, agreement, local)

    def _run_folder(self, run: str) -> Path:
        if not run.isalnum():
            raise Refused(Fault("refused", "its run has no proper name"))
        return self.folder / "state" / run

    def _data(self, section: Mapping[str, Any]) -> Holdings:
        """The site's data, read once for each way in which it is asked for."""
        key = digest_of(section)
        if key not in self._holdings:
            self._holdings = {key: self._reading.data(section, self.name)}
        return self._holdings[key]


class _RunAtSite:
    """A site's part in one run."""

    def __init__(
        self,
        name: str,
        digest: str,
        home: Path,
        folder: Path,
        settings: Settings,
        agreement: Agreed,
        local: LocalClients,
    ):
        self.name, self.digest, self.local = name, digest, local
        self._home, self._folder, self._settings = home, folder, settings
        self._federation = agreement.federation()
        self._problem = settings.problem(self._federation)
        self._wire = None if settings.wire is None else settings.wire.build()
        self._methods: dict[str, tuple[Setup, Memories]] = {}

    def work(self, question: Message) -> Message:
        """A phase of a round, for some of the site's clients."""
        setup, memories = self._method(question)
        start = self._in_step(question, memories)
        secret = None
        if noise_at_clients(setup.round.wire):
            secret = Secret(_own_key(self._home), question, start)
        members = self._members(question, self._federation.trained)
        states = {client: memories.read(client, start) for client in members}
        results, arrays = worked(setup, question, states, partial(self.local.view, "train"), secret)
        head = question.head
        memories.propose(Tag(head.round, head.attempt, head.phase), start, results)
        return question.answer(arrays=arrays)

    def evaluate(self, question: Message) -> Message:
        """The scores of some of the site's clients."""
        setup, memories = self._method(question)
        start = self._in_step(question, memories)
        fresh, trained = setup.start.client, self._federation.trained
        members = self._members(question, self._federation.total)
        states = {client: memories.read(client, start) if client < trained else fresh for client in members}
        return question.answer(arrays=evaluated(setup, question, states, self.local.view))

    def keep_model(self, question: Message) -> Message:
        """A method's trained model, as its file has it."""
        if question.head.method not in self._settings.methods or "model" not in question.arrays:
            raise Refused(Fault("refused", "it is no model of this run"))
        content = question.arrays["model"].astype(np.uint8).tobytes()
        write_bytes(self._home / "model" / f"{question.head.method}.safetensors", content)
        return question.answer()

    def _method(self, question: Message) -> tuple[Setup, Memories]:
        label = question.head.method
        if label not in self._methods:
            if label not in self._settings.methods:
                raise Refused(Fault("refused", f"the experiment has no method {label}"))
            algorithm = self._settings.methods[label].build()
            setup = Setup.of(algorithm, self._problem, self._federation, self._settings, self._wire)
            # A run trains one method after the other: what the others were compiled to is let go.
            self._methods = {label: (setup, Memories(self._folder / label, setup.start.client))}
        return self._methods[label]

    def _in_step(self, question: Message, memories: Memories) -> Tag | None:
        """Bring memories to where the server has counted them, and say from which answer to go on."""
        counted, start = (_tag(question.said.get(name)) for name in ("counted", "start"))
        if question.said.get("anew") is True:
            memories.forget()
        memories.confirm(counted, start, question.head.attempt)
        return start

    def _members(self, question: Message, below: int) -> list[int]:
        members = question.said.get("members")
        if not isinstance(members, list) or not members or not all(isinstance(member, int) for member in members):
            raise Refused(Fault("refused", "it names no clients"))
        for client in members:
            if client not in self.local.numbers or client >= below:
                raise Refused(Fault("refused", f"client {client} is not one of this site's"))
        return members


def _tag(told: Any) -> Tag | None:
    if told is None:
        return None
    try:
        round_, attempt, phase = told
        return Tag(int(round_), int(attempt), str(phase))
    except (TypeError, ValueError) as error:
        raise Refused(Fault("refused", "it names an answer that cannot be one")) from error


def _own_key(folder: Path) -> bytes:
    """A secret that never leaves the site, made when it is first needed."""
    path = folder / "noise.key"
    if not path.exists():
        write_secret(path, secrets.token_bytes(32))
    return path.read_bytes()
