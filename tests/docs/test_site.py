"""The site: built without a warning, opened as files, searched without a network."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.fences import ROOT
from tests.report.page.browser import Browser, browsing

pytest.importorskip("mkdocs", reason="the group docs is not installed")
pytest.importorskip("material", reason="the group docs is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


def test_every_page_of_the_documents_is_in_it(site):
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").exists()
    assert "compare" in (site / "api.html").read_text(encoding="utf-8")


def test_search_works_on_files_and_asks_nobody(site, browser):
    browser.get(site / "index.html")
    browser.run("document.querySelector('label[for=__search]').click()")
    browser.run("return document.querySelector('input.md-search__input')").send_keys("Holm")
    found, until = [], time.monotonic() + 60
    while not found and time.monotonic() < until:
        time.sleep(0.2)
        found = browser.run("return [...document.querySelectorAll('.md-search-result__item a')].map(a => a.href)")
    assert any("reports.html" in address for address in found)
    assert browser.complaints() == []
    assert [address for address in browser.requests() if not address.startswith("file:")] == []
