"""`headstart deploy`: a federation across real machines, or a trial of one on this machine."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart.cli.options import Debug, Settings
from headstart.errors import UsageError

if TYPE_CHECKING:
    from headstart.deploy import Outcome, Seen

__all__ = ["deploy_app"]

deploy_app = typer.Typer(
    help="Train across sites that never share their data: on real machines, or as a trial on this one.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the federation, or of its server.")]
SiteFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The site's folder.")]
SiteName = Annotated[str, typer.Argument(metavar="SITE", help="The site's name on the roster.")]


@deploy_app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, for all that is made.")],
    experiment: Annotated[
        Path, typer.Option(help="What is trained: a TOML file as for `headstart run`, or the folder of a run.")
    ],
    sites: Annotated[int | None, typer.Option(min=1, help="How many sites there are.")] = None,
    site: Annotated[list[str] | None, typer.Option(help="A site's name; once for each, instead of --sites.")] = None,
    host: Annotated[str, typer.Option(help="The name or address under which sites reach the server.")] = "localhost",
    port: Annotated[int, typer.Option(help="The server's port; the one after it is used on the server itself.")] = 9092,
    split: Annotated[
        bool, typer.Option("--split", help="Deal the experiment's data out to the sites' folders.")
    ] = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Make ready folders for a server and its sites: certificates, keys, a roster, settings, systemd units.

    `headstart deploy init fed --experiment my.toml --site north --site south --host server.example.org`

    Then bring `fed/server` to the server and each folder of `fed/sites` to its site, by a way that nobody reads: a
    site's folder holds its private key. Put each site's data where its `site.toml` says.

    From Python: `hs.deploy.init("fed", "my.toml", ["north", "south"], host="server.example.org")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape
    from headstart.deploy.places import address

    names: Any = site or sites
    if not names or (site and sites):
        raise hs.UsageError("How many sites are there?", "Say --sites N, or --site NAME for each of them.")
    made = hs.deploy.init(folder, experiment, names, host=host, port=port, split=split, settings=settings or [])
    console.print(f"Server: {escape(str(made.server))}, reached at {escape(address(host, port))}")
    for name, place in made.sites.items():
        console.print(f"{escape(name)}: {escape(str(place))}")


@deploy_app.command()
def up(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the trial, or one to go on with.")],
    experiment: Annotated[
        Path | None, typer.Option(help="What is trained: a TOML file as for `headstart run`, or the folder of a run.")
    ] = None,
    sites: Annotated[int | None, typer.Option(min=1, help="How many sites there are.")] = None,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Try a whole federation on this machine: server, gateway and sites as real processes, with keys and TLS.

    `headstart deploy up trial --experiment my.toml --sites 5`

    The data of the experiment is dealt out to the sites. A table shows rounds, sites, faults and bytes. All processes
    are stopped at the end; the same command on the same folder goes on after Ctrl-C or a crash.

    From Python: `hs.deploy.up("trial", "my.toml", 5)`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape
    from headstart.report import comparison_table

    with _stopping(), _table() as watch:
        trial = hs.deploy.up(folder, experiment, sites, settings=settings or [], watch=watch)
    _conclude(trial.outcome, f"headstart deploy up {folder}")
    console.print(comparison_table(hs.load_run(trial.run)))
    console.print(f"Record: {escape(str(trial.run))}")


@deploy_app.command()
def server(
    folder: Folder,
    debug: Debug = False,
) -> None:
    """Serve a federation: the gateway, Flower's SuperLink behind it, and training, which goes on after any crash.

    `headstart deploy server fed/server`

    It ends when training has ended. Started again after Ctrl-C or a power cut, it goes on where it was. For a real
    machine, `headstart-server.service` in the same folder is a unit for systemd.

    From Python: `hs.deploy.run_server("fed/server")`.
    """
    import headstart as hs
    from headstart.deploy.watching import EventTail, Seen

    place = folder if (folder / "roster.toml").exists() else folder / "server"
    with _stopping(), _table() as show:
        events, seen = EventTail(place), Seen()

        def watch() -> None:
            for event in events.read():
                seen.take(event)
            show(seen)

        outcome = hs.deploy.run_server(place, watch)
    _conclude(outcome, f"headstart deploy server {folder}")


@deploy_app.command()
def site(
    folder: SiteFolder,
    debug: Debug = False,
) -> None:
    """Take part in a federation, with the data of this machine, until Ctrl-C.

    `headstart deploy site fed/sites/north`

    The folder holds the site's key, the server's authority, and `site.toml`, which says where the data is. For a real
    machine, `headstart-site.service` in the same folder is a unit for systemd.

    From Python: `hs.deploy.run_site("fed/sites/north")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape
    from headstart.deploy.watching import EventTail

    told: list[str] = []
    said: list[str] = []
    events = EventTail(folder, at_end=True)

    def watch(watching: Any) -> None:
        for event in events.read():
            if event.get("event") == "process_ended" and (child := watching.failing()) is not None:
                console.print(f"The {child.name} ends again and again; see {escape(str(child.log))}.")
            if event.get("event") == "trouble" and said != [event.get("detail")]:
                said[:] = [event["detail"]]
                console.print(f"The server could not be answered: {escape(str(event['detail']))}")
        where = watching.place.server
        now = f"Taking part, at {where}." if watching.connected else watching.missing and f"Waiting: {watching.missing}"
        if now and told != [now]:
            told[:] = [now]
            console.print(escape(now))

    with _stopping():
        hs.deploy.run_site(folder, watch)


@deploy_app.command()
def status(
    folder: Folder,
    debug: Debug = False,
) -> None:
    """Show where training is, which sites are there, and what went wrong.

    `headstart deploy status fed`

    From Python: `hs.deploy.status("fed")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console
    from headstart.report import federation_table

    console.print(federation_table(hs.deploy.status(folder)))


@deploy_app.command()
def add(
    folder: Folder,
    site: SiteName,
    public_key: Annotated[
        Path | None,
        typer.Option(help="The public key that the site has made itself, with `ssh-keygen -t ecdsa -b 384`."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Add a site to the roster, while the federation runs or before.

    `headstart deploy add fed west` makes a folder with a key for it.

    `headstart deploy add fed west --public-key west.pub` takes the key that the site has made for itself.

    From Python: `hs.deploy.add("fed", "west")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape

    place = hs.deploy.add(folder, site, public_key)
    console.print(f"{escape(site)} is on the roster." + ("" if place is None else f" Its folder: {escape(str(place))}"))


@deploy_app.command()
def revoke(folder: Folder, site: SiteName, debug: Debug = False) -> None:
    """Let a site in no longer, from this moment on. Its key and its name cannot come back.

    `headstart deploy revoke fed west`

    From Python: `hs.deploy.revoke("fed", "west")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape

    hs.deploy.revoke(folder, site)
    console.print(f"{escape(site)} is let in no longer.")


@deploy_app.command()
def adapt(
    folder: SiteFolder,
    method: Annotated[str | None, typer.Option(help="Whose shared model, where several were trained.")] = None,
    model: Annotated[Path | None, typer.Option(help="A model file, rather than the one that the server sent.")] = None,
    client: Annotated[list[str] | None, typer.Option(help="A client of this site; left out, all of them.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="So many steps, rather than as many as serve best.")] = None,
    lr: Annotated[float | None, typer.Option(help="The size of a step, rather than the one that serves best.")] = None,
    debug: Debug = False,
) -> None:
    """Make the shared model each client's own, on this machine and from its own rows; into `DIR/models`.

    `headstart deploy adapt fed/sites/north`

    From Python: `hs.deploy.adapt("fed/sites/north")`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape

    with console.status("Adapting"):
        own = hs.deploy.adapt(folder, method=method, model=model, clients=client, steps=steps, lr=lr)
    for name, predictor in own.items():
        assert predictor.adaptation is not None
        console.print(f"{escape(name)}: {escape(predictor.adaptation.words)}")
    console.print(f"Models: {escape(str(folder / 'models'))}")


def _conclude(outcome: "Outcome", again: str) -> None:
    """A server that has stopped waits for somebody to do something: systemd does not start it again by itself."""
    if not outcome.finished:
        raise UsageError(f"Training was stopped: {outcome.reason}", f"All is kept. Go on with: {again}")


@contextmanager
def _stopping() -> Iterator[None]:
    """Ctrl-C, or being told to end, stops everything that was started; doing so is not interrupted."""
    from headstart.cli.terminal import console

    def stop(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        console.print("Stopping.")
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _table() -> Iterator[Callable[["Seen"], None]]:
    """The live table of a federation; where there is no terminal, one line per round and fault."""
    from rich.live import Live

    from headstart.cli.terminal import console
    from headstart.report import federation_table

    if not console.is_terminal:
        yield _Lines()
        return
    with Live(console=console, auto_refresh=False) as live:
        shown: list[Any] = []

        def watch(seen: "Seen") -> None:
            now = repr(seen)
            if shown != [now]:
                shown[:] = [now]
                live.update(federation_table(seen), refresh=True)

        yield watch


class _Lines:
    """Says what is new."""

    def __init__(self) -> None:
        self._round, self._state, self._faults = ("", 0), "", 0

    def __call__(self, seen: "Seen") -> None:
        from headstart.cli.terminal import console, escape

        new = seen.fault_count - self._faults
        for fault in seen.faults[-new:] if new else ():
            console.print(escape(fault))
        if seen.state != self._state:
            console.print(escape(seen.state))
        if seen.round and (seen.method, seen.round) != self._round:
            console.print(
                f"{escape(seen.method)}: round {seen.round} of {seen.rounds}, {seen.clients} clients, "
                f"{seen.seconds:.1f} s"
            )
        self._round, self._state, self._faults = (seen.method, seen.round), seen.state, seen.fault_count
