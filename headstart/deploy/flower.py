"""Flower's side of the server: its app as files, and its nodes as a fleet."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from flwr.app import Message as Carrier
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import pull_objects

from headstart.deploy.carrying import unwrap, wrap
from headstart.deploy.messages import Fault, Garbled
from headstart.deploy.whole import write_whole

__all__ = ["FlowerFleet", "write_app"]

APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "headstart-federation"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "headstart"

[tool.flwr.app.components]
serverapp = "headstart.deploy.server_app:app"
clientapp = "headstart.deploy.client_app:app"

[tool.flwr.app.config]
folder = ""
"""


def write_app(folder: Path) -> Path:
    """Write Flower's app: it names code that server and sites have installed, and has none of its own."""
    write_whole(folder / "pyproject.toml", APP.encode())
    return folder


class FlowerFleet:
    """The nodes of a SuperLink that the roster knows, by their keys.

    ``roster`` gives names by public key, anew at every look, so that sites come and go while rounds run.
    """

    def __init__(self, grid: Grid, roster: Callable[[], Mapping[bytes, str]], poll_seconds: float = 0.2):
        self._grid, self._roster, self._poll_seconds = grid, roster, poll_seconds

    def present(self) -> set[str]:
        return set(self._nodes())

    def ask(self, questions: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Fault]:
        end = time.monotonic() + timeout
        nodes = self._nodes()
        gone = {site: Fault("absent", "not connected") for site in questions if site not in nodes}
        there = [site for site in questions if site in nodes]
        # A node that comes too late finds the message expired and does no stale work.
        carriers = [Carrier(wrap(questions[site]), nodes[site], "train", ttl=timeout) for site in there]
        numbers = list(self._grid.push_messages(carriers)) if carriers else []
        waiting = {number: site for number, site in zip(numbers, there, strict=True) if number}
        unsent = {site: Fault("absent", "the message was not taken") for site in there if site not in waiting.values()}
        answers: dict[str, bytes | Fault] = {**gone, **unsent}
        while waiting and time.monotonic() < end:
            time.sleep(self._poll_seconds)
            _bound_pulls(end - time.monotonic())
            for reply in self._grid.pull_messages(list(waiting)):
                site = waiting.pop(reply.metadata.reply_to_message_id, None)
                if site is not None:
                    answers[site] = _content(reply, nodes[site])
        return answers

    def _nodes(self) -> dict[str, int]:
        """Those that are connected, by name."""
        roster = self._roster()
        return {roster[node.public_key]: node.node_id for node in self._grid.get_nodes() if node.public_key in roster}


def _bound_pulls(seconds: float) -> None:
    """Let the parts of an answer, which follow it, take so long and no longer, and look for them soon.

    A grid has no setting for it: it looks again after 1, 2, 4 seconds, and for two hours at a site that has fallen
    silent in the middle of an answer.
    """
    wanted = {"max_time": max(1.0, seconds), "initial_backoff": FIRST_PULL_SECONDS, "backoff_cap": LONGEST_PULL_SECONDS}
    settings = pull_objects.__kwdefaults__ or {}
    settings.update({name: value for name, value in wanted.items() if name in settings})


FIRST_PULL_SECONDS, LONGEST_PULL_SECONDS = 0.05, 1.0
"""Between looks for a part of an answer."""


def _content(reply: Carrier, node: int) -> bytes | Fault:
    """What a reply carries. Flower's own errors have no sender."""
    if reply.has_error():
        return Fault("silent", f"Flower says: {reply.error.reason}")
    if reply.metadata.src_node_id != node:
        return Fault("stale", "it comes from another node than was asked")
    try:
        return unwrap(reply)
    except Garbled as error:
        return Fault("garbled", str(error))
