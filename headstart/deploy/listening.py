"""How the gateway treats connections: whoever does not say what he wants in time, or is refused, is cut off.

So that strangers who only hold connections open do not keep sites from theirs.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HurriedProtocol"]

HEADER_SECONDS = 15.0
"""How long the headers of a call may take."""
MOST_SILENT = 64
"""So many connections of one address may have said nothing yet."""


class HurriedProtocol(H11Protocol):
    """HTTP/1.1 with headers that have to come soon, and are short."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        silent = [other for other in self.connections if isinstance(other, HurriedProtocol) and other._due is not None]
        if sum(other._host == self._host for other in silent) >= MOST_SILENT:
            self.transport.abort()
        else:
            self._hurry()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._leave_in_peace()
        elif self._due is None:
            self._hurry()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_in_peace()
        super().connection_lost(exc)

    @property
    def _host(self) -> str:
        return "" if self.client is None else self.client[0]

    def _hurry(self) -> None:
        self._due = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _leave_in_peace(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
