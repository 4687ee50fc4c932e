"""The gateway before anything is behind it: who and what it lets through."""

import asyncio
import socket
import threading
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import uvicorn
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, PullObjectResponse
from flwr.proto.node_pb2 import Node
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from headstart.deploy.admission import SIGNATURE, TIME, Doorkeeper, signed_headers
from headstart.deploy.credentials import make_node_key, public_line
from headstart.deploy.events import Events
from headstart.deploy.gateway import FLEET_CALLS, HELLO, gateway
from headstart.deploy.listening import HurriedProtocol
from headstart.deploy.roster import Roster

ANSWER = PullMessagesResponse(messages_list=[Message()]).SerializeToString()
PULL, PUSH, PART = "/v1/fleet/pull-messages", "/v1/fleet/push-messages", "/v1/fleet/pull-object"
ORDER_P384 = int("ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973", 16)


class Behind:
    """In place of the SuperLink: remembers what reaches it."""

    def __init__(self):
        self.calls = []
        self.there = True
        self.empty = 0
        """So many calls for messages find none."""
        self.parts = []
        """What calls for parts of a message find, one after the other."""

    def client(self):
        async def answer(request):
            self.calls.append((request.url.path, dict(request.headers), await request.body()))
            self.empty -= request.url.path == PULL
            content = b"" if request.url.path == PULL and self.empty >= 0 else ANSWER
            if request.url.path == PART and self.parts:
                content = self.parts.pop(0)
            return Response(content, 200, {"content-type": "application/x-protobuf", "set-cookie": "no"})

        if not self.there:
            return httpx.AsyncClient(base_url="https://127.0.0.1:1", timeout=1.0)
        app = Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://behind")


class Door:
    """A gateway with a roster of one site, and one that was revoked."""

    def __init__(self, folder):
        self.folder, self.behind, self.events = folder, Behind(), Events()
        self.keys = {}
        roster = Roster({})
        for name in ("north", "gone", "stranger"):
            line = make_node_key(folder / name)
            self.keys[name] = load_ssh_private_key((folder / name).read_bytes(), None)
            if name != "stranger":
                roster = roster.with_site(name, line)
        self.roster = roster.without_site("gone")
        self.roster.write(folder)
        self.app = gateway(Doorkeeper(folder), self.behind, self.events, max_bytes=1000)

    def call(self, path, headers=None, method="POST", content=b""):
        async def make():
            async with self.app.router.lifespan_context(self.app) as state:
                app = _with_state(self.app, state)
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://gate") as client:
                    return await client.request(method, path, headers=headers, content=content)

        return asyncio.run(make())

    def signed(self, name="north"):
        return signed_headers(self.keys[name])


def _with_state(app, state):
    async def scoped(scope, receive, send):
        await app({**scope, "state": dict(state)}, receive, send)

    return scoped


@pytest.fixture
def door(tmp_path):
    return Door(tmp_path)


def test_every_call_of_the_fleet_gets_through_with_only_the_headers_it_needs(door):
    for path in FLEET_CALLS:
        content = _pushed() if path == PUSH else b"body"
        headers = {**door.signed(), "x-forwarded-for": "1.2.3.4", "authorization": "Bearer x"}
        answer = door.call(path, headers, content=content)
        assert (answer.status_code, answer.content) == (200, ANSWER)
        assert "set-cookie" not in answer.headers
        at, seen, body = door.behind.calls[-1]
        assert (at, body) == (path, content)
        assert "x-forwarded-for" not in seen
        assert "authorization" not in seen
        assert seen["flwr-public-key"] == headers["flwr-public-key"]


def test_the_calls_are_those_that_flowers_fleet_has_but_for_registering():
    from flwr.superlink.routers.fleet.router import router

    assert {route.path for route in router.routes} - FLEET_CALLS == {
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
    }


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/register-node", "/v1/control/start-run", "/v1/control/stop-run", "/v1/control/list-nodes",
        "/v1/runtime/acquire-task", "/v1/fleet/register-node", "/v1/fleet/unregister-node", "/health", "/docs",
        "/openapi.json", "/", "/v1/fleet/", "/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/pull-messages/../../control/start-run", "//v1/control/start-run", "/v1/fleet/pull-messages/",
        "/V1/FLEET/PULL-MESSAGES",
    ],
)  # fmt: skip
def test_no_other_path_gets_through_whoever_asks(door, path):
    for headers in ({}, door.signed()):
        assert door.call(path, headers).status_code == (412 if path == "/v1/fleet/register-node" else 403)
    assert door.behind.calls == []
    assert door.events.told[0]["event"] == "refused"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_no_other_method_gets_through(door, method):
    assert door.call(PULL, door.signed(), method=method).status_code == 403
    assert door.behind.calls == []


def test_strangers_and_the_revoked_are_refused_by_name_and_reason(door):
    for headers, reason in (
        ({}, "no key"),
        (door.signed("stranger"), "a key that is not on the roster"),
        (door.signed("gone"), "a key that was revoked"),
        ({**door.signed("stranger"), "flwr-public-key": door.signed()["flwr-public-key"]}, "does not hold"),
        ({**door.signed(), SIGNATURE: "%%%"}, "headers"),
        ({**door.signed(), TIME: "yesterday"}, "headers"),
        ({**door.signed(), TIME: datetime.now().isoformat()}, "headers"),
    ):
        answer = door.call(PULL, headers)
        assert answer.status_code == 401
        assert reason in answer.json()["detail"]
    assert door.behind.calls == []
    assert [event.get("site") for event in door.events.told][:4] == [None, None, "gone", "north"]


def test_revoking_and_adding_work_at_once(door):
    assert door.call(PULL, door.signed()).status_code == 200
    door.roster.without_site("north").write(door.folder)
    assert "revoked" in door.call(PULL, door.signed()).json()["detail"]
    (door.folder / "roster.toml").write_text("[sites")  # someone is editing: what was read last stays in force
    assert "revoked" in door.call(PULL, door.signed()).json()["detail"]
    assert "not on the roster" in door.call(PULL, door.signed("stranger")).json()["detail"]
    door.roster.with_site("stranger", public_line(door.folder / "stranger")).write(door.folder)
    assert door.call(HELLO, door.signed("stranger")).json() == {"site": "stranger"}


def test_a_call_is_let_in_once_whatever_is_done_to_its_signature(door):
    headers = door.signed()
    assert door.call(PULL, headers).status_code == 200
    assert door.call(PULL, headers).json() == {"detail": "a call that was made before"}
    first, second = decode_dss_signature(b64decode(headers[SIGNATURE]))
    twin = encode_dss_signature(first, ORDER_P384 - second)
    door.keys["north"].public_key().verify(twin, headers[TIME].encode(), ec.ECDSA(hashes.SHA256()))  # it does hold
    replayed = door.call(PUSH, {**headers, SIGNATURE: b64encode(twin).decode()})
    assert replayed.json() == {"detail": "a call that was made before"}
    assert len(door.behind.calls) == 1


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_call_of_another_time_is_refused(door, minutes):
    stamp = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()
    signature = door.keys["north"].sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    answer = door.call(PULL, {**door.signed(), TIME: stamp, SIGNATURE: b64encode(signature).decode()})
    assert "a clock that differs by 600 seconds" in answer.json()["detail"]


def _pushed(node=7, source=7, reply_to="abc"):
    metadata = Metadata(src_node_id=source, reply_to_message_id=reply_to)
    return PushMessagesRequest(node=Node(node_id=node), messages_list=[Message(metadata=metadata)]).SerializeToString()


def test_a_site_can_neither_answer_for_another_nor_ask_others(door):
    for content, reason in (
        (_pushed(source=8), "an answer in another node's name"),
        (_pushed(reply_to=""), "a message that answers none"),
        (b"\xff\xff", "not a message of Flower's"),
    ):
        answer = door.call(PUSH, door.signed(), content=content)
        assert answer.status_code in (400, 401)
        assert answer.json() == {"detail": reason}
        assert door.events.told[-1]["site"] == "north"
    assert door.behind.calls == []
    assert door.call(PUSH, door.signed(), content=_pushed()).status_code == 200


def test_what_is_too_long_is_given_up(door):
    assert door.call("/v1/fleet/push-object", door.signed(), content=b"x" * 1001).status_code == 413
    assert door.behind.calls == []


def test_a_server_that_is_being_started_again_is_worth_another_try(door):
    door.behind.there = False
    assert door.call(PULL, door.signed()).status_code == 503


def test_a_call_for_messages_waits_for_one_but_not_for_ever(door, monkeypatch):
    door.behind.empty = 3
    assert door.call(PULL, door.signed()).content == ANSWER
    assert len(door.behind.calls) == 4
    monkeypatch.setattr("headstart.deploy.gateway.HOLD_SECONDS", 0.3)
    door.behind.empty = 100
    assert door.call(PULL, door.signed()).content == b""
    assert len(door.behind.calls) < 10


def test_a_part_of_a_message_is_waited_for_if_it_is_known(door):
    """The server sends a message first, and its parts after it."""
    coming, here, unknown = (
        PullObjectResponse(object_found=found, object_available=available).SerializeToString()
        for found, available in ((True, False), (True, True), (False, False))
    )
    door.behind.parts = [coming, coming, here]
    assert door.call(PART, door.signed()).content == here
    assert len(door.behind.calls) == 3
    door.behind.parts = [unknown, here]
    assert door.call(PART, door.signed()).content == unknown


def test_a_site_is_told_its_name(door):
    assert door.call(HELLO, door.signed()).json() == {"site": "north"}
    assert door.call(HELLO, door.signed("gone")).status_code == 401


def test_someone_who_knocks_without_end_does_not_fill_the_disk(door):
    for _ in range(30):
        door.call(PULL)
    assert len(door.events.told) <= 3


def test_a_call_is_let_in_once_also_after_the_gateway_was_started_again(door):
    headers = door.signed()
    assert door.call(PULL, headers).status_code == 200
    for _ in range(2):
        door.app = gateway(Doorkeeper(door.folder), door.behind, door.events, max_bytes=1000)
        assert door.call(PULL, headers).json() == {"detail": "a call that was made before"}
    assert door.call(PULL, door.signed()).status_code == 200


def test_a_header_that_comes_twice_is_refused(door):
    """The SuperLink might read another one of them than the gateway does."""
    other = door.signed("gone")
    answer = door.call(PULL, [*door.signed().items(), *other.items()])
    assert (answer.status_code, answer.json()) == (400, {"detail": "a header that comes twice"})
    assert door.behind.calls == []


class Listening:
    """A gateway that listens, without TLS."""

    def __init__(self, app):
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, http=HurriedProtocol, ws="none", log_level="critical"))
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join()

    def connected(self):
        connection = socket.create_connection(self.socket.getsockname())
        connection.settimeout(5.0)
        return connection


def _ended(connection):
    """What still came, once the other end has closed the connection."""
    got = []
    with suppress(ConnectionResetError):
        while part := connection.recv(4096):
            got.append(part)
    return b"".join(got)


def test_who_does_not_say_what_he_wants_is_cut_off(door, monkeypatch):
    monkeypatch.setattr("headstart.deploy.listening.HEADER_SECONDS", 0.3)
    monkeypatch.setattr("headstart.deploy.listening.MOST_SILENT", 3)
    with Listening(door.app) as gate:
        silent, slow, refused = (gate.connected() for _ in range(3))
        slow.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: gate\r\n")
        refused.sendall(b"GET / HTTP/1.1\r\nHost: gate\r\n\r\n")
        assert b"403" in _ended(refused)
        crowd = [gate.connected() for _ in range(2)]
        assert [_ended(one) for one in (silent, slow, *crowd)] == [b""] * 4
        known = httpx.Client(base_url=f"http://127.0.0.1:{gate.socket.getsockname()[1]}")
        for pause in (0.0, 0.5, 0.0):
            time.sleep(pause)
            assert known.post(HELLO, headers=door.signed()).json() == {"site": "north"}
        long = gate.connected()
        long.sendall(b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 200_000)
        assert b"403" not in _ended(long)
