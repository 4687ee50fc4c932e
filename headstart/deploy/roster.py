"""The roster: which sites belong to the federation, each with its public key.

A name in the roster is what a site is called everywhere else, and it is found by the key alone: whatever a site says of
itself does not matter. ``roster.toml`` is read again whenever it has changed, so sites come and go while rounds run.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path

import tomli_w
from filelock import FileLock

from headstart.deploy.credentials import public_key
from headstart.deploy.whole import write_whole
from headstart.errors import UsageError, did_you_mean

__all__ = ["FILE", "LiveRoster", "Member", "Roster", "check_site_name", "editing", "read_roster"]

FILE = "roster.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Member:
    """One site of the roster."""

    key: str
    """Its public key, as a line of OpenSSH's."""
    added: str = field(default_factory=lambda: _today())
    revoked: str = ""
    """Since when it is no longer let in; empty while it is."""


@dataclass(frozen=True)
class Roster:
    """All sites by name, with those that were revoked: a key that was revoked cannot come back."""

    sites: Mapping[str, Member]

    @classmethod
    def read(cls, server: Path) -> "Roster":
        """The roster of a server's folder."""
        path = server / FILE
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8")).get("sites", {})
            return cls._checked(path, {name: Member(**values) for name, values in tables.items()})
        except FileNotFoundError as error:
            raise UsageError(
                f"{server} has no {FILE}, so it is no server's folder.", "Make one with: headstart deploy init DIR"
            ) from error
        except (OSError, tomllib.TOMLDecodeError, TypeError, AttributeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not a roster: {error}.", "Mend it: [sites.NAME] with key = '...'.") from error

    @classmethod
    def _checked(cls, path: Path, sites: Mapping[str, Member]) -> "Roster":
        """A roster that may have been edited by hand: a name or a key that two sites could have is refused."""
        owners: dict[bytes, str] = {}
        for name, member in sites.items():
            check_site_name(name)
            line: object = member.key
            revoked: object = member.revoked
            if not isinstance(line, str):
                raise UsageError(f"{path}: the key of {name} is no text.", "Write the line of its key.pub.")
            if not isinstance(revoked, (str, date)):
                raise UsageError(f"{path}: {name} has revoked = {revoked}.", "Write the day, as '2026-01-31'.")
            key = public_key(line, f"{path}: the key of {name}")
            if key in owners:
                raise UsageError(f"{path}: {owners[key]} and {name} have the same key.", "Make a new key for each.")
            owners[key] = name
        return cls(sites)

    def keys(self) -> dict[bytes, str]:
        """Sites that are let in, by their public keys as Flower has them."""
        return {public_key(member.key): name for name, member in self.sites.items() if not member.revoked}

    def with_site(self, name: str, key: str) -> "Roster":
        """The roster with one more site."""
        check_site_name(name)
        if name in self.sites:
            known = self.sites[name]
            since = f" It was revoked on {known.revoked}." if known.revoked else ""
            raise UsageError(f"The roster has a site {name} already.{since}", "Choose another name.")
        wanted = public_key(key)
        for other, member in self.sites.items():
            if public_key(member.key) == wanted:
                state = "revoked" if member.revoked else "in use"
                raise UsageError(f"That key is {state}: it is the key of {other}.", "Make a new key for every site.")
        return replace(self, sites={**self.sites, name: Member(key)})

    def without_site(self, name: str) -> "Roster":
        """The roster with a site revoked; its name and key stay known, so that neither is taken again."""
        if name not in self.sites:
            raise UsageError(f"The roster has no site {name}.", did_you_mean(name, self.sites))
        if self.sites[name].revoked:
            raise UsageError(f"{name} was revoked on {self.sites[name].revoked}.", "There is nothing to do.")
        return replace(self, sites={**self.sites, name: replace(self.sites[name], revoked=_today())})

    def write(self, server: Path) -> None:
        """Put the roster into a server's folder."""
        tables = {
            name: {key: value for key, value in vars(member).items() if value} for name, member in self.sites.items()
        }
        write_whole(server / FILE, tomli_w.dumps({"sites": tables}).encode())


def read_roster(server: Path) -> dict[bytes, str]:
    """The names of the sites that are let in, by public key as Flower's node information shows it."""
    return Roster.read(server).keys()


class LiveRoster:
    """The roster of a server's folder as it is at the moment; while it cannot be read, the last one is in force.

    Someone may be editing it. What is wrong with it is told to ``complain``, once for each state of the file.
    """

    def __init__(self, server: Path, complain: Callable[[str], None] = lambda why: None):
        self._server, self._complain = server, complain
        self._stamp = _stamp(server)
        self.version = 0
        """How often it has changed."""
        self._take(Roster.read(server))

    def look(self) -> "LiveRoster":
        """As it is now."""
        stamp = _stamp(self._server)
        if stamp == self._stamp:
            return self
        self._stamp = stamp
        try:
            self._take(Roster.read(self._server))
        except UsageError as error:
            self._complain(str(error).partition("\n")[0])
        return self

    def _take(self, roster: Roster) -> None:
        self.version += 1
        self.keys = roster.keys()
        """The names of the sites that are let in, by public key."""
        self.revoked = {public_key(member.key): name for name, member in roster.sites.items() if member.revoked}
        """The names of those that are not let in any more."""


def _stamp(server: Path) -> tuple[int, int] | None:
    try:
        state = (server / FILE).stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_ino


def editing(server: Path) -> FileLock:
    """Held while a roster is read, changed and written."""
    return FileLock(server / f".{FILE}.lock")


def check_site_name(name: str) -> None:
    """Refuse what cannot be a folder's name everywhere."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a site's name.", "Use letters, digits, dots, dashes and underscores.")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
