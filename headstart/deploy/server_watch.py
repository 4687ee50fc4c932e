"""A server kept running: SuperLink, gateway, and training, which goes on from its checkpoint whenever it died."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from headstart.deploy.control import NotThere, SuperLink
from headstart.deploy.credentials import renew_server_certificate
from headstart.deploy.events import Events
from headstart.deploy.flower import write_app
from headstart.deploy.places import Door, ServerPlace
from headstart.deploy.processes import (
    FIRST_PAUSE,
    HOPELESS,
    LONGEST_PAUSE,
    Child,
    Keeper,
    alive,
    end,
    environment,
    tail,
)
from headstart.deploy.roster import LiveRoster
from headstart.deploy.sockets import check_free
from headstart.deploy.sole import sole
from headstart.deploy.watching import EventTail
from headstart.errors import HeadstartError, UsageError

__all__ = ["Outcome", "ServerWatch", "run_server"]

TICK_SECONDS, LOOK_SECONDS, ASK_SECONDS = 0.1, 0.5, 5.0
LAST_SECONDS = 1.0
"""How long a training process may take to end once it has said that it is done: all is written by then."""
MAX_BYTES = 2**30
"""The largest call that the gateway lets through; larger messages come in pieces."""


@dataclass(frozen=True)
class Outcome:
    """How training ended."""

    finished: bool
    reason: str = ""


class ServerWatch:
    """Watches over a server; `step` is to be called a few times a second, from one thread."""

    def __init__(self, folder: Path):
        self.place = ServerPlace(folder.resolve())
        self.door = self.place.door()
        self._roster = LiveRoster(self.place.folder, self._mangled)  # complains before anything is started
        self._lock = sole(self.place.folder, "server")
        try:
            renew_server_certificate(self.place.tls, self.door.names)
            for host, port in (("127.0.0.1", self.door.superlink_port), (self.door.host, self.door.port)):
                check_free(host, port, f"[gateway] of {self.place.settings}")
        except UsageError:
            self._lock.release()
            raise
        self.events = Events(self.place.folder)
        self.keeper = Keeper([_superlink(self.place, self.door), _gateway(self.place, self.door)], self.events)
        self._link: SuperLink | None = None
        self._run: _Run | None = None
        self._known: tuple[int, int] | None = None
        self._failures = 0
        self._due = self._next = 0.0

    def __enter__(self) -> "ServerWatch":
        write_app(self.place.app)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(self) -> Outcome | None:
        """Do what is due; tells how training ended, once it has."""
        self.keeper.tend()
        if (child := self.keeper.hopeless()) is not None:
            raise HeadstartError(
                f"The {child.name} ends again and again:\n{tail(child.log)}\n  Its log is {child.log}."
            )
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + LOOK_SECONDS
        try:
            self._reconcile()
            return self._see_to_run(now)
        except NotThere:
            return None

    def pause(self) -> None:
        """End the training process, which goes on from its checkpoint when it is started again."""
        run, self._run = self._run, None
        _end_training(self.place.pid)
        if run is not None and self._link is not None:
            with suppress(NotThere):
                self._link.stop(run.number)

    def stop(self) -> None:
        """End all processes; training first, so that it does not see the others go."""
        self.pause()
        if self._link is not None:
            self._link.close()  # the SuperLink does not end while it has a connection
        self.keeper.stop()
        self._lock.release()

    def _reconcile(self) -> None:
        """Make the SuperLink know the nodes of the roster and no others."""
        wanted = self._roster.look().keys
        known = (self._roster.version, self.keeper["superlink"].starts)
        if known == self._known:
            return
        if self._link is None:
            self._link = SuperLink(self.door.superlink_port, self.place.authority)
        nodes = self._link.nodes()
        for key in nodes.keys() - wanted.keys():
            self._link.unregister(nodes[key])
        for key in wanted.keys() - nodes.keys():
            self._link.register(key, wanted[key])
        self._known = known

    def _mangled(self, why: str) -> None:
        self.events.tell("mangled", reason=why)

    def _see_to_run(self, now: float) -> Outcome | None:
        assert self._link is not None
        starts = self.keeper["superlink"].starts
        if self._run is None:
            if now >= self._due:
                _end_training(self.place.pid)
                self._link.stop_all()
                events = EventTail(self.place.folder, at_end=True)
                number = self._link.start(self.place.app, {"folder": str(self.place.folder)})
                self._run = _Run(number, events, starts)
            return None
        how = self._run.ended(self._link, starts, self.place.pid, now)
        if how is None:
            return None
        run, self._run = self._run, None
        if run.outcome is not None:
            return run.outcome
        with suppress(NotThere):
            self._link.stop(run.number)
        self._failures = 1 if run.progress else self._failures + 1
        if self._failures > HOPELESS:
            return Outcome(False, f"training dies again and again: {how}\n{tail(self.keeper['superlink'].log)}")
        pause = min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE)
        self._due = now + pause
        self.events.tell("run_ended", reason=how, seconds=pause)
        return None


@dataclass
class _Run:
    """One training process, from its start to its end."""

    number: int
    events: EventTail
    superlink: int
    """The how-manieth SuperLink it was started by."""
    outcome: Outcome | None = None
    progress: bool = False
    _asked: float = field(default_factory=time.monotonic)
    _told: float | None = None

    def ended(self, link: SuperLink, superlink: int, pid: Path, now: float) -> str | None:
        """How it ended, if it has."""
        number = _pid(pid)
        dead = number is not None and not alive(number)
        self._learn()
        if self.outcome is not None:
            self._told = now if self._told is None else self._told
            return "it said so" if dead or now - self._told > LAST_SECONDS else None
        if dead:
            return "its process has died"
        if superlink != self.superlink:
            return "the SuperLink was started again"
        if now - self._asked < ASK_SECONDS:
            return None
        self._asked = now
        return link.finished(self.number)

    def _learn(self) -> None:
        for event in self.events.read():
            kind = event.get("event")
            self.progress = self.progress or kind == "closed"
            if kind == "finished":
                self.outcome = Outcome(True)
            elif kind == "stopped" and event.get("final"):
                self.outcome = Outcome(False, str(event.get("reason", "")))


def run_server(folder: str | Path, watch: Callable[[], None] = lambda: None) -> Outcome:
    """Serve a federation from its server's folder until training has ended; ``watch`` is called again and again.

    What is started here ends with this process, whatever way that ends; called again, training goes on where it was.
    """
    with ServerWatch(Path(folder)) as watching:
        while (outcome := watching.step()) is None:
            watch()
            time.sleep(TICK_SECONDS)
        watch()
    return outcome


def _superlink(place: ServerPlace, door: Door) -> Child:
    command = [
        "flower-superlink", "--host", "127.0.0.1", "--port", str(door.superlink_port),
        "--ssl-ca-certfile", str(place.authority), "--ssl-certfile", str(place.tls / "server.crt"),
        "--ssl-keyfile", str(place.tls / "server.key"), "--enable-supernode-auth",
        "--disable-runtime-dependency-installation", "--database", str(place.folder / "superlink.db"),
    ]  # fmt: skip
    return Child("superlink", command, place.logs / "superlink.log", environment(place.folder / "flower"))


def _gateway(place: ServerPlace, door: Door) -> Child:
    command = [
        sys.executable, "-m", "headstart.deploy.gateway", str(place.folder), door.host, str(door.port),
        str(door.superlink_port), str(MAX_BYTES),
    ]  # fmt: skip
    return Child("gateway", command, place.logs / "gateway.log", environment(place.folder / "flower"))


def _pid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _end_training(path: Path) -> None:
    """End a training process that was left behind, so that there is never a second one."""
    number = _pid(path)
    path.unlink(missing_ok=True)
    if number is None:
        return
    with suppress(psutil.Error):
        if any("flwr-serverapp" in word for word in psutil.Process(number).cmdline()):
            end([number])
