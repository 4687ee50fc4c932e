"""How hosts find each other: by their names, or by what a cluster has put into the environment."""

import os
import secrets
import socket
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils

from headstart.core.cores import claim_cores
from headstart.errors import UsageError
from headstart.hosts.crew import Crew, set_crew
from headstart.hosts.lines import Line

__all__ = ["cluster_size", "use_hosts"]

PORT = 8476
"""Of the first host, unless its name comes with another."""
WAIT = 120
"""Seconds that hosts wait for each other at the beginning."""
HEARTBEAT = 60
"""Seconds after which JAX itself gives a silent host up; lines between hosts notice sooner."""
TOKEN = 16
CARD = 256
"""Bytes in which the first host says where it can be reached."""
SIZES = {"SLURM": ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_NODELIST"),
         "Open MPI": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")}  # fmt: skip


def cluster_size() -> int:
    """How many processes SLURM or Open MPI has started for this run; 1 without either."""
    for names in SIZES.values():
        if all(name in os.environ for name in names):
            return int(os.environ[names[0]])
    return 1


def use_hosts(hosts: Sequence[str] | None = None, host: int | None = None) -> Crew:
    """Join the other hosts of a run; to be called first thing, by the same program on every host.

    ``hosts`` are the names or addresses of all of them, in the same order everywhere, the first as ``name`` or
    ``name:port``. ``host`` is this one's number from 0 on, where its name does not tell. Left out, both are what the
    cluster says: SLURM, Open MPI or, of an indexed job, Kubernetes.
    """
    claim_cores()
    try:
        if hosts is None:
            jax.distributed.initialize(initialization_timeout=WAIT, heartbeat_timeout_seconds=HEARTBEAT)
        else:
            _meet(hosts, _own_number(hosts) if host is None else _checked(host, hosts))
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"The hosts of this run have not found each other: {str(error).splitlines()[0]}",
            f"Start the same command on all hosts within {WAIT} seconds, and see that they reach each other.",
        ) from error
    joined = _connected(None if hosts is None else _address(hosts[0])[0])
    set_crew(joined)
    return joined


def _meet(hosts: Sequence[str], index: int) -> None:
    name, port = _address(hosts[0])
    jax.distributed.initialize(
        f"{name}:{port}",
        len(hosts),
        index,
        cluster_detection_method="deactivate",
        initialization_timeout=WAIT,
        heartbeat_timeout_seconds=HEARTBEAT,
        # On the machine itself nobody else is to be heard.
        coordinator_bind_address=f"{name}:{port}" if _is_loopback(name) else f"[::]:{port}",
    )


def _checked(host: int, hosts: Sequence[str]) -> int:
    if not 0 <= host < len(hosts):
        raise UsageError(f"There is no host {host} of {len(hosts)}.", f"Hosts are numbered 0 to {len(hosts) - 1}.")
    return host


def _own_number(hosts: Sequence[str]) -> int:
    """Which of the hosts is this machine: the one whose address is its own."""
    own = [number for number, name in enumerate(hosts) if _is_here(_address(name)[0])]
    if len(own) == 1:
        return own[0]
    raise UsageError(
        f"{'None' if not own else 'More than one'} of the hosts {', '.join(hosts)} is this machine, "
        f"{socket.gethostname()}.",
        "Give its number among them, from 0 on, with --host.",
    )


def _is_here(name: str) -> bool:
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)  # which only an address of this machine allows
                return True
        except OSError:
            continue
    return False


def _address(host: str) -> tuple[str, int]:
    name, _, port = host.partition(":")
    if port and not port.isdigit():
        raise UsageError(f"{host} is no name of a host.", "Give names, the first as NAME or NAME:PORT.")
    return name, int(port or PORT)


def _is_loopback(name: str) -> bool:
    return name == "localhost" or name.startswith("127.")


def _connected(first: str | None) -> Crew:
    """The lines between all hosts: the first one says where it listens, and the others call."""
    index, count = jax.process_index(), jax.process_count()
    local = first is not None and _is_loopback(first)
    listener = socket.create_server(("127.0.0.1" if local else "", 0)) if index == 0 else None
    card = b""
    if listener is not None:
        name = first or socket.getfqdn()
        card = f"{name} {listener.getsockname()[1]} {secrets.token_hex(TOKEN)}".encode()
    told = multihost_utils.broadcast_one_to_all(np.frombuffer(card.ljust(CARD), np.uint8))
    name, port, token = bytes(np.asarray(told, np.uint8)).decode().split()
    own = socket.gethostname()
    if listener is None:
        line = socket.create_connection((name, int(port)), timeout=WAIT)
        line.settimeout(None)
        line.sendall(f"{token} {index:08d} {own[:64]:64}".encode())
        names = bytes(_read(line, 65 * count)).decode()
        joined = Crew(index, [names[i : i + 65].strip() for i in range(0, len(names), 65)])
        joined.connect([Line(line, joined.ended)])
        return joined
    lines: dict[int, socket.socket] = {}
    names_ = {0: own}
    listener.settimeout(WAIT)
    while len(lines) < count - 1:
        connection, _ = listener.accept()
        connection.settimeout(WAIT)
        said = _read(connection, 2 * TOKEN + 1 + 8 + 1 + 64).decode()
        if not secrets.compare_digest(said[: 2 * TOKEN], token):
            connection.close()  # somebody else
            continue
        connection.settimeout(None)
        number = int(said[2 * TOKEN + 1 : 2 * TOKEN + 9])
        lines[number], names_[number] = connection, said[2 * TOKEN + 10 :].strip()
    listener.close()
    everyone = [names_[number] for number in range(count)]
    for connection in lines.values():
        connection.sendall("".join(f"{name[:64]:65}" for name in everyone).encode())
    joined = Crew(0, everyone)
    joined.connect([Line(lines[number], joined.ended) for number in range(1, count)])
    return joined


def _read(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise UsageError("Another host has ended while hosts were meeting.", "Start all of them again.")
        parts += part
    return parts
