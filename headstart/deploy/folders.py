"""The folders of a federation: made for the server and for every site, with keys; sites that come and go."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from headstart.deploy.credentials import make_authority, make_node_key, make_server_certificate, public_line
from headstart.deploy.places import SITE_PORT, Door, ServerPlace, SitePlace, address, check_host, check_port
from headstart.deploy.roster import Roster, check_site_name, editing
from headstart.deploy.units import server_unit, site_unit
from headstart.deploy.whole import write_whole
from headstart.errors import UsageError

__all__ = ["Federation", "add", "init", "revoke"]

LOOPBACK = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "::1"}
"""Hosts that are this machine, and where it listens then."""
SERVER_NOTE = """\
# How this federation is run. What it trains is in experiment.toml; who belongs to it is in roster.toml.
# quorum = 0.5           # the share of a cohort's clients, or their number, whose updates a round needs
# below_quorum = "wait"  # ask again until there are enough, or "stop" with everything kept
# wait_timeout = 86400   # seconds after which a server that waits for sites stops all the same
# round_timeout = 300    # seconds that the server waits for a phase of a round
# site_deadline = 240    # seconds after which a site gives up on it
# join_timeout = 120     # seconds that the server waits, before the agreement, for all sites of the roster

"""
SITE_NOTE = """\
# A site of a federation. [data] says where its own data is, which never leaves this machine: a path is relative to
# this folder.

"""


@dataclass(frozen=True)
class Federation:
    """The folders that `init` has made."""

    server: Path
    sites: Mapping[str, Path]
    certificate_names: Sequence[str]


def init(
    folder: str | Path,
    experiment: str | Path,
    sites: int | Sequence[str],
    *,
    host: str = "localhost",
    port: int = 9092,
    listen: str | None = None,
    superlink_port: int | None = None,
    first_site_port: int | None = None,
    settings: Iterable[str] = (),
    split: bool = False,
    deploy: Mapping[str, Any] | None = None,
) -> Federation:
    """Make the folders of a server and its sites, with certificates, keys and a roster.

    ``experiment`` is the TOML file, or the record of a run, that says what is trained; ``settings`` change it as on
    the command line. ``sites`` are names, or how many there are. Sites reach the server at ``host`` and ``port``; the
    gateway listens on the interface ``listen``: on all of them, or on loopback where the host is this machine; then
    SuperNodes have ports of their own, from ``first_site_port``. With ``split``, the data of the experiment is dealt
    out to the sites' folders, for a trial on one machine. ``deploy`` are settings for deploy.toml.
    """
    root = Path(folder)
    names = [f"site-{i + 1}" for i in range(sites)] if isinstance(sites, int) else list(sites)
    _check(root, names)
    check_host(host)
    check_port("port", port)
    check_port("superlink_port", port + 1 if superlink_port is None else superlink_port)
    if first_site_port is None and host in LOOPBACK:
        first_site_port = max(SITE_PORT, port + 2)  # sites that reach the server there share its machine
    tables = _tables(experiment, settings)
    server = ServerPlace(root / "server")
    folders = {name: root / "sites" / name for name in names}
    try:
        placed: Mapping[str, Mapping[str, str]] = {name: _named_data(tables["data"]) for name in names}
        if split:
            from headstart.deploy.dealing import deal_out_files

            placed = deal_out_files(tables["data"], folders)
        certificate = [host]
        listen = listen or LOOPBACK.get(host) or ("::" if ":" in host else "0.0.0.0")
        door = Door(listen, port, port + 1 if superlink_port is None else superlink_port, tuple(certificate))
        _make_server(server, {**tables, "data": {**tables["data"], **placed[names[0]]}}, door, deploy or {})
        roster = Roster({})
        for i, (name, place) in enumerate(folders.items()):
            own_port = SITE_PORT if first_site_port is None else first_site_port + i
            check_port("first_site_port", own_port)
            line = _make_site(place, name, address(host, port), own_port, placed[name], server.authority)
            roster = roster.with_site(name, line)
        roster.write(server.folder)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)  # it was not there before
        raise
    return Federation(server.folder, folders, certificate)


def add(folder: str | Path, site: str, public_key: str | Path | None = None) -> Path | None:
    """Add a site to a federation, which may be running.

    ``public_key`` is a file that the site has sent, made by it with ``ssh-keygen -t ecdsa -b 384``; left out, a folder
    with a new key is made for it, and returned.
    """
    root, server = _federation(folder)
    check_site_name(site)
    with editing(server.folder):
        roster = Roster.read(server.folder)
        if public_key is not None:
            roster.with_site(site, public_line(Path(public_key))).write(server.folder)
            return None
        place = root / "sites" / site
        if place.exists():
            raise UsageError(f"{place} is there already.", "Choose another name, or remove that folder.")
        if site in roster.sites:
            roster.with_site(site, "")  # which says why not
        door = server.door()
        port, data = _like_others(root, roster)
        where = address(door.names[0] if door.names else "localhost", door.port)
        try:
            line = _make_site(place, site, where, port, data, server.authority)
            roster.with_site(site, line).write(server.folder)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    return place


def revoke(folder: str | Path, site: str) -> None:
    """Let a site in no longer, from this moment on; what it has contributed so far stays in the model."""
    _, server = _federation(folder)
    with editing(server.folder):
        Roster.read(server.folder).without_site(site).write(server.folder)


def _like_others(root: Path, roster: Roster) -> tuple[int, dict[str, str]]:
    """The port of a new site and where its data is, by the folders of others that are here."""
    others = [SitePlace.read(place) for name in roster.sites if (place := root / "sites" / name).is_dir()]
    if not others:
        return SITE_PORT, {"path": "data.csv"}
    ports = {other.port for other in others}
    # Sites that share a machine have a port each.
    here = others[0].server.rpartition(":")[0].strip("[]") in LOOPBACK
    port = max(ports) + 1 if here or len(ports) > 1 else min(ports)
    return port, {key: value for key, value in others[0].data.items() if isinstance(value, str)}


def _federation(folder: str | Path) -> tuple[Path, ServerPlace]:
    """The root of a federation and its server, from either of their folders."""
    path = Path(folder)
    root = path.resolve().parent if (path / "roster.toml").exists() else path
    return root, ServerPlace(path if (path / "roster.toml").exists() else path / "server")


def _check(root: Path, names: Sequence[str]) -> None:
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageError(f"{root} is there already and is not empty.", "Choose another folder.")
    if not names:
        raise UsageError("A federation needs sites.", "Say how many, or their names.")
    for name in names:
        check_site_name(name)
        if names.count(name) > 1:
            raise UsageError(f"Two sites are called {name}.", "Give each site a name of its own.")


def _tables(experiment: str | Path, settings: Iterable[str]) -> dict[str, Any]:
    """What is trained, as tables that have been checked."""
    from headstart.experiment import Experiment, read_tables, with_settings

    source = Path(experiment)
    tables = Experiment.from_run(source).config if source.is_dir() else read_tables(source)
    tables = _without_none(with_settings(tables, settings))
    _check_experiment(tables)
    if "path" in tables["data"]:
        origin = Path(tables["data"]["path"])
        base = Path() if source.is_dir() else source.parent
        if not origin.is_absolute() and not origin.exists() and (base / origin).exists():
            origin = base / origin
        tables["data"]["path"] = str(origin.resolve())
    return tables


def _check_experiment(tables: Mapping[str, Any]) -> None:
    from headstart.experiment import Settings

    Settings.from_tables(tables)


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """TOML knows no null: a key that is left out is one."""
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def _named_data(section: Mapping[str, Any]) -> dict[str, str]:
    """Where a site's data is expected to be: named as in the experiment, in the site's folder."""
    if "path" in section:
        return {"path": Path(section["path"]).name}
    return {"folder": "data"}


def _make_server(place: ServerPlace, tables: Mapping[str, Any], door: Door, deploy: Mapping[str, Any]) -> None:
    write_whole(place.experiment, tomli_w.dumps(dict(tables)).encode())
    gateway = {**vars(door), "names": list(door.names)}
    write_whole(place.settings, (SERVER_NOTE + tomli_w.dumps({**deploy, "gateway": gateway})).encode())
    place.folder.chmod(0o700)
    make_authority(place.tls / "ca.key", place.authority)
    make_server_certificate(
        place.tls / "ca.key", place.authority, place.tls / "server.key", place.tls / "server.crt", door.names
    )
    write_whole(place.folder / "headstart-server.service", server_unit(place.folder).encode())


def _make_site(place: Path, name: str, server: str, port: int, data: Mapping[str, str], authority: Path) -> str:
    about = {"name": name, "server": server, "port": port, "data": dict(data)}
    write_whole(place / "site.toml", (SITE_NOTE + tomli_w.dumps(about)).encode())
    place.chmod(0o700)
    write_whole(place / "ca.crt", authority.read_bytes())
    write_whole(place / "headstart-site.service", site_unit(place, name).encode())
    line = make_node_key(place / "key")
    write_whole(place / "key.pub", f"{line} {name}\n".encode())
    return line
