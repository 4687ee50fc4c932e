"""The server as Flower runs it: an app whose one setting is the server's folder."""

import os
import threading
import time
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from headstart.deploy.flower import FlowerFleet
from headstart.deploy.places import ServerPlace
from headstart.deploy.roster import LiveRoster
from headstart.deploy.whole import write_whole

__all__ = ["app"]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train every method of the experiment."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    folder = Path(str(context.run_config["folder"]))
    write_whole(ServerPlace(folder).pid, f"{os.getpid()}\n".encode())
    from headstart.deploy.running import serve  # JAX, which takes seconds to start
    from headstart.deploy.settings import DeploySettings

    roster = LiveRoster(folder)
    serve(folder, FlowerFleet(grid, lambda: roster.look().keys, DeploySettings.read(folder).poll_seconds))


def _end_with(parent: int) -> None:
    """Without the process that started it a server is on its own: another one may take over from its checkpoint."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
