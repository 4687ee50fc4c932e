"""How a message of ours travels inside one of Flower's, and over a site's own socket.

Imports nothing that imports JAX.
"""

import socket
import struct

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.app import Message as Carrier

from headstart.deploy.messages import LARGEST_MESSAGE, Garbled

__all__ = ["receive_bytes", "send_bytes", "unwrap", "wrap"]

RECORD, BODY = "headstart", "message"
LENGTH = struct.Struct(">Q")


def wrap(content: bytes) -> RecordDict:
    """Bytes as what Flower carries: one array, which it sends in pieces however large it is."""
    return RecordDict({RECORD: ArrayRecord({BODY: Array(np.frombuffer(content, np.uint8))})})


def unwrap(carrier: Carrier) -> bytes:
    """The bytes that a message of Flower's carries."""
    try:
        body = carrier.content.array_records[RECORD][BODY].numpy()
    except (KeyError, TypeError, ValueError) as error:
        raise Garbled("it carries nothing of ours") from error
    if body.dtype != np.uint8 or body.ndim != 1:
        raise Garbled("it carries nothing of ours")
    return bytes(body.tobytes())


def send_bytes(connection: socket.socket, content: bytes) -> None:
    """Over a socket, with their length before them."""
    connection.sendall(LENGTH.pack(len(content)))
    connection.sendall(content)


def receive_bytes(connection: socket.socket, largest: int = LARGEST_MESSAGE) -> bytes:
    """From a socket."""
    (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    if length > largest:
        raise Garbled(f"it has {length} bytes, more than {largest}")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    content = bytearray(length)
    view, filled = memoryview(content), 0
    while filled < length:
        got = connection.recv_into(view[filled:])
        if not got:
            raise ConnectionError("the other end has closed the connection")
        filled += got
    return bytes(content)
