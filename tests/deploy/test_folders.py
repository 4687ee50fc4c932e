"""The folders of a federation, and data dealt out to sites."""

import shutil
import socket
import stat
import subprocess
import tomllib

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headstart.deploy.dealing import deal_out_files
from headstart.deploy.folders import add, init, revoke
from headstart.deploy.places import ServerPlace, SitePlace
from headstart.deploy.roster import Roster, read_roster
from headstart.deploy.server_watch import ServerWatch
from headstart.deploy.settings import DeploySettings
from headstart.deploy.site_watch import NoServer, SiteWatch, greet
from headstart.deploy.sole import sole
from headstart.deploy.trial import free_ports
from headstart.deploy.units import server_unit, site_unit
from headstart.errors import UsageError

EXPERIMENT = """
seed = 3
[data]
name = "own"
path = "people.csv"
client = "person"
label = "tall"
[model]
name = "mlp"
hidden = [4]
[algorithm]
name = "per-fedavg"
[train]
rounds = 2
cohort = 1.0
"""


@pytest.fixture
def experiment(tmp_path):
    rows = [f"{person},{i},{['no', 'yes'][i % 2]}" for i in range(12) for person in ("bo", "al", "cy", "di")]
    (tmp_path / "people.csv").write_text("\n".join(["person,height,tall", *rows]))
    path = tmp_path / "x.toml"
    path.write_text(EXPERIMENT)
    return path


def test_init_makes_folders_that_only_their_owners_can_read(tmp_path, experiment):
    made = init(
        tmp_path / "fed", experiment, ["north", "south"], host="server.example.org", settings=["train.rounds=7"]
    )
    server = ServerPlace(made.server)
    assert tomllib.loads(server.experiment.read_text())["train"]["rounds"] == 7
    assert server.door().names == ("server.example.org",)
    assert set(read_roster(made.server).values()) == {"north", "south"}
    site = SitePlace.read(made.sites["south"])
    assert (site.name, site.server, site.data) == ("south", "server.example.org:9092", {"path": "people.csv"})
    assert site.authority.read_bytes() == server.authority.read_bytes()
    for secret in (site.key, server.tls / "ca.key", server.tls / "server.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    for folder in (made.server, *made.sites.values()):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    unit = (made.sites["south"] / "headstart-site.service").read_text()
    assert f"deploy site {made.sites['south'].resolve()}" in unit


@pytest.mark.parametrize(
    ("host", "interface", "where"),
    [
        ("localhost", "127.0.0.1", "localhost:9092"),
        ("fed.example.org", "0.0.0.0", "fed.example.org:9092"),
        ("::1", "::1", "[::1]:9092"),
        ("fd00::7", "::", "[fd00::7]:9092"),
    ],
)
def test_only_a_server_that_others_reach_listens_to_them(tmp_path, experiment, host, interface, where):
    made = init(tmp_path / "fed", experiment, 2, host=host)
    assert ServerPlace(made.server).door().host == interface
    new = add(tmp_path / "fed", "new")
    places = [SitePlace.read(folder) for folder in (*made.sites.values(), new)]
    assert {place.server for place in places} == {where}
    # Sites of this machine have a port each.
    assert [place.port for place in places] == ([9094] * 3 if interface in ("0.0.0.0", "::") else [9094, 9095, 9096])


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("site", "name = 'a'\nserver = 'h'", "server = 'h' is no address"),
        ("site", "name = 'a'\nserver = 'h:x'", "server = 'h:x' is no address"),
        ("site", "name = 'a'\nserver = 'https://h:1'", "neither a host's name nor an address"),
        ("site", "name = '../a'\nserver = 'h:1'", "cannot be a site's name"),
        ("site", "name = 'a'\nserver = 'h:1'\nport = '9094'", "port = '9094' is no port"),
        ("site", "name = 'a'\nserver = 'h:1'\ndata = 'x.csv'", "is no section"),
        ("deploy", "[gateway]\nport = 99999", "port = 99999 is no port"),
        ("deploy", "[gateway]\nport = 9093", "port and superlink_port are both 9093"),
        ("deploy", "[gateway]\nnames = 'h'", "names = 'h' is no list"),
        ("deploy", "[gateway]\nhots = 'h'", r"\[gateway\] has hots"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file_and_the_key(tmp_path, file, content, problem):
    (tmp_path / f"{file}.toml").write_text(content)
    with pytest.raises(UsageError, match=problem):
        SitePlace.read(tmp_path) if file == "site" else ServerPlace(tmp_path).door()


def test_a_section_that_deploy_toml_cannot_have_is_refused(tmp_path):
    (tmp_path / "deploy.toml").write_text("quorum = 0.7\n[gateway]\nport = 1")
    assert DeploySettings.read(tmp_path).quorum == 0.7
    (tmp_path / "deploy.toml").write_text("[deploy]\nquorum = 0.7")
    with pytest.raises(UsageError, match=r"has a section \[deploy\]"):
        DeploySettings.read(tmp_path)


def test_a_site_waits_for_its_clock_to_be_set_and_gives_up_where_it_is_not_known(tmp_path, experiment, monkeypatch):
    place = SitePlace.read(init(tmp_path / "fed", experiment, ["north"]).sites["north"])
    for seen, raised in (
        ("a clock that differs by 600 seconds", NoServer),
        ("a key that was revoked", UsageError),
    ):
        answer = httpx.Response(401, json={"detail": seen})
        monkeypatch.setattr(httpx, "post", lambda *_, answer=answer, **__: answer)
        with pytest.raises(raised, match=f"sees {seen}"):
            greet(place)


def test_a_folder_has_one_server_and_a_site_one_process(tmp_path, experiment, monkeypatch):
    """A second one would end the first one's training, or sign its node off."""
    made = init(tmp_path / "fed", experiment, ["north"], first_site_port=free_ports(1)[0])
    monkeypatch.setattr("headstart.deploy.sockets.ENDING_SECONDS", 0.3)
    busy = socket.create_server(("127.0.0.1", SitePlace.read(made.sites["north"]).port))
    with busy, pytest.raises(UsageError, match=f"Port {busy.getsockname()[1]} of 127.0.0.1 cannot be used"):
        SiteWatch(made.sites["north"])
    watching = SiteWatch(made.sites["north"])
    with pytest.raises(UsageError, match="north has a site already, in another process"):
        SiteWatch(made.sites["north"])
    watching.stop()
    SiteWatch(made.sites["north"]).stop()
    lock = sole(made.server, "server")
    with pytest.raises(UsageError, match="server has a server already"):
        ServerWatch(made.server)
    lock.release()


def test_a_trial_deals_whole_clients_out_in_their_order(tmp_path, experiment):
    made = init(tmp_path / "fed", experiment, 3, split=True, first_site_port=1)
    clients, rows = {}, 0
    for name, folder in made.sites.items():
        table = pq.read_table(folder / SitePlace.read(folder).data["path"])
        clients[name] = sorted(set(table["person"].to_pylist()))
        rows += len(table)
        for person in clients[name]:
            of_person = table.filter(pa.compute.equal(table["person"], person))
            assert of_person["height"].to_pylist() == list(range(12))
    assert clients == {"site-1": ["al", "di"], "site-2": ["bo"], "site-3": ["cy"]}
    assert rows == 48
    assert len({SitePlace.read(folder).port for folder in made.sites.values()}) == 3


def test_folders_of_clients_and_trees_of_images_are_dealt_out_too(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / "tables").mkdir(exist_ok=True)
        (tmp_path / "tables" / f"{name}.csv").write_text(f"x,y\n{ord(name)},1\n")
        (tmp_path / "images" / name / "cat").mkdir(parents=True)
        (tmp_path / "images" / name / "cat" / "1.png").write_bytes(name.encode())
    for form, inside in (("tables", "b.csv"), ("images", "b/cat/1.png")):
        sites = {name: tmp_path / f"sites of {form}" / name for name in ("one", "two")}
        placed = deal_out_files({"name": "own", "path": str(tmp_path / form)}, sites)
        assert placed == {"one": {"path": "data"}, "two": {"path": "data"}}
        assert (sites["two"] / "data" / inside).is_file()
        assert not (sites["one"] / "data" / inside).exists()


def test_har_is_dealt_out_by_person(tmp_path):
    person = np.repeat([1, 2, 3], 4)
    np.savez(
        tmp_path / "har.npz", x=np.arange(12.0).reshape(12, 1), y=person % 2, subject=person, exp=person,
        segment=person, activities=np.array(["sit", "run"]),
    )  # fmt: skip
    sites = {name: tmp_path / name for name in ("one", "two")}
    assert deal_out_files({"name": "har", "folder": str(tmp_path)}, sites)["one"] == {"folder": "data"}
    with np.load(sites["one"] / "data" / "har.npz") as part:
        assert part["subject"].tolist() == [1] * 4 + [3] * 4
        assert part["x"].ravel().tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("change", "sites", "problem"),
    [
        ({}, 9, "too few for 9 sites"),
        ({"path": "nowhere.csv"}, 2, "There is no data at"),
        ({"client": "who"}, 2, "no column 'who'"),
        ({"name": "mnist-small"}, 2, "no files that sites could have"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused(tmp_path, experiment, change, sites, problem):
    section = {**tomllib.loads(EXPERIMENT)["data"], "path": str(tmp_path / "people.csv"), **change}
    with pytest.raises(UsageError, match=problem):
        deal_out_files(section, {f"s{i}": tmp_path / f"s{i}" for i in range(sites)})


def test_a_mistake_leaves_nothing_behind(tmp_path, experiment):
    for sites, settings, problem in (
        (9, [], "too few"),
        (2, ["algorithm.local_stepz=3"], "local_steps"),
        (["a", "a"], [], "Two sites"),
        (["a/b"], [], "cannot be a site's name"),
        (2, [], "neither a host's name nor an address"),
    ):
        host = "https://h" if "host" in problem else "localhost"
        with pytest.raises(UsageError, match=problem):
            init(tmp_path / "fed", experiment, sites, settings=settings, split=True, host=host)
        assert not (tmp_path / "fed").exists()
    init(tmp_path / "fed", experiment, 2)
    with pytest.raises(UsageError, match="is there already"):
        init(tmp_path / "fed", experiment, 2)
    assert len(Roster.read(tmp_path / "fed" / "server").sites) == 2


def test_sites_are_added_and_revoked_by_one_command_each(tmp_path, experiment):
    made = init(tmp_path / "fed", experiment, ["north"], host="h")
    place = add(tmp_path / "fed", "west")
    assert place is not None
    assert SitePlace.read(place).server == "h:9092"
    (tmp_path / "east.pub").write_text((place / "key.pub").read_text())
    with pytest.raises(UsageError, match="it is the key of west"):
        add(made.server, "east", tmp_path / "east.pub")
    with pytest.raises(UsageError, match="west"):
        add(made.server, "west")
    revoke(made.server, "north")
    assert list(read_roster(made.server).values()) == ["west"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", ["plain", "with a space", "100 % $HOME's"])
def test_systemd_understands_the_units_whatever_the_folder_is_called(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    for number, unit in enumerate([server_unit(folder), site_unit(folder, "north")]):
        file = tmp_path / f"unit-{number}.service"
        file.write_text(unit.replace("User=headstart", "User=root"))
        done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
