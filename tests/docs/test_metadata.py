"""The files that speak about the package agree with it."""

import hashlib
import re
from pathlib import Path

import headstart
from tests.docs.fences import DOCUMENTS, ROOT

LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def test_one_version() -> None:
    version = headstart.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_licence_is_the_standard_text() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert hashlib.sha256(text).hexdigest() == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_links_lead_somewhere() -> None:
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in LINK.findall(document.read_text(encoding="utf-8")):
            assert (document.parent / Path(target)).exists(), f"{document.relative_to(ROOT)} links to {target}"
