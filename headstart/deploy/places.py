"""Where things are in the folders of a server and of a site."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import UsageError

__all__ = ["Door", "ServerPlace", "SitePlace"]

SOCKET_LIMIT = 100
"""The longest path that a socket can have everywhere."""


@dataclass(frozen=True)
class Door:
    """Where a server is reached: the section [gateway] of ``deploy.toml``."""

    host: str = "0.0.0.0"
    """The interface that the gateway listens on."""
    port: int = 9092
    superlink_port: int = 9093
    """Of Flower's SuperLink, on the loopback interface only."""
    names: tuple[str, ...] = ()
    """Names and addresses under which sites reach the server: those of its certificate."""


@dataclass(frozen=True)
class ServerPlace:
    """The folder of a server."""

    folder: Path

    @property
    def tls(self) -> Path:
        return self.folder / "tls"

    @property
    def authority(self) -> Path:
        """The certificate that sites know the server by."""
        return self.tls / "ca.crt"

    @property
    def experiment(self) -> Path:
        return self.folder / "experiment.toml"

    @property
    def settings(self) -> Path:
        return self.folder / "deploy.toml"

    @property
    def run(self) -> Path:
        """The record, as of any run."""
        return self.folder / "run"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def app(self) -> Path:
        """The Flower app that is run: it names code of this package and has none of its own."""
        return self.folder / "app"

    @property
    def pid(self) -> Path:
        """Which process is training."""
        return self.folder / "serverapp.pid"

    def door(self) -> Door:
        """Where it is reached."""
        table = _read(self.settings, "server").get("gateway", {})
        try:
            return Door(**{**table, "names": tuple(table.get("names", ()))})
        except TypeError as error:
            raise UsageError(
                f"{self.settings}: [gateway] has a setting that is none: {error}.",
                "It has host, port, superlink_port and names.",
            ) from error


@dataclass(frozen=True)
class SitePlace:
    """The folder of a site."""

    folder: Path
    name: str
    server: str
    """Where the server is: host:port."""
    port: int
    """Of Flower's SuperNode, on the loopback interface only."""
    data: dict[str, Any]
    """Where the site's data is, and whatever else it says of it."""

    @classmethod
    def read(cls, folder: Path) -> "SitePlace":
        """From the file ``site.toml`` of a site's folder."""
        path = folder / "site.toml"
        tables = _read(path, "site")
        missing = [key for key in ("name", "server") if not isinstance(tables.get(key), str)]
        if missing:
            raise UsageError(f"{path} does not say {missing[0]}.", f"Add {missing[0]} = '...' at the top of the file.")
        return cls(folder, tables["name"], tables["server"], int(tables.get("port", 9094)), tables.get("data", {}))

    @property
    def key(self) -> Path:
        return self.folder / "key"

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def socket(self) -> Path:
        """On which the messenger and the worker of the site talk."""
        path = (self.folder / "worker.sock").resolve()
        if len(str(path)) > SOCKET_LIMIT:
            raise UsageError(
                f"The path {path} is too long for a socket.", f"Move the folder: at most {SOCKET_LIMIT} characters."
            )
        return path

    @property
    def models(self) -> Path:
        """Shared models that the server has sent at the end."""
        return self.folder / "model"


def _read(path: Path, whose: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            f"{path.parent} has no {path.name}, so it is no {whose}'s folder.",
            "Make the folders with: headstart deploy init DIR --experiment x.toml --sites N",
        ) from error
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "Mend the file.") from error
