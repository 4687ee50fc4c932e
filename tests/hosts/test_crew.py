"""What hosts tell each other, on lines of one process; real processes are in tests/cli/test_hosts.py."""

import socket
import threading

import pytest

import headstart as hs
from headstart.hosts import cluster_size
from headstart.hosts.crew import Crew
from headstart.hosts.joining import _own_number
from headstart.hosts.lines import FAILED, Line


def crews(number):
    """So many hosts of one process, with lines between them, and what they end with instead of ending the process."""
    ended = []
    all_ = [Crew(index, [f"node{i}" for i in range(number)]) for index in range(number)]
    pairs = [socket.socketpair() for _ in range(1, number)]
    for index, (_, far) in enumerate(pairs, 1):
        all_[index].connect([Line(_tcp(far), lambda line, reason, index=index: ended.append((index, reason)))])
    all_[0].connect([Line(_tcp(near), lambda line, reason: ended.append((0, reason))) for near, _ in pairs])
    return all_, pairs, ended


def _tcp(connection):
    """A socket that takes the options of TCP in silence."""

    class Tcp:
        setsockopt = staticmethod(lambda *_: None)
        sendall, recv = connection.sendall, connection.recv

    return Tcp()


def everywhere(all_, what):
    """What each host finds, all at the same time."""
    found = [None] * len(all_)

    def one(index):
        found[index] = what(all_[index])

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(all_))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def test_hosts_agree_gather_exchange_and_hand_out():
    all_, _, ended = crews(3)
    assert everywhere(all_, lambda crew: crew.agree({"round": crew.index + 7})) == [{"round": 7}] * 3
    assert everywhere(all_, lambda crew: crew.led(lambda: crew.names[crew.index])) == ["node0"] * 3
    assert everywhere(all_, lambda crew: crew.gather(b"%d" % crew.index)) == [[b"0", b"1", b"2"], [], []]
    assert everywhere(all_, lambda crew: crew.exchange(b"x" * crew.index)) == [[b"", b"x", b"xx"]] * 3
    parts = [b"a", b"", b"c" * 3_000_000]
    assert everywhere(all_, lambda crew: crew.hand_out(parts if crew.leads else None)) == parts
    assert everywhere(all_, lambda crew: crew.numbers(crew.index / 2)) == [[0.0, 0.5, 1.0]] * 3
    everywhere(all_, lambda crew: crew.finish())
    assert ended == []


def test_whoever_goes_without_a_word_or_with_one_is_heard_of():
    all_, pairs, ended = crews(3)
    all_[1].fail("the disk is full")
    pairs[1][1].shutdown(socket.SHUT_RDWR)
    for _ in range(100):
        if len(ended) >= 2:
            break
        threading.Event().wait(0.05)
    assert (0, "Host 1 (node1) ended with an error: the disk is full") in ended
    assert (0, "") in ended


def test_the_end_of_a_host_is_named_and_says_how_to_go_on(capsys, monkeypatch):
    class Ended(Exception):
        pass

    def end(code):
        raise Ended(code)

    monkeypatch.setattr("os._exit", end)
    crew, told = Crew(0, ["a", "b", "c"]), []

    class Told:
        def tell(self, text, kind):
            told.append((text, kind))

        def listen(self):
            pass

    lines = [Told(), Told()]
    crew.connect(lines)
    crew.resume = "headstart run --resume runs/mine"
    with pytest.raises(Ended, match="1"):
        crew.ended(lines[1], "")
    said = capsys.readouterr().err
    assert "Host 2 (c) has gone without a word" in said
    assert "headstart run --resume runs/mine" in said
    assert told == [(b"Host 2 (c) has gone without a word; it was killed, or cannot be reached.", FAILED)]


def test_a_machine_is_known_by_its_address_or_says_its_number():
    assert _own_number(["203.0.113.7", "127.0.0.1:9000"]) == 1
    for hosts in (["203.0.113.7"], ["127.0.0.1", "localhost"]):
        with pytest.raises(hs.UsageError, match=r"(?s)is this machine.*--host"):
            _own_number(hosts)


@pytest.mark.parametrize(
    ("environment", "size"),
    [
        ({}, 1),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, 1),  # a batch script that srun has not started
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "n[1-4]"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}, 3),
    ],
)
def test_the_environment_of_a_cluster_says_how_many_processes_there_are(environment, size, monkeypatch):
    for name in ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cluster_size() == size
