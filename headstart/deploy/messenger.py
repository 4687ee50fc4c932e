"""A site's messenger: takes the messages that the site's SuperNode has fetched, and brings back the worker's answers.

    python -m headstart.deploy.messenger PORT SECRET_FILE

It stands where Flower's SuperExec does, which starts a new Python for every message and has it install and load the app
that came with the run. This one stays, so that a message costs milliseconds rather than a second. And it runs one app
only, the one that is installed here: whoever takes over a server brings no code to the sites. It imports no JAX.
"""

import sys
import threading
import time
from pathlib import Path

import httpx
from flwr.app import Context
from flwr.app import Message as Carrier
from flwr.app.error import Error
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_from_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from headstart.deploy.client_app import app

__all__ = ["Messenger", "main"]

POLL_SECONDS = 0.1
ABSENT_SECONDS = 0.5
"""Between looks for a SuperNode that is not there."""
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class Messenger:
    """Carries messages as the SuperNode at this address fetches them."""

    def __init__(self, address: str, secret: bytes):
        self._address = address
        self._client = self._connected(
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=frozenset({ACQUIRE})),
        )

    def serve(self) -> None:
        """Until the process ends."""
        wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        while True:
            try:
                task = self._client.AcquireTask(wanted)
            except httpx.HTTPStatusError as error:
                sys.exit(f"The SuperNode refuses: {error.response.text[:300]}")
            except httpx.TransportError:
                time.sleep(ABSENT_SECONDS)
                continue
            if not task.token:
                time.sleep(POLL_SECONDS)
                continue
            # Beside others: one that the server has given up on in the middle does not come, and holds nobody up.
            threading.Thread(target=self._carry, args=(task.token,), daemon=True).start()

    def _carry(self, token: str) -> None:
        """Bring one message to the app, and its answer back, if that can be done."""
        try:
            self._bring(token)
        except Exception as error:
            print(f"A message was lost: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _bring(self, token: str) -> None:
        """A task is declared done only once its answer is there: until it has one, the SuperNode does nothing else.

        Where there can be none, the SuperNode misses the heartbeats and makes one up.
        """
        client = self._connected(
            RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), RuntimeTokenHttpInterceptor(token)
        )
        beating = HeartbeatSender(lambda: _beat(client))
        beating.start()
        try:
            carrier, context = _fetched(client)
            try:
                answer = app(message=carrier, context=context)
                status, details = SubStatus.COMPLETED, ""
            except Exception as error:
                status, details = SubStatus.FAILED, f"{type(error).__name__}: {error}"
                answer = Carrier(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=details), reply_to=carrier)
            push_message(client, answer, context)
            push_task_output(client, context, status, details)
        finally:
            beating.stop()
            client.close()

    def _connected(self, *interceptors: ProtobufClientInterceptor) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self._address, insecure=True, root_certificates=None, interceptors=list(interceptors)
        )


def _fetched(client: RuntimeHttpClient) -> tuple[Carrier, Context]:
    """The message of a task. It may still be on its way to the SuperNode, as long as that does not give it up.

    A SuperNode that does ends the task and drops the message, and whoever asks for them then is refused.
    """
    context = context_from_proto(client.PullTaskInput(PullTaskInputRequest()).context)
    while not (pulled := client.PullMessages(PullAppMessagesRequest())).messages_list:
        time.sleep(POLL_SECONDS)  # a task is there before its message
    node, tree = Node(node_id=context.node_id), pulled.message_object_trees[0]
    carrier = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, node, context.run_id),
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, context.run_id),
        return_type=Carrier,
        max_time=None,
        max_tries_per_object=None,
        initial_backoff=POLL_SECONDS / 2,
        backoff_cap=1.0,
    )
    carrier.metadata.__dict__["_message_id"] = tree.object_id  # as Flower does: it does not travel with a message
    return carrier, context


def _beat(client: RuntimeHttpClient) -> bool:
    """Tell the SuperNode that the message is in hand."""
    try:
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    except httpx.HTTPError:
        return False
    return True


def main(port: int, secret: bytes) -> None:
    """Serve the SuperNode on a port of this machine."""
    Messenger(f"127.0.0.1:{port}", secret).serve()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), Path(sys.argv[2]).read_bytes())
    except KeyboardInterrupt:
        sys.exit(130)
