"""What the operator of a SuperLink asks of it: which nodes it knows, and runs that begin and end.

These calls need no login, so they reach the SuperLink on the loopback interface only; see `headstart.deploy.gateway`.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor

from headstart.errors import HeadstartError

__all__ = ["Node", "NotThere", "SuperLink"]

Answer = TypeVar("Answer")


class NotThere(HeadstartError):
    """The SuperLink does not answer, or not in the affirmative."""


class Node(NamedTuple):
    """A node that the SuperLink knows."""

    number: int
    online: bool


class SuperLink:
    """The SuperLink on this machine."""

    def __init__(self, port: int, authority: Path):
        self._client = ControlHttpClient.from_server_address(
            f"127.0.0.1:{port}", False, authority.read_bytes(), [RuntimeVersionHttpInterceptor("flwr CLI")]
        )

    def nodes(self) -> dict[bytes, Node]:
        """All nodes that are registered, by public key."""
        answer = _asked(lambda: self._client.ListNodes(ListNodesRequest()))
        return {
            node.public_key: Node(node.node_id, node.status == "online")
            for node in answer.nodes_info
            if node.status != "unregistered"
        }

    def register(self, key: bytes, name: str) -> None:
        """Let the node with this key in."""
        _asked(lambda: self._client.RegisterNode(RegisterNodeRequest(public_key=key, name=name)))

    def unregister(self, node: Node) -> None:
        """Let a node in no longer."""
        _asked(lambda: self._client.UnregisterNode(UnregisterNodeRequest(node_id=node.number)))

    def start(self, app: Path, config: Mapping[str, Any]) -> int:
        """Start a run of the app in a folder, and give its number."""
        content = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(dict(config)))
        answer = _asked(lambda: self._client.StartRun(request))
        if not answer.HasField("run_id"):
            raise NotThere("The SuperLink has not started the run.")
        return int(answer.run_id)

    def finished(self, run: int) -> str | None:
        """How a run ended and why, or ``None`` while it is going on."""
        runs = _asked(lambda: self._client.ListRuns(ListRunsRequest(run_id=run))).run_dict
        if run not in runs:
            return "it is not known"
        status = runs[run].status
        return f"{status.sub_status} {status.details}".strip() if status.status == "finished" else None

    def stop_all(self) -> None:
        """End what is left of a server that was killed, so that no node waits for the rest of its messages."""
        runs = _asked(lambda: self._client.ListRuns(ListRunsRequest())).run_dict
        for run in (number for number, about in runs.items() if about.status.status != "finished"):
            self.stop(run)

    def stop(self, run: int) -> None:
        """End a run, whether or not its process is alive."""
        _asked(lambda: self._client.StopRun(StopRunRequest(run_id=run)))

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def _asked(call: Callable[[], Answer]) -> Answer:
    try:
        return call()
    except httpx.HTTPStatusError as error:
        raise NotThere(f"The SuperLink refuses: {error.response.text[:300]}") from error
    except (httpx.HTTPError, ValueError) as error:
        raise NotThere(f"The SuperLink does not answer: {error}") from error
