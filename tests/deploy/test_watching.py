"""What the event log says of a federation."""

from io import StringIO

import pytest
from rich.console import Console

from headstart.deploy.events import Events
from headstart.deploy.sole import sole
from headstart.deploy.watching import EventTail, status
from headstart.errors import UsageError
from headstart.report import federation_table

ROUND = {"bytes_up": 600, "bytes_down": 1400, "seconds": 4.5, "clients": 3, "sites": 2}


def test_the_state_of_a_federation_is_in_its_log(tmp_path):
    for file in ("roster.toml", "deploy.toml"):
        (tmp_path / file).touch()
    assert status(tmp_path).state == "not started yet"
    events = Events(tmp_path)
    for site in ("a", "b", "site-10"):
        events.tell("joined", site=site)
    events.tell("started", method="per-fedavg", round=0, rounds=9)
    events.tell("opened", method="per-fedavg", round=0, sites=["a", "b"])
    events.tell("closed", method="per-fedavg", round=0, **ROUND)
    events.tell("closed", method="per-fedavg")  # not as it should be
    events.tell("opened", method="per-fedavg", round=1, sites=["a", "b"])
    events.tell("left_out", method="per-fedavg", round=1, site="b", reason="not finite: [brackets]")
    events.tell("closed", method="per-fedavg", round=1, **ROUND)
    events.tell("refused", reason="no key", caller="10.1.1.1")
    events.tell("lost", site="b", reason="it is gone")
    seen = status(tmp_path)
    assert (seen.round, seen.rounds, seen.bytes_up, seen.bytes_down, seen.refused) == (2, 9, 1200, 2800, 1)
    assert (seen.sites["a"].answers, seen.sites["b"].answers, seen.sites["b"].left_out) == (2, 1, 1)
    assert not seen.sites["b"].there
    assert seen.fault_count == 3
    assert seen.state == "no server is running; start it to go on"
    lock = sole(tmp_path, "server")
    assert status(tmp_path).state == "training"
    lock.release()
    console = Console(width=200, file=StringIO())
    console.print(federation_table(seen))
    text = console.file.getvalue()
    for words in ("round 2 of 9", "1.2 kB up, 2.8 kB down", "not finite: [brackets]", "from 10.1.1.1: no key"):
        assert words in text


def test_a_folder_without_a_server_has_no_state(tmp_path):
    with pytest.raises(UsageError, match="is no server's folder"):
        status(tmp_path)


def test_a_log_is_read_as_it_grows_and_half_lines_wait(tmp_path):
    tail = EventTail(tmp_path)
    assert tail.read() == []
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "joined", "site": "a"}\n{"event": "lo')
    assert [event["event"] for event in tail.read()] == ["joined"]
    with path.open("a") as file:
        file.write('st", "site": "a"}\nnot json\n[]\n')
    assert [event["event"] for event in tail.read()] == ["lost"]
    assert EventTail(tmp_path, at_end=True).read() == []
