"""A site's resident worker: keeps JAX, the data and the compiled work warm, and answers on a socket of the site's own.

python -m headstart.deploy.worker SITE_FOLDER
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headstart.deploy.agreement import Agreement, Said, SiteData
from headstart.deploy.carrying import receive_bytes, send_bytes
from headstart.deploy.events import Events
from headstart.deploy.messages import Fault, Garbled, Message
from headstart.deploy.places import SitePlace
from headstart.deploy.site import Reading, Site
from headstart.deploy.sockets import socket_name
from headstart.deploy.sole import sole
from headstart.errors import HeadstartError
from headstart.experiment import Settings
from headstart.experiment.startup import start_jax

__all__ = ["Worker", "main", "site_of"]

HUNG = 17
"""The exit code of a worker that has given itself up."""


def site_of(place: SitePlace) -> Site:
    """The site of a folder, with the data that its ``site.toml`` names."""

    def data(section: Mapping[str, Any], name: str) -> SiteData:
        own = {key: _resolved(place.folder, key, value) for key, value in place.data.items()}
        return SiteData.read({**section, **own}, name)

    def prepare(settings: Settings) -> None:
        start_jax(replace(settings.train, backend="vmap"))

    reading = Reading(data, Agreement.from_json, Said, prepare=prepare)
    return Site(place.name, place.folder, reading, Events(place.folder))


def _resolved(folder: Path, key: str, value: Any) -> Any:
    """A place as the site's folder sees it."""
    return str((folder / value).resolve()) if key in ("path", "folder") and isinstance(value, str) else value


class Worker:
    """Answers one message at a time; others wait for it as long as their deadline lets them."""

    def __init__(self, path: Path, answer: Callable[[bytes], bytes]):
        self._path, self._answer = path, answer
        self._turn = threading.Lock()
        self._give_up_at: float | None = None
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with socket_name(path) as name:
                self._listening.bind(name)
        finally:
            os.umask(before)
        self._listening.listen()

    def serve(self) -> None:
        """Until the process ends."""
        threading.Thread(target=self._watch, daemon=True).start()
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection:
            try:
                content = receive_bytes(connection)
                send_bytes(connection, self._answered(content))
            except (OSError, Garbled) as error:
                print(f"A conversation broke off: {error}", file=sys.stderr, flush=True)

    def _answered(self, content: bytes) -> bytes:
        try:
            question = Message.unpack(content, with_arrays=False)
        except Garbled:
            return self._answer(content)
        deadline = question.head.deadline
        if not self._turn.acquire(timeout=max(0.0, deadline)):
            return question.fault(Fault("slow", "still busy with an earlier message")).pack()
        try:
            self._give_up_at = time.monotonic() + HUNG_SHARE * deadline + HUNG_SECONDS
            return self._answer(content)
        finally:
            self._give_up_at = None
            self._turn.release()

    def _watch(self) -> None:
        """Work that never ends would block all that comes after it: whoever watches over the site starts it again."""
        while True:
            time.sleep(1.0)
            until = self._give_up_at
            if until is not None and time.monotonic() > until:
                print("The work in hand does not end; the worker gives itself up.", file=sys.stderr, flush=True)
                os._exit(HUNG)


HUNG_SHARE, HUNG_SECONDS = 3.0, 60.0
"""After so many deadlines, and so many seconds, work counts as hung."""


def main(folder: str) -> None:
    """Serve the site of a folder until the process ends."""
    place = SitePlace.read(Path(folder).resolve())
    with sole(place.folder, "worker"):
        worker = Worker(place.socket, site_of(place).answer)
        print("ready", flush=True)
        worker.serve()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except HeadstartError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
