"""A real HTTP server on the loopback interface that can be told to misbehave."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves ``files`` by path and records what it was asked for."""

    def __init__(self, ranges=True):
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        """For each request to come, after how many bytes its connection breaks."""
        self.ranges = ranges
        self.headers: dict[str, str] = {}
        """Sent with every file."""
        self.asked: list[tuple[str, str | None]] = []
        """Path and Range header of every request."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/"

    def __enter__(self):
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, request):
        path, span = request.path.lstrip("/"), request.headers.get("Range")
        self.asked.append((path, span))
        if path not in self.files:
            request.send_error(404)
            return
        data = self.files[path]
        start = int(re.fullmatch(r"bytes=(\d+)-", span)[1]) if span and self.ranges else 0
        if start >= len(data) > 0:
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(data)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        for name, value in {"Content-Length": str(len(data) - start), **self.headers}.items():
            request.send_header(name, value)
        request.end_headers()
        cut = self.cuts.pop(0) if self.cuts else None
        request.wfile.write(data[start:] if cut is None else data[start : start + cut])
