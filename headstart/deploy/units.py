"""Units for systemd, which start a server or a site with its machine and again after whatever happens to it."""

import sys
from pathlib import Path

__all__ = ["server_unit", "site_unit"]

UNIT = """\
# Adapt the user and the paths, then:
#   sudo cp {name}.service /etc/systemd/system/ && sudo systemctl enable --now {name}
[Unit]
Description={description}
After=network-online.target time-sync.target
Wants=network-online.target

[Service]
User={user}
ExecStart={command}
Restart=on-failure
RestartSec=10
# What starting again cannot mend: a key that was revoked, training that diverged or was told to stop.
RestartPreventExitStatus=2
# Ends all of its processes, and gives them time to say goodbye.
KillMode=mixed
TimeoutStopSec=30
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={folder}
# What was compiled is kept there too: homes can only be read.
Environment={cache}
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6

[Install]
WantedBy=multi-user.target
"""


def server_unit(folder: Path) -> str:
    """The unit of a server."""
    return _unit("headstart-server", "server", "The server of a headstart federation", folder)


def site_unit(folder: Path, site: str) -> str:
    """The unit of a site."""
    return _unit("headstart-site", "site", f"{site}, a site of a headstart federation", folder)


def _unit(name: str, role: str, description: str, folder: Path) -> str:
    words = [_quoted(Path(sys.executable).parent / "headstart"), "deploy", role, _quoted(folder.resolve())]
    return UNIT.format(
        name=name, description=description, folder=_quoted(folder.resolve()), user="headstart",
        command=" ".join(words).replace("$", "$$"),  # only there do variables have a meaning
        cache=_quoted(f"JAX_COMPILATION_CACHE_DIR={folder.resolve() / 'compiled'}"),
    )  # fmt: skip


def _quoted(word: Path | str) -> str:
    """A path as one word of a unit: some characters mean something else there."""
    text = str(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return text if text.isascii() and not any(letter in text for letter in " '\"\\;") else f'"{text}"'
