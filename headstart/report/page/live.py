"""A report that follows runs while they train: the same page, on this machine alone, from the record alone."""

import hashlib
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError, UsageError
from headstart.report.page.document import Document
from headstart.report.page.html import as_html
from headstart.report.page.making import make_report

__all__ = ["Watch"]

HOST = "127.0.0.1"
GENTLE = 10
"""How much the page gives way to training on a busy machine."""
FOLLOW = """
"use strict";
(() => {
  let seen = null;
  const look = async () => {
    try {
      const version = await (await fetch("version", { cache: "no-store" })).text();
      if (seen !== null && version !== seen) {
        const at = scrollY;
        await headstart.renew(await (await fetch("page", { cache: "no-store" })).text());
        scrollTo(0, at);
      }
      seen = version;
    } catch {
      // The server has ended: what is shown stays.
    }
    setTimeout(look, 3000);
  };
  look();
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
        self._making = threading.Lock()
        self._made: tuple[str, str] | None = None
        self._server: Any = None

    @property
    def address(self) -> str:
        """Of the page, with the token without which there is none."""
        return f"http://{HOST}:{self._socket.getsockname()[1]}/{self.token}/page"

    def version(self) -> str:
        """Changes whenever a table, an event or the end of a method is added to the record."""
        seen = hashlib.sha256()
        for run in self.runs:
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
                self._made = (version, as_html(self._document(), live=FOLLOW))
            return self._made[1]

    def serve(self) -> None:
        """Answer until `close` is called, or Ctrl-C is pressed."""
        if hasattr(os, "nice"):
            os.nice(GENTLE)
        self.answer()

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

    def _document(self) -> Document:
        try:
            return make_report(self.runs, with_data=False).document
        except (HeadstartError, OSError) as error:
            # Nothing is there yet, or files are being gathered at this moment: the next look finds them.
            problem = error.problem if isinstance(error, UsageError) else str(error)
            return Document("Waiting", ", ".join(map(str, self.runs)), ["There is nothing to show yet."], [], [problem])
