"""The page on extending the package: every change made in a copy, its files counted, and its lines run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import ROOT, blocks

PAGE = ROOT / "docs" / "extending.md"
LONGEST = 200
MOST_FILES = {
    "A data set": 3,
    "A command": 2,
    "A metric": 1,
    "A server optimiser": 0,
    "A wire part": 2,
    "A plot": 1,
    "A driver of the round": 1,
}
"""An algorithm has a page and a test of its own."""


def sections() -> dict[str, tuple[int, int]]:
    """The first and the last line of each section, by its heading."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("## ")]
    return {
        lines[first - 1].removeprefix("## "): (first, last)
        for first, last in zip(starts, [*(start - 1 for start in starts[1:]), len(lines)], strict=True)
    }


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_every_change_touches_as_few_files_as_its_heading_says() -> None:
    found = {}
    for heading, (first, last) in sections().items():
        title, _, said = heading.partition(": ")
        here = [block for block in blocks(PAGE) if first < block.line <= last]
        touched = {name for block in here for option in ("file", "edit") if (name := block.option(option))}
        assert said == {0: "no file", 1: "1 file"}.get(len(touched), f"{len(touched)} files"), heading
        assert any(block.option("after") for block in here), f"nothing is run after {heading}"
        found[title] = len(touched)
    assert found == MOST_FILES


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which all changes are made."""
    tree = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "headstart", tree / "headstart", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks(PAGE):
        if name := block.option("file"):
            assert not (tree / name).exists(), f"the page creates {name}, which is there already"
            (tree / name).write_text(block.code, encoding="utf-8")
        elif name := block.option("edit"):
            with (tree / name).open("a", encoding="utf-8") as file:
                file.write(f"\n\n{block.code}")
    return tree


def test_the_lines_after_the_changes_run(tree: Path, tmp_path: Path) -> None:
    script = ""
    for block in blocks(PAGE):
        if block.option("after"):
            # Line numbers of the script are those of the page.
            script += "\n" * (block.line - 1 - script.count("\n")) + block.code
    (tmp_path / "extending.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "extending.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"docs/extending.md (same line numbers):\n{done.stderr}"
