import gzip
import hashlib
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headstart.data.sources import Remote
from headstart.data.sources import fetch as module
from headstart.data.sources.fetch import fetch, one_at_a_time
from headstart.errors import UsageError
from tests.data.sources.server import Server

DATA = bytes(range(256)) * 4096  # 1 MiB: several chunks
NAME = "archive.tar.gz"


def remote(*urls, data=DATA):
    return Remote(NAME, tuple(f"{url}{NAME}" for url in urls), f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


def refused():
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/"


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_is_not_asked_for_again(server, tmp_path):
    server.files[NAME] = DATA
    path = fetch(remote(server.url), tmp_path)
    assert path == tmp_path / NAME
    assert path.read_bytes() == DATA
    assert left(tmp_path) == [NAME]
    fetch(remote(server.url), tmp_path)
    assert server.asked == [(NAME, None)]


def test_a_compressed_file_is_kept_as_it_is(server, tmp_path):
    data = gzip.compress(DATA)
    server.files[NAME] = data
    server.headers["Content-Encoding"] = "gzip"  # as some servers say of every .gz
    assert fetch(remote(server.url, data=data), tmp_path).read_bytes() == data


@pytest.mark.parametrize("first", ["missing", "refused", "wrong"])
def test_the_next_mirror_helps_out(server, tmp_path, first):
    server.files[NAME] = DATA
    with Server() as other:
        other.files.update({"wrong": {NAME: b"something else"}}.get(first, {}))
        urls = (refused() if first == "refused" else other.url, server.url)
        assert fetch(remote(*urls), tmp_path).read_bytes() == DATA
    assert left(tmp_path) == [NAME]


def test_a_wrong_file_from_every_mirror_is_refused_and_removed(server, tmp_path):
    server.files[NAME] = b"not what was published"
    with Server() as other:
        other.files[NAME] = DATA[:-1] + b"!"
        with pytest.raises(UsageError) as refusal:
            fetch(remote(server.url, other.url), tmp_path)
    message = str(refusal.value)
    for url, data in ((server.url, server.files[NAME]), (other.url, other.files[NAME])):
        assert f"{url}{NAME}" in message
        assert hashlib.sha256(data).hexdigest() in message
    assert hashlib.sha256(DATA).hexdigest() in message
    assert left(tmp_path) == []


def test_a_cut_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.files[NAME] = DATA
    server.cuts = [300_000, 400_000]
    assert fetch(remote(server.url), tmp_path).read_bytes() == DATA
    assert server.asked == [(NAME, None), (NAME, "bytes=300000-"), (NAME, "bytes=700000-")]


def test_a_server_that_knows_no_ranges_starts_again(tmp_path):
    with Server(ranges=False) as server:
        server.files[NAME] = DATA
        server.cuts = [300_000]
        assert fetch(remote(server.url), tmp_path).read_bytes() == DATA
        assert server.asked == [(NAME, None), (NAME, "bytes=300000-")]


def test_another_mirror_goes_on_where_the_first_one_broke_for_good(server, tmp_path):
    server.files[NAME] = DATA
    with Server() as broken:
        broken.files[NAME] = DATA
        broken.cuts = [1000] * module.ATTEMPTS
        assert fetch(remote(broken.url, server.url), tmp_path).read_bytes() == DATA
    assert server.asked == [(NAME, f"bytes={1000 * module.ATTEMPTS}-")]


def test_what_arrived_is_kept_for_the_next_time(server, tmp_path):
    server.files[NAME] = DATA
    server.cuts = [1000] * module.ATTEMPTS
    arrived = 1000 * module.ATTEMPTS
    with pytest.raises(UsageError, match=rf"(?s){NAME} could not .*cut after {arrived:,} of.*{arrived:,} bytes that"):
        fetch(remote(server.url), tmp_path)
    assert left(tmp_path) == [f"{NAME}.partial"]
    assert fetch(remote(server.url), tmp_path).read_bytes() == DATA
    assert server.asked[-1] == (NAME, f"bytes={arrived}-")
    assert left(tmp_path) == [NAME]


@pytest.mark.parametrize("found", [b"x" * 5000, DATA + b"more", b"x" * len(DATA)], ids=["wrong", "long", "same length"])
def test_a_partial_file_of_something_else_does_no_harm(server, tmp_path, found):
    server.files[NAME] = DATA
    (tmp_path / f"{NAME}.partial").write_bytes(found)
    assert fetch(remote(server.url), tmp_path).read_bytes() == DATA
    assert left(tmp_path) == [NAME]


def test_a_complete_partial_file_is_not_sent_again(server, tmp_path):
    server.files[NAME] = DATA
    (tmp_path / f"{NAME}.partial").write_bytes(DATA)
    assert fetch(remote(server.url), tmp_path).read_bytes() == DATA
    assert server.asked == [(NAME, f"bytes={len(DATA)}-")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device is a thing of Linux")
def test_a_full_disk_is_named(server, tmp_path):
    server.files[NAME] = DATA
    (tmp_path / f"{NAME}.partial").symlink_to("/dev/full")
    with pytest.raises(UsageError, match=rf"(?s){NAME}.partial cannot be written .* No space left .*HEADSTART_CACHE"):
        fetch(remote(server.url), tmp_path)


def test_a_file_that_may_not_grow_keeps_what_it_has(server, tmp_path):
    server.files[NAME] = DATA
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    try:
        with pytest.raises(UsageError, match=r"(?s)cannot be written after .* of 1,048,576 bytes: File too large"):
            fetch(remote(server.url), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / f"{NAME}.partial").stat().st_size == 600_000
    assert fetch(remote(server.url), tmp_path).read_bytes() == DATA
    assert server.asked[-1] == (NAME, "bytes=600000-")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "cache").write_text("in the way")
    with (
        pytest.raises(UsageError, match=r"(?s)cache.* cannot be written.*HEADSTART_CACHE"),
        one_at_a_time(tmp_path / "cache" / "mnist"),
    ):
        pass


HOLDER = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1] + "/.lock"):
    print("held", flush=True)
    sys.stdin.readline()
    open(sys.argv[1] + "/downloaded", "w").close()
"""


def test_another_process_is_waited_for(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        threading.Timer(0.2, lambda: print("go", file=other.stdin, flush=True)).start()
        with one_at_a_time(tmp_path):
            assert (tmp_path / "downloaded").exists()


def test_progress_is_for_terminals_only(server, tmp_path, capfd, monkeypatch):
    server.files[NAME] = DATA
    fetch(remote(server.url), tmp_path / "quiet")
    assert "MB" not in capfd.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")  # what a terminal would be
    fetch(remote(server.url), tmp_path / "loud")
    shown = capfd.readouterr().err
    assert NAME in shown
    assert "MB" in shown
