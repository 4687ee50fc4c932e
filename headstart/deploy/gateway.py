"""The gateway: the only door of a server. It lets the fleet's calls through, of sites on the roster, and nothing else.

Flower's SuperLink serves sites, operators and running apps on one port, and its control calls need no login: whoever
reaches it can register a key or start a run. So it listens on the loopback interface, and this stands in front of it
with TLS. A call gets through if

- its path is one that a site needs,
- it is signed with a key of the roster, a short while ago, and was not seen before,
- what it pushes are answers of the node that has that key.

The roster is read again whenever it changes. What is refused is written to the event log, with who and why.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import PullObjectResponse
from google.protobuf.message import DecodeError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headstart.deploy.admission import Doorkeeper, Refused
from headstart.deploy.events import Events
from headstart.deploy.listening import HurriedProtocol

__all__ = ["FLEET_CALLS", "HELLO", "Upstream", "gateway"]

PREFIX = "/v1/fleet/"
FLEET_CALLS = frozenset(
    PREFIX + name
    for name in (
        "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages", "get-run",
        "get-fab", "push-object", "pull-object", "confirm-message-received",
    )
)  # fmt: skip
"""What a site needs. Registering nodes is left out: that is what the roster is for."""
PULL, PUSH, PULL_PART = PREFIX + "pull-messages", PREFIX + "push-messages", PREFIX + "pull-object"
CONNECTING = (PREFIX + "activate-node", PREFIX + "register-node")
HELLO = "/v1/headstart/hello"
"""Answered by the gateway itself: which name of the roster the caller's key has."""
PASSED_HEADERS = ("content-type", "accept")
FLOWER_HEADERS = "flwr-"
BODY_SECONDS = 300.0
"""How long a call may take to come in."""
HOLD_SECONDS = 10.0
"""How long a call for messages, or for a part of one, is held; nodes wait for 30 s."""
FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.1, 0.4
"""How often the SuperLink is asked meanwhile."""
QUIET_SECONDS = 1.0
"""The same refusal of the same caller is logged once in so long."""


@dataclass(frozen=True)
class Upstream:
    """The SuperLink behind the gateway."""

    port: int
    authority: Path
    """The certificate that vouches for it."""

    def client(self) -> httpx.AsyncClient:
        """A pool of connections to it."""
        context = ssl.create_default_context(cafile=str(self.authority))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        timeout = httpx.Timeout(120.0, connect=5.0)
        return httpx.AsyncClient(
            base_url=f"https://127.0.0.1:{self.port}", verify=context, limits=limits, timeout=timeout, trust_env=False
        )


def gateway(doorkeeper: Doorkeeper, upstream: Upstream, events: Events, max_bytes: int) -> Starlette:
    """The gateway as an application for any ASGI server."""
    refusals = _Refusals(events)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
        async with upstream.client() as client:
            yield {"client": client}

    async def answer(request: Request) -> Response:
        path = str(request.scope["path"])
        try:
            if request.method != "POST" or (path not in FLEET_CALLS and path != HELLO):
                raise Refused("no call of the fleet's", status=403)
            if len(request.headers.keys()) > len(set(request.headers.keys())):
                raise Refused("a header that comes twice", status=400)
            site = doorkeeper.admit(request.headers)
            if path == HELLO:
                return JSONResponse({"site": site})
            body = await _body(request, max_bytes, site)
            if path == PUSH:
                _check_pushed(body, site)
        except Refused as refused:
            refusals.note(refused, path, "" if request.client is None else request.client.host)
            # A node that is told 401 ends itself. While it still connects, 401 or 403 would leave it hanging.
            status = 412 if path in CONNECTING else refused.status
            return JSONResponse({"detail": refused.reason}, status_code=status, headers={"connection": "close"})
        except ClientDisconnect:
            return Response(status_code=400)
        if path in ANSWERED:
            return await _forward_patiently(request.state.client, path, request, body, ANSWERED[path])
        return await _forward(request.state.client, path, request, body)

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return Starlette(routes=[Route("/{path:path}", answer, methods=methods)], lifespan=lifespan)


async def _body(request: Request, most: int, site: str) -> bytes:
    """A call's body, given up as soon as it is too long."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise Refused(f"more than {most:,} bytes", site, status=413)
                parts.append(part)
    except TimeoutError as error:
        raise Refused(f"a call that took more than {BODY_SECONDS:g} seconds", site, status=408) from error
    return b"".join(parts)


def _check_pushed(body: bytes, site: str) -> None:
    """Refuse to let a node speak for another, or to others."""
    try:
        pushed = PushMessagesRequest.FromString(body)
    except DecodeError as error:
        raise Refused("not a message of Flower's", site, status=400) from error
    for message in pushed.messages_list:
        if message.metadata.src_node_id != pushed.node.node_id:
            raise Refused("an answer in another node's name", site)
        if not message.metadata.reply_to_message_id:
            raise Refused("a message that answers none", site)


async def _forward(client: httpx.AsyncClient, path: str, request: Request, body: bytes) -> Response:
    kept = {
        name: value
        for name, value in request.headers.items()
        if name in PASSED_HEADERS or name.startswith(FLOWER_HEADERS)
    }
    try:
        answer = await client.post(path, content=body, headers=kept)
    except httpx.TransportError:
        # The server is being started again; sites try again by themselves.
        return JSONResponse({"detail": "The server is not there at the moment."}, status_code=503)
    passed = {
        name: value
        for name, value in answer.headers.items()
        if name == "content-type" or name.startswith(FLOWER_HEADERS)
    }
    return Response(answer.content, answer.status_code, passed)


async def _forward_patiently(
    client: httpx.AsyncClient, path: str, request: Request, body: bytes, answered: Callable[[bytes], bool]
) -> Response:
    """Hold a call until there is what it asks for, for a while.

    A node that is told that there is no message sleeps 3 s, and one second if a part of it is not there yet.
    """
    until = time.monotonic() + HOLD_SECONDS
    pause = FIRST_LOOK_SECONDS
    while True:
        answer = await _forward(client, path, request, body)
        if answer.status_code != 200 or answered(bytes(answer.body)) or time.monotonic() + pause > until:
            return answer
        await asyncio.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS)
        if await request.is_disconnected():
            return answer  # to nobody: a message that were fetched now would be lost


def _has_message(content: bytes) -> bool:
    try:
        return bool(PullMessagesResponse.FromString(content).messages_list)
    except DecodeError:
        return True  # whatever it is, it is for the node to see


def _has_part(content: bytes) -> bool:
    """A part that is not known will not come; one that is may be on its way."""
    try:
        answer = PullObjectResponse.FromString(content)
    except DecodeError:
        return True
    return bool(answer.object_available) or not answer.object_found


ANSWERED = {PULL: _has_message, PULL_PART: _has_part}
"""Calls that are held until they have an answer, and what that is."""


class _Refusals:
    """Writes what was refused to the event log, but not as often as someone knocks."""

    def __init__(self, events: Events):
        self._events = events
        self._last: dict[tuple[str, str], float] = {}

    def note(self, refused: Refused, path: str, caller: str) -> None:
        now = time.monotonic()
        key = (caller, refused.reason)
        if now - self._last.get(key, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self._last = {k: at for k, at in self._last.items() if now - at < QUIET_SECONDS} | {key: now}
        about = {"site": refused.site} if refused.site else {}
        self._events.tell("refused", **about, reason=refused.reason, call=path[:200], caller=caller)


def main(arguments: list[str]) -> None:
    """Serve: ``python -m headstart.deploy.gateway SERVER_FOLDER HOST PORT SUPERLINK_PORT MAX_BYTES``."""
    folder, host = Path(arguments[0]), arguments[1]
    port, behind, most = (int(text) for text in arguments[2:5])
    tls = folder / "tls"
    app = gateway(Doorkeeper(folder), Upstream(behind, tls / "ca.crt"), Events(folder), most)
    config = uvicorn.Config(
        app, host=host, port=port, ssl_certfile=tls / "server.crt", ssl_keyfile=str(tls / "server.key"),
        access_log=False, server_header=False, limit_concurrency=512, timeout_keep_alive=75, log_level="warning",
        timeout_graceful_shutdown=3, http=HurriedProtocol, ws="none",
    )  # fmt: skip
    config.load()
    assert config.ssl is not None
    config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    asyncio.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main(sys.argv[1:])
