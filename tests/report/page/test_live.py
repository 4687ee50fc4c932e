"""The page of a run that goes on: behind its token, on this machine, and up to date."""

import json
import os
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.errors import UsageError
from headstart.report.page import live
from headstart.report.page.ongoing import ongoing_document
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
def watch(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hs.report.Watch]:
    monkeypatch.setattr(live, "SHARE", 1.0)  # every change is followed at once
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
        with urllib.request.urlopen(request, timeout=60) as answer:
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


def test_a_run_that_has_not_begun_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "SHARE", 1.0)
    watching = hs.report.Watch([tmp_path / "later"])
    assert "not a run directory" in watching.page()
    write_run(tmp_path / "later")
    assert "What each method cost" in watching.page()
    with pytest.raises(UsageError, match="Port"):
        hs.report.Watch([tmp_path], port=int(watching.address.split(":")[2].split("/")[0]))
    watching.close()


def test_a_page_that_took_long_to_make_stays_for_long(run):
    watching = hs.report.Watch([run])
    watching.page()
    before = watching.version()
    end(run)
    assert watching.version() == before
    assert "40 of 50" in watching.page()
    watching._resting_until = 0.0
    assert watching.version() != before
    assert "50 of 50" in watching.page()
    watching.close()


def test_what_the_first_page_takes_once_does_not_keep_the_next_ones_back(run, monkeypatch):
    took = iter([0.0, 9.0])
    monkeypatch.setattr(live.time, "thread_time", lambda: next(took, 9.0))
    watching = hs.report.Watch([run])
    watching.page()
    assert watching._resting_until < live.time.monotonic() + 10
    watching.close()


def test_it_says_how_far_each_method_is(run):
    document = ongoing_document([run])
    (table,) = (table for table in document.tables() if table.name == "progress")
    names = [column.title for column in table.columns]
    first = dict(zip(names, table.rows[0], strict=True))
    assert (first["round"], first["of"]) == ("50", "50")
    assert first["rounds/s"] == "100"  # the made-up rounds take a hundredth of a second
    assert first["time left"] == "0 s"
    history = pq.read_table(run / "fedavg" / "rounds" / "000000050.parquet")
    pq.write_table(history.slice(0, 10), run / "fedavg" / "rounds" / "000000050.parquet")
    (table,) = (table for table in ongoing_document([run]).tables() if table.name == "progress")
    second = dict(zip(names, table.rows[1], strict=True))
    assert (second["round"], second["time left"]) == ("10", "0 s")
    assert float(second["training loss"]) == pytest.approx(history["loss"][9].as_py(), rel=1e-3)


def test_a_finished_run_has_no_progress(tmp_path):
    assert ongoing_document([write_run(tmp_path / "run")]).sections[0].name == "curves"


def test_a_search_shows_what_it_has_found(tmp_path):
    run = tmp_path / "run"
    config = {
        "seed": 0, "data": {"name": "sine"}, "algorithm": {"name": "per-fedavg"}, "baselines": {"fedavg": {}},
        "train": {"rounds": 5}, "tune": {"over": {}},
    }  # fmt: skip
    write_run(run, config=config)
    for folder in ("per-fedavg", "fedavg"):
        shutil.rmtree(run / folder)
    (run / "tuning").mkdir()
    found = {"settings": {"inner_lr": 0.125}, "steps": 3, "score": 0.75}
    (run / "tuning" / "per-fedavg.json").write_text(json.dumps(found))
    (table,) = ongoing_document([run]).tables()
    assert table.rows == [["per-fedavg", "inner_lr = 0.125", "3", "0.75"], ["fedavg", "not found yet", "none", "none"]]


def test_a_deployment_is_found_by_its_folder(tmp_path):
    write_run(tmp_path / "trial" / "server" / "run")
    for folder in ("trial", "trial/server", "trial/server/run"):
        assert "per-fedavg" in ongoing_document([tmp_path / folder]).title


def test_a_sweep_is_shown_from_its_checkpoints(tmp_path):
    """What the page says of a sweep that was stopped is what the sweep itself says."""

    class AfterThree(hs.Callback):
        def on_chunk(self, progress):
            return "enough" if progress.round >= 3 else None

    grid = [hs.fedavg(batch_size=4, local_steps=1, outer_lr=lr) for lr in (0.001, 0.1)]
    evaluation = hs.Evaluation(steps=(0, 1), every=3)
    done = hs.sweep(
        grid, hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(4,))), hs.data.sine(clients=4, held_out=2),
        seeds=[0, 1], rounds=9, evaluation=evaluation, checkpoint=tmp_path / "sweep", checkpoint_seconds=0.0,
        callbacks=[AfterThree()],
    )  # fmt: skip
    document = ongoing_document([tmp_path / "sweep"])
    (table,) = document.tables()
    means = done.evaluated.mean("rmse", 1, "new")[-1].reshape(2, 2).mean(axis=1)
    order = means.argsort()
    assert [row[0] for row in table.rows] == [f"algorithm {i}" for i in order]
    assert [float(row[1]) for row in table.rows] == pytest.approx(means[order], rel=1e-2)
    assert document.figures()[0].data["rows"]["round"] == [0, 3, 0, 3]


def test_the_page_of_a_run_is_a_process_that_ends_with_it(run):
    with hs.report.Watch([run]).aside() as address:
        until, shown = time.monotonic() + 60, ""
        while "40 of 50" not in shown and time.monotonic() < until:
            try:
                shown = get(address)[1]
            except urllib.error.URLError:
                time.sleep(0.1)
        assert "40 of 50" in shown
    with pytest.raises(urllib.error.URLError):
        get(address)


def process_of_the_page() -> psutil.Process:
    (page,) = (child for child in psutil.Process().children() if any("serve_aside" in word for word in child.cmdline()))
    return page


def test_a_run_whose_page_was_killed_ends_all_the_same(run):
    with hs.report.Watch([run]).aside():
        page = process_of_the_page()
        page.kill()


def test_the_page_of_a_run_gives_way_to_it_and_leaves_ctrl_c_to_it(run):
    """Linux weighs priorities within a session only, so that one of its own would have none."""
    with hs.report.Watch([run]).aside():
        page = process_of_the_page()
        gentler, until = min(os.nice(0) + 10, 19), time.monotonic() + 30
        while page.nice() != gentler and time.monotonic() < until:
            time.sleep(0.01)
        assert page.nice() == gentler
        assert os.getsid(page.pid) == os.getsid(0)
        assert os.getpgid(page.pid) == page.pid


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
