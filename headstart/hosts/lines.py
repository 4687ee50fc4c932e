"""Lines between hosts: whole messages over TCP, and the news that whoever is at the other end has gone."""

import queue
import socket
import struct
import threading
from collections.abc import Callable

__all__ = ["DONE", "FAILED", "TOLD", "Line", "kept_alive"]

TOLD, FAILED, DONE = b"t", b"f", b"d"
"""What a message is: something told, why the sender ends, or that it has nothing more to say."""
HEAD = struct.Struct("!cQ")
IDLE, PROBES, BETWEEN = 10, 4, 5
"""Seconds after which a silent machine is asked whether it is there, how often, and how many seconds apart."""


def kept_alive(connection: socket.socket) -> socket.socket:
    """A connection that notices within half a minute that the other machine is off or out of reach."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPCNT", PROBES), ("TCP_KEEPINTVL", BETWEEN)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


class Line:
    """One connection. A thread reads it, so that the end of the other side is heard whatever this one is doing.

    ``ended`` is called with what the other side said it fails of, or with nothing where it has gone without a word.
    """

    def __init__(self, connection: socket.socket, ended: Callable[["Line", str], None]):
        self._connection, self._ended = kept_alive(connection), ended
        self._heard: queue.Queue[bytes] = queue.Queue()
        self.done = threading.Event()
        """Whether the other side has said that it has nothing more to say."""

    def listen(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._listen, daemon=True, name="headstart-line").start()

    def tell(self, message: bytes, kind: bytes = TOLD) -> None:
        """Send a message; where there is nobody any more, the listening thread is about to say so."""
        try:
            self._connection.sendall(HEAD.pack(kind, len(message)) + message)
        except OSError:
            return

    def hear(self) -> bytes:
        """The next message, however long it takes: the listening thread ends the process if there will be none."""
        return self._heard.get()

    def _listen(self) -> None:
        try:
            while True:
                kind, size = HEAD.unpack(self._read(HEAD.size))
                message = self._read(size)
                if kind == FAILED:
                    self._ended(self, message.decode(errors="replace"))
                    return
                if kind == DONE:
                    self.done.set()
                else:
                    self._heard.put(message)
        except (OSError, EOFError):
            if not self.done.is_set():
                self._ended(self, "")

    def _read(self, size: int) -> bytes:
        parts, missing = [], size
        while missing:
            part = self._connection.recv(min(missing, 2**20))
            if not part:
                raise EOFError
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)
