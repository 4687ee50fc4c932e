"""The page in a browser: quiet, offline, drawn, sortable, searchable, dark, printed, on a phone, and for everybody."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import headstart as hs
from tests.report.page.browser import Browser, browsing
from tests.report.page.made_up import write_run

METHODS = ("per-fedavg", "fedavg", "reptile", "moml", "local-only")
MOST_BYTES = 3_000_000
MOST_SECONDS = 2
"""Bars for 1,000 clients and five methods; a machine that is busy with other tests takes longer."""
BUSY = 4


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    run = write_run(folder / "server" / "run", clients=1000, held_out=200, methods=METHODS, evaluations=11, rounds=400)
    return hs.report.make_report(run).save(folder / "page.html")


@pytest.fixture(scope="module")
def small(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    run = write_run(folder / "server" / "run")
    faults = [{"event": "left_out", "site": f"site {i % 3}", "round": i, "reason": "too late"} for i in range(20)]
    (run.parent / "events.jsonl").write_text("\n".join(map(json.dumps, faults)))
    return hs.report.make_report(run).save(folder / "page.html")


def cells(browser: Browser, table: str, column: int) -> list[str]:
    rows = f'[data-table="{table}"] tbody tr'
    return browser.run(f"return [...document.querySelectorAll('{rows}')].map(row => row.cells[{column}].textContent)")


def test_it_is_quiet_offline_small_and_drawn_in_time(browser, page):
    browser.open(page)
    took = browser.drawn()
    assert browser.complaints() == []
    assert browser.requests() == []
    assert page.stat().st_size < MOST_BYTES
    assert took < BUSY * MOST_SECONDS * 1000
    drawn = "return [...document.querySelectorAll('figure .chart')].map(c => [c.dataset.drawn, "
    drawn += "c.querySelectorAll('svg path, svg line').length || c.querySelectorAll('canvas').length])"
    charts = browser.run(drawn)
    assert len(charts) >= 9
    assert all(done == "yes" and marks for done, marks in charts)


def test_tables_sort_search_and_turn_by_keyboard_and_mouse(browser, page):
    browser.open(page)
    heads = browser.run("return [...document.querySelectorAll('[data-table=\"clients\"] th')].map(h => h.textContent)")
    gain = heads.index("gain")
    button = browser.run(f"return document.querySelectorAll('[data-table=\"clients\"] th button')[{gain}]")
    button.click()
    rising = [float(cell) for cell in cells(browser, "clients", gain)]
    assert rising == sorted(rising)
    button.send_keys("\ue007")  # Enter
    falling = [float(cell) for cell in cells(browser, "clients", gain)]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] > rising[0]
    head = f"return document.querySelectorAll('[data-table=\"clients\"] th')[{gain}].getAttribute('aria-sort')"
    assert browser.run(head) == "descending"
    search = browser.run("return document.querySelector('[data-table=\"clients\"] input')")
    search.send_keys("client-77 MOML")
    assert set(cells(browser, "clients", 2)) == {"moml"}
    assert all("client-77" in name for name in cells(browser, "clients", 0))
    count = browser.run("return document.querySelector('[data-table=\"clients\"] .count').textContent")
    assert re.fullmatch(r"11 found of 5,000 rows", count)
    search.clear()
    search.send_keys(" ")
    before = cells(browser, "clients", 0)
    browser.run('document.querySelector(\'[data-table="clients"] [data-turn="1"]\').click()')
    assert cells(browser, "clients", 0) != before


def test_everything_is_reached_by_tab_in_the_order_of_the_page(browser, small):
    browser.open(small)
    script = """
      const wanted = [...document.querySelectorAll('a[href], button:not(:disabled), input, [tabindex="0"]')];
      const seen = wanted.filter(e => e.getClientRects().length && e.tabIndex >= 0);
      return [seen.length, seen.filter(e => e.tabIndex > 0).length, seen.filter(e => {
        e.focus(); return document.activeElement !== e; }).length]
    """
    reachable, out_of_order, unfocused = browser.run(script)
    assert reachable > 50
    assert out_of_order == 0
    assert unfocused == 0


def test_dark_mode_redraws_and_still_prints_light(browser, small):
    browser.open(small)
    ground = "return getComputedStyle(document.body).backgroundColor"
    assert browser.run(ground) == "rgb(255, 255, 255)"
    browser.run("delete document.documentElement.dataset.drawn; document.getElementById('theme').click()")
    browser.drawn()
    assert browser.run(ground) == "rgb(20, 24, 29)"
    text = "return document.querySelector('figure svg .role-axis-title text').getAttribute('fill')"
    assert browser.run(text) == "#e8ebee"
    figures, until = browser.run("return document.querySelectorAll('figure').length"), time.monotonic() + 20
    while browser.run("return document.querySelectorAll('img.print').length") < figures and time.monotonic() < until:
        time.sleep(0.1)
    browser.media("print")
    shown = (
        "return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('img.print'))"
    )
    shown += ".display, getComputedStyle(document.querySelector('.chart')).display]"
    assert browser.run(shown) == ["rgb(255, 255, 255)", "block", "none"]
    assert browser.printed().startswith(b"%PDF")
    assert browser.complaints() == []


def test_pictures_are_files(browser, small):
    browser.open(small)
    browser.run("""
      window.saved = {}; HTMLAnchorElement.prototype.click = function () { window.saved[this.download] = this.href; };
      document.querySelectorAll('figure')[1].querySelectorAll('[data-picture]').forEach(button => button.click());
    """)
    until = time.monotonic() + 10
    while len(browser.run("return Object.keys(window.saved)")) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    saved = browser.run("return window.saved")
    assert set(saved) == {"curves-new.svg", "curves-new.png"}
    assert saved["curves-new.png"].startswith("data:image/png;base64,iVBOR")
    loading = "const done = arguments[1], image = new Image(); image.onload = () => done(image.naturalWidth);"
    loading += " image.onerror = () => done(0); image.src = arguments[0];"
    for address, width in ((saved["curves-new.svg"], 760), (saved["curves-new.png"], 1520)):
        assert browser.driver.execute_async_script(loading, address) == pytest.approx(width, rel=0.05)
    assert browser.complaints() == []


FAINT = """
  const parts = (colour) => (colour.match(/[0-9.]+/g) || []).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  for (const figure of document.querySelectorAll('figure')) {
    const ground = getComputedStyle(figure).backgroundColor;
    for (const text of figure.querySelectorAll('svg text')) {
      const colour = getComputedStyle(text).fill;
      if (text.textContent && contrast(colour, ground) < 4.5) found.push([figure.id, text.textContent, colour, ground]);
    }
    for (const line of figure.querySelectorAll('svg .mark-line path, svg .mark-symbol path')) {
      const style = getComputedStyle(line), colour = style.stroke === 'none' ? style.fill : style.stroke;
      const seen = colour !== 'none' && parts(colour)[3] !== 0;
      if (seen && contrast(colour, ground) < 3) found.push([figure.id, 'line', colour]);
    }
  }
  return found;
"""
"""Words, lines and points of charts that differ too little from the ground: axe-core does not look into pictures."""


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, False)])
def test_nobody_is_shut_out(browser, small, width, dark):
    browser.open(small, width=width, dark=dark)
    assert browser.violations() == []
    assert browser.run(FAINT) == []
    words = browser.run(
        "return [...document.querySelectorAll('figure [role=img]')].map(i => i.getAttribute('aria-label'))"
    )
    assert len(words) == browser.run("return document.querySelectorAll('figure').length")
    assert all(len(said) > 40 for said in words)


def test_one_client_without_intervals_is_quiet(browser, tmp_path):
    run = write_run(tmp_path / "run", clients=2, held_out=1)
    browser.open(hs.report.make_report(run).save(tmp_path / "page.html"))
    assert browser.complaints() == []
    page = hs.report.comparison_report(hs.compare_runs([run])).save(tmp_path / "compared.html")
    browser.open(page)
    assert browser.complaints() == []


def test_a_phone_scrolls_down_only(browser, small):
    browser.open(small, width=360, height=740)
    assert browser.run("return document.documentElement.scrollWidth") == 360
    wide = "return [...document.querySelectorAll('figure .chart')].map(c => c.firstElementChild.scrollWidth)"
    assert max(browser.run(wide)) <= 360
