"""A report that follows runs while they train: the same page, on this machine alone, from the record alone."""

import hashlib
import multiprocessing
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headstart.errors import UsageError
from headstart.report.page.html import as_html
from headstart.report.page.ongoing import ongoing_document, record_in

__all__ = ["Watch"]

HOST = "127.0.0.1"
GENTLE = 10
"""How much the page gives way to training on a busy machine: more, and it would never be made there."""
SHARE = 0.03
"""Of a core's time, for making pages: a page that took long to make stays the newest one for longer."""
FAREWELL = 12.0
"""Seconds that the page of a run which has ended is still there for a browser to have its last state."""
AWAY = 7.0
"""Seconds without a question after which no browser looks on: each asks every three."""
FOLLOW = """
"use strict";
(() => {
  let seen = "SEEN";
  let missed = 0;
  const say = (words) => {
    const status = document.getElementById("following");
    if (status.textContent !== words) status.textContent = words;
  };
  const look = async () => {
    try {
      const version = await (await fetch("version", { cache: "no-store" })).text();
      missed = 0;
      say("following");
      if (version !== seen) {
        const at = scrollY;
        await headstart.renew(await (await fetch("page", { cache: "no-store" })).text());
        scrollTo(0, at);
        seen = version;
      }
    } catch {
      missed += 1; // the server has ended: what is shown stays
      if (missed > 1) say("no longer followed");
    }
    setTimeout(look, 3000);
  };
  setTimeout(look, 3000);
})();
"""


class Watch:
    """Serves the report on some runs, which may be going on, to whoever knows its address on this machine.

    >>> watch = Watch(["runs/mine"])
    >>> watch.address.startswith("http://127.0.0.1:")
    True
    >>> watch.close()
    """

    def __init__(self, runs: Sequence[str | Path], port: int = 0):
        self.runs = [Path(run) for run in runs]
        self.token = secrets.token_urlsafe(16)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise UsageError(f"Port {port} cannot be had: {error.strerror}.", "Choose another with --port.") from error
        self._begin()

    def _begin(self) -> None:
        self._making = threading.Lock()
        self._made: tuple[str, str] | None = None
        self._resting_until = 0.0
        self._asked = 0.0
        self._server: Any = None

    @property
    def address(self) -> str:
        """Of the page, with the token without which there is none."""
        return f"http://{HOST}:{self._socket.getsockname()[1]}/{self.token}/page"

    def version(self) -> str:
        """Changes whenever a table, an event or the end of a method is added to the record.

        For some time after a page was made it is that page's, so that making pages does not take all of the time.
        """
        self._asked = time.monotonic()
        if self._made is not None and self._asked < self._resting_until:
            return self._made[0]
        return self._recorded()

    def _recorded(self) -> str:
        seen = hashlib.sha256()
        for run in map(record_in, self.runs):
            found = [*run.glob("run.json"), *run.glob("*/*.parquet"), *run.glob("*/*/*.parquet"), *run.glob("*/*.json")]
            for path in sorted([*found, run / "events.jsonl", run.parent / "events.jsonl"]):
                try:
                    about = path.stat()
                except OSError:
                    continue  # gathered into another file meanwhile, or not there
                seen.update(f"{path} {about.st_mtime_ns} {about.st_size}\n".encode())
        return seen.hexdigest()

    def page(self) -> str:
        """The report as the record is now; made once for each version of it."""
        with self._making:
            version = self.version()
            if self._made is None or self._made[0] != version:
                began = time.thread_time()
                self._made = (version, as_html(ongoing_document(self.runs), live=FOLLOW.replace("SEEN", version)))
                took = time.thread_time() - began
                self._resting_until = time.monotonic() + took * (1 / SHARE - 1)
            return self._made[1]

    def serve(self) -> None:
        """Answer until `close` is called, or Ctrl-C is pressed, at a low priority."""
        _give_way()
        self.answer()

    @contextmanager
    def aside(self) -> Iterator[str]:
        """Serve from a process of its own while the block runs, at a low priority; the block is given the address.

        When it ends, a browser that looks on is given its last state first.
        """
        # A new interpreter: a fork of one in which JAX has threads may hang.
        context = multiprocessing.get_context("spawn")
        # A pipe that is closed, for an event would wait for a process that was killed meanwhile.
        listening, telling = context.Pipe(duplex=False)
        process = context.Process(target=_serve_aside, args=(self, listening), daemon=True)
        process.start()
        listening.close()
        try:
            yield self.address
        finally:
            telling.close()
            process.join(FAREWELL + 3)
            if process.is_alive():
                process.terminate()
            self._socket.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"runs": self.runs, "token": self.token, "_socket": self._socket}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def answer(self) -> None:
        """Answer, at the priority that the process has."""
        try:
            import uvicorn
        except ImportError as error:
            raise UsageError("Uvicorn is not installed.", "Install it: pip install 'headstart[report]'.") from error
        config = uvicorn.Config(self.app(), log_level="warning", lifespan="off")
        self._server = uvicorn.Server(config)
        self._server.run(sockets=[self._socket])

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.should_exit = True
        else:
            self._socket.close()

    def app(self) -> Any:
        """The application: two addresses behind the token, and nothing else."""
        try:
            from starlette.applications import Starlette
            from starlette.middleware import Middleware
            from starlette.middleware.trustedhost import TrustedHostMiddleware
            from starlette.responses import HTMLResponse, PlainTextResponse
            from starlette.routing import Route
        except ImportError as error:
            raise UsageError("Starlette is not installed.", "Install it: pip install 'headstart[report]'.") from error

        # Plain functions run in threads, so that making a page does not keep others waiting.
        def page(_: Any) -> Any:
            return HTMLResponse(self.page(), headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})

        def version(_: Any) -> Any:
            return PlainTextResponse(self.version(), headers={"Cache-Control": "no-store"})

        routes = [Route(f"/{self.token}/page", page), Route(f"/{self.token}/version", version)]
        # A page of another site that has its name point here is refused.
        return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST])])

    def end_when_closed(self, listening: Any) -> None:
        """Answer no more once the other end of a pipe is closed, and whoever looks on has the last state."""
        listening.poll(None)
        self._resting_until = 0.0
        last, until = self._recorded(), time.monotonic() + FAREWELL
        while self._made is not None and self._made[0] != last and time.monotonic() < min(until, self._asked + AWAY):
            time.sleep(0.1)
        time.sleep(0.5)  # for an answer that is under way
        self.close()


def _serve_aside(watch: Watch, listening: Any) -> None:
    """What the process of a page does: it leaves with the one that started it, however that ends."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C in the terminal is for the run
    _give_way()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    threading.Thread(target=watch.end_when_closed, args=(listening,), daemon=True).start()
    watch.answer()


def _leave_with(parent: Any) -> None:
    parent.join()
    os._exit(0)


def _give_way() -> None:
    """Let training go first."""
    if hasattr(os, "nice"):
        os.nice(GENTLE)
