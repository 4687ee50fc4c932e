"""A site kept running: its worker, which has the data, Flower's SuperNode, and messengers that go between them."""

import json
import re
import secrets
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from headstart.deploy.admission import CLOCK, signed_headers
from headstart.deploy.events import Events
from headstart.deploy.gateway import HELLO
from headstart.deploy.places import SitePlace
from headstart.deploy.processes import Child, Keeper, environment
from headstart.deploy.sockets import check_free
from headstart.deploy.sole import sole
from headstart.deploy.whole import write_secret
from headstart.errors import HeadstartError, UsageError

__all__ = ["NoServer", "SiteWatch", "greet", "run_site"]

TICK_SECONDS, GREET_SECONDS = 0.1, 3.0
NODE_GRACE_SECONDS = 65.0
"""For so long Flower takes a node that vanished to be there still, and lets no other with its key in."""
FAILING = 3
"""So many times in a row a process may end soon after its start before it is worth a word."""
NODE_NUMBER = re.compile(rb"SuperNode ID: (\d+)")


class NoServer(HeadstartError):
    """The server is not there, for now."""


class SiteWatch:
    """Watches over a site; `step` is to be called a few times a second, from one thread."""

    def __init__(self, folder: Path):
        self.place = SitePlace.read(folder.resolve())
        self._key = _private(self.place)
        self._lock = sole(self.place.folder, "site")
        try:
            check_free("127.0.0.1", self.place.port, f"{self.place.folder / 'site.toml'}")
        except UsageError:
            self._lock.release()
            raise
        env = environment(self.place.folder / "flower")
        worker = [sys.executable, "-m", "headstart.deploy.worker", str(self.place.folder)]
        self.worker = Child("worker", worker, self.place.logs / "worker.log", env)
        secret = _messengers_secret(self.place)
        messenger = [sys.executable, "-m", "headstart.deploy.messenger", str(self.place.port), str(secret)]
        self.messenger = Child("messenger", messenger, self.place.logs / "messenger.log", env)
        node = _node(self.place, secret)
        self.node = Child("node", node, self.place.logs / "node.log", env, pause=self._node_pause)
        # What the node needs is started while the server is still waited for.
        self._keeper = Keeper([self.worker, self.messenger], Events(self.place.folder))
        self._messengers = 1
        self._greeted = -GREET_SECONDS
        self.connected = False
        """Whether the server knows this site, as of the last look."""
        self.missing = ""
        """What came of the last look for the server, where nothing did."""

    def __enter__(self) -> "SiteWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(self) -> None:
        """Do what is due; a server that does not want this site is a `UsageError`."""
        if not self.connected and time.monotonic() - self._greeted >= GREET_SECONDS:
            self._greeted = time.monotonic()
            try:
                greet(self.place, self._key)
            except NoServer as error:
                self.missing = str(error)
            else:
                self.connected, self.missing = True, ""
                self._keeper.children = [self.worker, self.messenger, self.node]
        self._keeper.tend()
        if self.messenger.starts > self._messengers:
            self._messengers = self.messenger.starts
            self._forget_messages()

    @property
    def children(self) -> list[Child]:
        """Its processes, as far as they are wanted yet."""
        return self._keeper.children

    @property
    def pids(self) -> list[int]:
        """Of its processes."""
        return self._keeper.pids

    def failing(self) -> Child | None:
        """A process that ends again and again; it is started again all the same, for the server may be the cause."""
        return next((child for child in self.children if child.failures >= FAILING), None)

    def stop(self) -> None:
        """End its processes; the server is told."""
        self._keeper.stop()
        self._lock.release()

    def _forget_messages(self) -> None:
        """Start the node again: it may wait for the answer to a message that a messenger has taken to its grave."""
        if self.node.process is not None and self.node.running:
            self.node.process.terminate()

    def _node_pause(self, node: Child) -> float | None:
        """After a node has gone: whether it is still wanted, and how soon it may come back."""
        try:
            greet(self.place, self._key)
        except NoServer:
            return None
        return None if _released(self.place, self._key, node.log) else NODE_GRACE_SECONDS


def run_site(folder: str | Path, watch: Callable[[SiteWatch], None] = lambda watching: None) -> None:
    """Take part in a federation from a site's folder, until this process is ended; ``watch`` is called again and again.

    What is started here ends with this process, whatever way that ends.
    """
    with SiteWatch(Path(folder)) as watching:
        while True:
            watching.step()
            watch(watching)
            time.sleep(TICK_SECONDS)


def greet(place: SitePlace, key: ec.EllipticCurvePrivateKey | None = None) -> None:
    """Ask the server whether it knows this site: `NoServer` if it is not there, `UsageError` if it does not."""
    headers = signed_headers(_private(place) if key is None else key)
    try:
        context = ssl.create_default_context(cafile=str(place.authority))
        answer = httpx.post(f"https://{place.server}{HELLO}", headers=headers, verify=context, timeout=10.0)
    except httpx.TransportError as error:
        if "certificate" in str(error).lower():
            raise UsageError(
                f"{place.server} is not the server of this federation: {error}.",
                f"Ask for the ca.crt of the federation, and put it at {place.authority}; the server's certificate "
                "has to name the host that site.toml has.",
            ) from error
        raise NoServer(f"{place.server} does not answer: {error}") from error
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"{place.authority} is no certificate: {error}.", "Ask for the ca.crt again.") from error
    if answer.status_code == 503:
        raise NoServer(f"{place.server} is starting.")
    if answer.status_code != 200:
        why = _detail(answer)
        if why.startswith(CLOCK):  # which may be set while the machine starts
            raise NoServer(f"{place.server} sees {why}: set this machine's.")
        raise UsageError(
            f"{place.server} does not let {place.name} in: it sees {why}.",
            "Ask who runs the server to add this site: headstart deploy add DIR NAME --public-key key.pub",
        )
    known = str(answer.json()["site"])
    if known != place.name:
        raise UsageError(
            f"site.toml says that this is {place.name}, but its key is the one of {known}.",
            "Use the folder that was made for this site, key and site.toml together.",
        )


def _detail(answer: httpx.Response) -> str:
    try:
        return str(json.loads(answer.text)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"something that it answers with {answer.status_code}"


def _private(place: SitePlace) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(place.key.read_bytes(), None)
    except TypeError as error:
        raise UsageError(
            f"{place.key} has a passphrase.", f"Take it off: ssh-keygen -p -N '' -f {place.key}"
        ) from error
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{place.key} is no key: {error}.", "Bring the key of this site back.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{place.key} is not an elliptic-curve key.", "Make one with: ssh-keygen -t ecdsa -b 384")
    if place.key.stat().st_mode & 0o077:
        raise UsageError(f"{place.key} can be read by others.", f"Run: chmod 600 {place.key}")
    return key


def _messengers_secret(place: SitePlace) -> Path:
    """What the site's messengers show to its SuperNode, so that no other user of the machine takes their messages."""
    path = place.folder / "flower" / "messenger.secret"
    if not path.exists():
        write_secret(path, secrets.token_bytes(32))
    return path


def _node(place: SitePlace, secret: Path) -> list[str]:
    return [
        "flower-supernode", "--superlink", place.server, "--root-certificates", str(place.authority),
        "--auth-supernode-private-key", str(place.key), "--node-config", f'socket="{quote(str(place.socket))}"',
        "--host", "127.0.0.1", "--port", str(place.port),
        "--isolation", "process", "--superexec-auth-secret-file", str(secret),
    ]  # fmt: skip


def _released(place: SitePlace, key: ec.EllipticCurvePrivateKey, log: Path) -> bool:
    """Tell the server that the node that wrote this log has gone, so that another may take its place at once."""
    numbers = NODE_NUMBER.findall(log.read_bytes()) if log.exists() else []
    if not numbers:
        return True
    try:
        with FleetHttpClient.from_server_address(
            place.server, False, place.authority.read_bytes(), [NodeAuthHttpInterceptor(key, key.public_key())]
        ) as client:
            client.DeactivateNode(DeactivateNodeRequest(node_id=int(numbers[-1])))
    except httpx.HTTPStatusError as error:
        # It had said goodbye by itself.
        return error.response.status_code == 400 or "deactivat" in error.response.text
    except (httpx.HTTPError, ValueError):
        return False
    return True
