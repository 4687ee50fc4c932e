"""A headless Chromium that keeps account of what a page asks for and complains about."""

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fences import ROOT

AXE = ROOT / ".cache" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
INSIDE = ("data:", "blob:", "file:")


def found(name: str, *names: str) -> str:
    """The path of a program, or the test is skipped."""
    path = os.environ.get(f"HEADSTART_{name.upper()}") or next(filter(None, map(shutil.which, (name, *names))), None)
    if path is None:
        pytest.skip(f"{name} is not installed: `make browser` does that, where it can")
    return path


class Browser:
    """One page at a time."""

    def __init__(self, driver: Any):
        self.driver = driver
        self.run: Callable[..., Any] = driver.execute_script

    def get(self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page."""
        self.resize(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": scheme})
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page if isinstance(page, str) else page.resolve().as_uri())

    def open(self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a report and wait until it has drawn its figures."""
        self.get(page, width=width, height=height, dark=dark)
        self.drawn()

    def drawn(self) -> int:
        """Wait for all figures; the milliseconds that they took."""
        waiting = "const done = arguments[0]; const look = () => document.documentElement.dataset.drawn"
        waiting += " ? done(Number(document.documentElement.dataset.drawn)) : setTimeout(look, 20); look();"
        return int(self.driver.execute_async_script(waiting))

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def media(self, media: str) -> None:
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})

    def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot of the whole page."""
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": whole, "format": "png"})
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        """The page as PDF."""
        self.media("")
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses that the page has asked for, but for itself and what is inside it."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [address for address in asked if not address.startswith(INSIDE)]

    def violations(self) -> list[str]:
        """What axe-core finds."""
        if not AXE.exists():
            pytest.skip("axe-core is not installed: `make browser` does that, where it can")
        self.run(AXE.read_text(encoding="utf-8"))
        rules = {
            "runOnly": {
                "type": "tag",
                "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
            }
        }
        script = "const done = arguments[1]; axe.run(document, arguments[0]).then(found => done(found.violations));"
        found_ = self.driver.execute_async_script(script, rules)
        return [f"{v['id']}: {node['html'][:200]} {node['failureSummary']}" for v in found_ for node in v["nodes"]]


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser, if there is one here."""
    chromium, driver = found("chromium", "chromium-browser", "google-chrome"), found("chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        started.set_script_timeout(60)
        yield Browser(started)
    finally:
        started.quit()
