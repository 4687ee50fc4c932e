"""Several hosts that run one command: they meet first, only the first one speaks, and they end together."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headstart.errors import HeadstartError, UsageError

if TYPE_CHECKING:
    from headstart.hosts import Crew

__all__ = ["together"]

CLUSTER = "cluster"
ALONE = "alone"


@contextmanager
def together(hosts: str | None, host: int | None, resume: str) -> Iterator["Crew | None"]:
    """Join the hosts that the options or the environment speak of; nothing where this one is alone.

    ``resume`` is the command by which the run is gone on with.
    """
    from headstart.hosts import cluster_size, use_hosts

    if host is not None and hosts in (None, CLUSTER, ALONE):
        raise UsageError("--host is the number of this host in a list of hosts.", "Give the list with --hosts A,B,C.")
    if hosts == ALONE or (hosts is None and cluster_size() < 2):
        yield None
        return
    joined = use_hosts(None if hosts in (None, CLUSTER) else [name.strip() for name in hosts.split(",")], host)
    joined.resume = resume
    from headstart.cli.terminal import console

    if joined.leads:
        console.print(f"{joined.count} hosts: {', '.join(joined.names)}")
    console.quiet = not joined.leads
    try:
        yield joined
    except HeadstartError:
        raise  # which says so on its way out
    except Exception as error:
        traceback.print_exc()
        joined.fail(f"{type(error).__name__}: {error}")
        os._exit(1)
    joined.finish()
