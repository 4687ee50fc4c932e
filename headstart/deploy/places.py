"""Where things are in the folders of a server and of a site."""

import re
import tomllib
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from headstart.deploy.roster import check_site_name
from headstart.deploy.sockets import SOCKET_LIMIT, can_name
from headstart.errors import UsageError

__all__ = ["SITE_PORT", "Door", "ServerPlace", "SitePlace", "address", "check_host", "check_port"]

SITE_PORT = 9094
HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?")


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
        if not isinstance(table, dict) or (unknown := table.keys() - {part.name for part in fields(Door)}):
            named = ", ".join(sorted(unknown)) if isinstance(table, dict) else "no section"
            raise UsageError(f"{self.settings}: [gateway] has {named}.", "It has host, port, superlink_port and names.")
        door = Door(**{**table, "names": table.get("names", ())})
        names = door.names
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{self.settings}: names = {names!r} is no list.", "Write it as ['server.example.org'].")
        if not isinstance(door.host, str):
            raise UsageError(f"{self.settings}: host = {door.host!r} is no address.", "Write it as '0.0.0.0'.")
        for key in ("port", "superlink_port"):
            check_port(key, getattr(door, key), self.settings)
        if door.port == door.superlink_port:
            raise UsageError(f"{self.settings}: port and superlink_port are both {door.port}.", "Choose two.")
        for name in names:
            check_host(name)
        return replace(door, names=tuple(names))


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
        port, data = tables.get("port", SITE_PORT), tables.get("data", {})
        check_site_name(tables["name"])
        host, _, behind = tables["server"].rpartition(":")
        if not host or not behind.isdecimal():
            raise UsageError(
                f"{path}: server = {tables['server']!r} is no address.", "Write it as 'server.example.org:9092'."
            )
        check_host(host.removeprefix("[").removesuffix("]"))
        check_port("server", int(behind), path)
        check_port("port", port, path)
        if not isinstance(data, dict):
            raise UsageError(f"{path}: data = {data!r} is no section.", "Write [data], and path = '...' below it.")
        return cls(folder, tables["name"], tables["server"], port, data)

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
        if not can_name(path):
            raise UsageError(
                f"The path {path} is too long for a socket.", f"Move the folder: at most {SOCKET_LIMIT} bytes."
            )
        return path

    @property
    def models(self) -> Path:
        """Shared models that the server has sent at the end."""
        return self.folder / "model"


def check_host(host: str) -> None:
    """Refuse what can be neither a host's name nor its address."""
    try:
        ip_address(host)
    except ValueError as error:
        if not HOST.fullmatch(host):
            raise UsageError(
                f"{host!r} is neither a host's name nor an address.",
                "Leave out https:// and the port; use letters a-z.",
            ) from error


def address(host: str, port: int) -> str:
    """Where something is reached; addresses with colons stand in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_port(key: str, port: object, where: Path | None = None) -> None:
    """Refuse what cannot be a port."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        whose = "" if where is None else f"{where}: "
        raise UsageError(f"{whose}{key} = {port!r} is no port.", "Choose one between 1024 and 65535.")


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
