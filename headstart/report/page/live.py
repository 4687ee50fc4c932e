"""A report that follows runs while they train: the same page, on this machine alone, from the record alone."""

import hashlib
import os
import secrets
import socket
import subprocess
import sys
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
FIRST = 0.2
"""Seconds that the first page counts for: most of what it takes is taken once, and says nothing of the next."""
FAREWELL = 12.0
"""Seconds that the page of a run which has ended is still there for a browser to have its last state."""
ASIDE = f"""
import os, sys
os.nice({GENTLE})  # before anything is imported
from headstart.report.page.live import serve_aside
serve_aside(sys.argv[1:])
"""
"""What the process of a page begins with."""
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

    def __init__(
        self,
        runs: Sequence[str | Path],
        port: int = 0,
        *,
        listening: socket.socket | None = None,
        token: str | None = None,
    ):
        self.runs = [Path(run) for run in runs]
        self._socket = listening or _listen(port)
        self.token = token or secrets.token_urlsafe(16)
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
                first, began = self._made is None, time.thread_time()
                self._made = (version, as_html(ongoing_document(self.runs), live=FOLLOW.replace("SEEN", version)))
                took = FIRST if first else time.thread_time() - began
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
        # A new interpreter, for a fork of one in which JAX has threads may hang; and none of multiprocessing's, which
        # runs a user's script once more and imports the page before it gives way. It stays in the terminal's session,
        # for Linux weighs priorities within one only, but in a group of its own: Ctrl-C is for the run.
        ends, told = os.pipe()  # closed also when this process is killed
        names = [str(self._socket.fileno()), str(ends), self.token, *map(str, self.runs)]
        process = subprocess.Popen(
            [sys.executable, "-c", ASIDE, *names], pass_fds=(self._socket.fileno(), ends), process_group=0
        )
        os.close(ends)
        try:
            yield self.address
        finally:
            os.close(told)
            try:
                process.wait(FAREWELL + 3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._socket.close()

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

    def end_when_closed(self, ends: int) -> None:
        """Answer no more once the other end of a pipe is closed, and whoever looks on has the last state."""
        os.read(ends, 1)
        self._resting_until = 0.0
        last, until = self._recorded(), time.monotonic() + FAREWELL
        while self._made is not None and self._made[0] != last and time.monotonic() < min(until, self._asked + AWAY):
            time.sleep(0.1)
        time.sleep(0.5)  # for an answer that is under way
        self.close()


def serve_aside(given: Sequence[str]) -> None:
    """What the process of `Watch.aside` does: it answers on a socket that is open already, until a pipe is closed."""
    inherited, ends, token, *runs = given
    watch = Watch(runs, listening=socket.socket(fileno=int(inherited)), token=token)
    threading.Thread(target=watch.end_when_closed, args=(int(ends),), daemon=True).start()
    watch.answer()


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise UsageError(f"Port {port} cannot be had: {error.strerror}.", "Choose another with --port.") from error
    return listening


def _give_way() -> None:
    """Let training go first."""
    if hasattr(os, "nice"):
        os.nice(GENTLE)
