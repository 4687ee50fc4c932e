"""A whole federation on one machine: server, gateway and sites as processes of their own, each with its own data."""

import random
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.deploy.folders import init
from headstart.deploy.processes import end
from headstart.deploy.server_watch import Outcome, ServerWatch
from headstart.deploy.site_watch import SiteWatch
from headstart.deploy.watching import EventTail, Seen
from headstart.errors import HeadstartError, UsageError

__all__ = ["Trial", "free_ports", "up"]

TICK_SECONDS = 0.1
HERE = "127.0.0.1"
FIRST_PORT, LAST_PORT = 20000, 32000


@dataclass(frozen=True)
class Trial:
    """What a trial has come to."""

    outcome: Outcome
    seen: Seen
    server: Path
    run: Path
    """The record: an ordinary run directory."""
    sites: Mapping[str, Path]


def up(
    folder: str | Path,
    experiment: str | Path | None = None,
    sites: int | None = None,
    *,
    settings: Iterable[str] = (),
    deploy: Mapping[str, Any] | None = None,
    watch: Callable[[Seen], None] = lambda seen: None,
) -> Trial:
    """Try a federation on this machine: deal the experiment's data out to sites, train across them, and stop them all.

    ``folder`` is where their folders are made; one that is there already is gone on with, and needs neither
    ``experiment`` nor ``sites``. ``settings`` change the experiment, ``deploy`` are settings for deploy.toml. ``watch``
    is told a few times a second how things stand.
    """
    root = Path(folder)
    if experiment is not None:
        if sites is None:
            raise UsageError("How many sites are there to be?", "Say sites=5, or --sites 5.")
        ports = free_ports(sites + 2)
        init(
            root, experiment, sites, host=HERE, port=ports[0], listen=HERE, superlink_port=ports[1],
            first_site_port=ports[2], settings=settings, split=True, deploy=deploy,
        )  # fmt: skip
    elif not (root / "server").is_dir():
        raise UsageError(f"{root} is no federation to go on with.", "Name an experiment: --experiment x.toml --sites N")
    places = {path.name: path for path in sorted((root / "sites").iterdir())}
    outcome, seen = _watched(root / "server", places, watch)
    return Trial(outcome, seen, root / "server", root / "server" / "run", places)


def _watched(server: Path, places: Mapping[str, Path], watch: Callable[[Seen], None]) -> tuple[Outcome, Seen]:
    events, seen, sites = EventTail(server), Seen(), dict[str, SiteWatch]()
    try:
        for name, path in places.items():
            sites[name] = SiteWatch(path)
        with ServerWatch(server) as serving:
            try:
                while (outcome := serving.step()) is None:
                    _tend(sites, serving)
                    _look(events, seen, watch)
                    time.sleep(TICK_SECONDS)
            finally:
                # Training first, so that it does not see its sites go; then all of them, while the server is there.
                serving.pause()
                end([pid for site in sites.values() for pid in site.pids])
    finally:
        for site in sites.values():
            site.stop()
    _look(events, seen, watch)
    return outcome, seen


def _tend(sites: dict[str, SiteWatch], serving: ServerWatch) -> None:
    for name, site in list(sites.items()):
        try:
            site.step()
        except HeadstartError as error:
            # One that is not let in any more; the others go on.
            serving.events.tell("lost", site=name, reason=str(error).partition("\n")[0])
            sites.pop(name).stop()


def _look(events: EventTail, seen: Seen, watch: Callable[[Seen], None]) -> None:
    for event in events.read():
        seen.take(event)
    watch(seen)


def free_ports(count: int) -> list[int]:
    """So many ports in a row that nobody uses now.

    Those that systems hand out by themselves are left out, and trials that begin at the same time look in other places.
    """
    firsts = range(FIRST_PORT, LAST_PORT - count, count)
    for first in random.SystemRandom().sample(firsts, len(firsts)):
        if all(_free(first + i) for i in range(count)):
            return list(range(first, first + count))
    raise HeadstartError("There are no free ports on this machine.")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HERE, port))
        except OSError:
            return False
    return True
