"""Start a command that ends when whoever started it does: ``python -m headstart.deploy.leash PARENT COMMAND ...``.

Also after kill -9, where nobody is left to end it: on Linux the kernel does. Elsewhere it is only started.
"""

import ctypes
import os
import signal
import sys

__all__ = ["main"]

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Tie this process to its parent, and become the command."""
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit("Whoever started this has gone.")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
