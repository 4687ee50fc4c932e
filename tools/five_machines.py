"""Five hospitals and a server as six machines on this one, by the words of docs/deploy.md.

    sudo python -m tools.five_machines [--rounds 10]

Each machine is a network namespace with an address of its own on a bridge; nothing else connects them. Each has a
folder to which only its own part of the federation is copied, as one would by scp. The experiment and the commands are
those of the page. Afterwards the model is compared with that of a simulator which has all tables in one.

It needs Linux, root and iproute2, and is skipped with a word where it has them not.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen

import numpy as np
import pyarrow as pa
import pyarrow.csv

PAGE = Path(__file__).parents[1] / "docs" / "deploy.md"
CHAPTER = "## Five hospitals on five machines"
HOSPITALS = ("north", "south", "east", "west", "center")
HOST, NETWORK = "server.example.org", "10.77.0"
COMMANDS = Path(sys.executable).parent
GATE, BEHIND = 9092, 9093
"""The server's port for sites, and the one that nobody else may reach."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=10, help="rather than as many as the page has")
    options.add_argument("--seconds", type=float, default=900.0, help="the longest that training may take")
    asked = options.parse_args()
    if (why := _missing()) is not None:
        print(f"Skipped: {why}.")
        return
    with tempfile.TemporaryDirectory() as folder, machines(Path(folder)) as names:
        play(Path(folder), names, asked.rounds, asked.seconds)


def _missing() -> str | None:
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "this needs Linux with iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root"
    tried = subprocess.run(["ip", "netns", "add", "hs-try"], capture_output=True, text=True)
    if tried.returncode:
        return f"network namespaces are not allowed here ({tried.stderr.strip()})"
    subprocess.run(["ip", "netns", "del", "hs-try"], check=True)
    return None


# The machines.


@contextmanager
def machines(folder: Path) -> Iterator[dict[str, str]]:
    """The namespaces of all machines by name. They know the server's name, as by a DNS, and share a network."""
    names = {name: f"hs-{name}" for name in ("hub", "server", *HOSPITALS)}
    resolving = Path("/etc/netns")
    before = resolving.exists()
    try:
        _ip("netns", "add", names["hub"])
        _ip("-n", names["hub"], "link", "add", "bridge", "type", "bridge")
        _ip("-n", names["hub"], "link", "set", "bridge", "up")
        for number, (name, space) in enumerate(list(names.items())[1:], start=1):
            _ip("netns", "add", space)
            _ip("link", "add", f"hs{number}", "netns", names["hub"], "type", "veth", "peer", "eth0", "netns", space)
            _ip("-n", names["hub"], "link", "set", f"hs{number}", "master", "bridge", "up")
            _ip("-n", space, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", space, "link", "set", device, "up")
            (resolving / space).mkdir(parents=True)
            (resolving / space / "hosts").write_text(f"127.0.0.1 localhost\n{NETWORK}.1 {HOST}\n")
            (folder / name).mkdir()
        yield names
    finally:
        for space in names.values():
            subprocess.run(["ip", "netns", "del", space], stderr=DEVNULL)
            shutil.rmtree(resolving / space, ignore_errors=True)
        if not before:
            shutil.rmtree(resolving, ignore_errors=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Machine:
    """One of them: commands run there see its own network and begin in its own folder."""

    def __init__(self, folder: Path, space: str):
        self.folder, self._space = folder, space

    def start(self, command: str) -> Popen:
        """A command of the page, whose output goes to a file."""
        print(f"{self.folder.name}$ {command}", flush=True)
        program, *words = command.split()
        path = f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"
        with (self.folder / "said.log").open("ab") as log:
            return Popen(
                ["ip", "netns", "exec", self._space, str(COMMANDS / program), *words], cwd=self.folder, stdout=log,
                stderr=STDOUT, env={**os.environ, "PATH": path, "COLUMNS": "120"},
            )  # fmt: skip

    def run(self, command: str) -> None:
        """A command that has to succeed."""
        if code := self.start(command).wait():
            sys.exit(f"It ended with {code}:\n{self.said()}")

    def reaches(self, port: int) -> bool:
        """Whether the server answers at a port."""
        script = f"import socket; socket.create_connection(('{HOST}', {port}), 3)"
        words = ["ip", "netns", "exec", self._space, sys.executable, "-c", script]
        return subprocess.run(words, stderr=DEVNULL).returncode == 0

    def said(self) -> str:
        return (self.folder / "said.log").read_text(errors="replace")


# The page.


def chapter() -> str:
    _, _, rest = PAGE.read_text().partition(CHAPTER)
    return rest.partition("\n## ")[0]


def blocks(kind: str) -> list[str]:
    """The fenced blocks of the chapter that are of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", chapter(), re.DOTALL | re.MULTILINE)


def commands() -> dict[str, str]:
    """The page's commands by what they do, each as one line."""
    lines = [line for block in blocks("sh") for line in block.replace("\\\n", "").splitlines()]
    lines += re.findall(r"`(headstart deploy status [^`]+)`", chapter())
    told = {}
    for line in lines:
        words = line.split("#")[0].split()
        if words[:2] == ["headstart", "deploy"]:
            told[words[2]] = " ".join(words)
        elif words[:2] == ["headstart", "predict"]:
            told["predict"] = " ".join(words)
    return told


def patients(rows: int, seed: int) -> pa.Table:
    """A hospital's table, of which a part is its own."""
    rng = np.random.default_rng(seed)
    age, stay = rng.integers(20, 95, rows), rng.exponential(4.0, rows).round(1)
    ward = rng.choice(["heart", "lung", "bone"], rows)
    risk = 0.04 * (age - 60) + 0.2 * (stay - 4) + (0.5 * seed - 1) * (ward == "heart") + rng.normal(size=rows)
    label = np.where(risk > 0, "yes", "no")
    return pa.table({"age": age, "stay": stay, "ward": ward, "readmitted": label})


def play(folder: Path, names: dict[str, str], rounds: int, seconds: float) -> None:
    """Do what the page says."""
    told = commands()
    trusted = Machine(folder / "server", names["server"])
    experiment = re.sub(r"^rounds = \d+", f"rounds = {rounds}", blocks("toml")[0], flags=re.MULTILINE)
    (trusted.folder / "hospitals.toml").write_text(experiment)
    trusted.run(told["init"])
    sites = {name: Machine(folder / name, names[name]) for name in HOSPITALS}
    tables = {name: patients(120 + 40 * number, number) for number, name in enumerate(HOSPITALS)}
    for name, site in sites.items():
        shutil.move(trusted.folder / "fed" / "sites" / name, site.folder / "fed" / "sites" / name)
        data = site.folder / "data" / "patients.csv"
        data.parent.mkdir()
        pyarrow.csv.write_csv(tables[name], data)
        place = site.folder / "fed" / "sites" / name / "site.toml"
        place.write_text(place.read_text().replace('path = "patients.csv"', f'path = "{data}"'))
        pyarrow.csv.write_csv(tables[name].drop_columns("readmitted").slice(0, 5), site.folder / "new.csv")
    processes = [trusted.start(told["server"])]
    try:
        processes += [site.start(told["site"].replace("north", name)) for name, site in sites.items()]
        check_ports(sites)
        if processes[0].wait(seconds):
            sys.exit(f"The server has not ended well:\n{trusted.said()}")
        check("every site says that it takes part", all("Taking part" in site.said() for site in sites.values()))
    finally:
        end(processes)
    trusted.run(told["status"])
    for name, site in sites.items():
        site.run(told["adapt"].replace("north", name))
        site.run(told["predict"].replace("north", name))
        predicted = pyarrow.csv.read_csv(site.folder / "predicted.csv")
        check(f"{name} predicts with a model of its own", predicted.num_rows == 5)
    compare(folder, trusted.folder / "fed" / "server" / "run", experiment, tables)


def check_ports(sites: dict[str, Machine]) -> None:
    """What a site reaches of the server: the gateway and nothing behind it."""
    site = sites["north"]
    until = time.monotonic() + 120
    while not site.reaches(GATE) and time.monotonic() < until:
        time.sleep(1.0)
    check("a site reaches the gateway", site.reaches(GATE))
    check("a site does not reach the SuperLink", not site.reaches(BEHIND))


def compare(folder: Path, run: Path, experiment: str, tables: dict[str, pa.Table]) -> None:
    """The federation's model beside the simulator's, which has all rows in one table."""
    import headstart as hs
    from headstart.simulate.files import named_leaves, read_arrays

    pooled = [table.add_column(0, "hospital", [[name] * table.num_rows]) for name, table in sorted(tables.items())]
    pyarrow.csv.write_csv(pa.concat_tables(pooled), folder / "patients.csv")
    settings = [f"data.path={folder / 'patients.csv'}"]
    ((label, simulated),) = hs.Experiment.from_toml(experiment, settings=settings).run().results.items()
    stored, _ = read_arrays(run / label / "model.safetensors")
    apart = max(
        float(np.abs(stored[path] - leaf).max() / np.abs(leaf).max()) for path, leaf in named_leaves(simulated.params)
    )
    check(f"the model is the simulator's to {apart:.1e}", apart < 1e-5)


def check(what: str, good: bool) -> None:
    print(("ok    " if good else "FAILS ") + what, flush=True)
    if not good:
        sys.exit(1)


def end(processes: list[Popen]) -> None:
    """Ask all to stop, as Ctrl-C does."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(60)


if __name__ == "__main__":
    main()
