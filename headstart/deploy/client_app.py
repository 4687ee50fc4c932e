"""The site's messenger, which Flower starts anew for every message: hands it to the site's worker, and the answer back.

It imports nothing that imports JAX. Whatever happens it answers before its deadline: one that hangs would block its
SuperNode for good.
"""

import socket
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from flwr.app import Context
from flwr.app import Message as Carrier
from flwr.clientapp import ClientApp

from headstart.deploy.carrying import receive_bytes, send_bytes, unwrap, wrap
from headstart.deploy.messages import Fault, Garbled, Message
from headstart.deploy.sockets import socket_name

__all__ = ["app", "ask_worker"]

app = ClientApp()
RETRY_SECONDS = 0.2
WORKER_SECONDS = 60.0
"""How long a worker is waited for that has just been started again."""


@app.train()
def train(carrier: Carrier, context: Context) -> Carrier:
    """Answer a message."""
    return Carrier(wrap(ask_worker(unwrap(carrier), unquote(str(context.node_config["socket"])))), reply_to=carrier)


def ask_worker(content: bytes, path: str) -> bytes:
    """What the worker behind a socket answers, or that it has not in time."""
    question: Message | None = None
    deadline = WORKER_SECONDS
    with suppress(Garbled):
        question = Message.unpack(content, with_arrays=False)
        deadline = question.head.deadline
    end = time.monotonic() + deadline
    try:
        with _connected(path, end) as connection:
            connection.settimeout(max(RETRY_SECONDS, end - time.monotonic()))
            send_bytes(connection, content)
            return receive_bytes(connection)
    except TimeoutError:
        fault = Fault("slow", f"not done within {deadline:g} s")
    except (OSError, Garbled) as error:
        fault = Fault("unreachable", f"the site's worker does not answer: {error}")
    if question is None:
        raise RuntimeError(str(fault))
    return question.fault(fault).pack()


def _connected(path: str, end: float) -> socket.socket:
    """A connection to the worker, who may be starting."""
    until = min(end, time.monotonic() + WORKER_SECONDS)
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_name(Path(path)) as name:
                connection.connect(name)
            return connection
        except OSError:
            connection.close()
            if time.monotonic() + RETRY_SECONDS > until:
                raise
        time.sleep(RETRY_SECONDS)
