"""The page of a run that goes on: behind its token, on this machine, and up to date."""

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.errors import UsageError
from tests.report.page.browser import browsing
from tests.report.page.made_up import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run after 50 of its rounds, without the last evaluation."""
    run = write_run(tmp_path / "run", done=False)
    for path in run.glob("*/clients/*.parquet"):
        table = pq.read_table(path)
        early = table.filter(table["round"].to_numpy() < 50)
        pq.write_table(early, path.with_name("000000040.parquet"))
        path.rename(path.with_name("later"))
    return run


def end(run: Path) -> None:
    for path in run.glob("*/clients/later"):
        table = pq.read_table(path)
        pq.write_table(table.filter(table["round"].to_numpy() == 50), path.with_name("000000050.parquet"))


@pytest.fixture
def watch(run: Path) -> Iterator[hs.report.Watch]:
    watching = hs.report.Watch([run])
    thread = threading.Thread(target=watching.answer)
    thread.start()
    until = time.monotonic() + 30
    while (watching._server is None or not watching._server.started) and time.monotonic() < until:
        time.sleep(0.02)
    yield watching
    watching.close()
    thread.join(30)


def get(address: str, host: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(address, headers={} if host is None else {"Host": host})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_it_shows_the_record_and_follows_it(run, watch):
    status, page = get(watch.address)
    assert status == 200
    assert "40 of 50 rounds are evaluated" in page
    before = watch.version()
    assert get(watch.address.replace("/page", "/version")) == (200, before)
    end(run)
    assert watch.version() != before
    assert "50 of 50 rounds are evaluated" in get(watch.address)[1]


def test_without_the_token_or_from_elsewhere_there_is_nothing(watch):
    front = watch.address.rsplit("/", 2)[0]
    assert front.startswith("http://127.0.0.1:")
    assert get(f"{front}/page")[0] == 404
    assert get(f"{front}/wrong/page")[0] == 404
    assert get(watch.address, host="evil.example")[0] == 400


def test_a_run_that_has_not_begun_is_waited_for(tmp_path):
    watching = hs.report.Watch([tmp_path / "later"])
    assert "not a run directory" in watching.page()
    write_run(tmp_path / "later")
    assert "What each method cost" in watching.page()
    with pytest.raises(UsageError, match="Port"):
        hs.report.Watch([tmp_path], port=int(watching.address.split(":")[2].split("/")[0]))
    watching.close()


def test_a_browser_is_renewed(run, watch):
    with browsing() as browser:
        browser.open(watch.address)
        assert "40 of 50" in browser.run("return document.querySelector('.warning').textContent")
        time.sleep(3.5)  # it has seen this version
        end(run)
        until = time.monotonic() + 40
        shown = "return document.querySelector('.warning').textContent"
        while "50 of 50" not in browser.run(shown) and time.monotonic() < until:
            time.sleep(0.3)
        assert "50 of 50" in browser.run(shown)
        browser.drawn()
        assert browser.complaints() == []
        assert all(address.startswith("http://127.0.0.1:") for address in browser.requests())
