"""The page on adding an algorithm, carried out step by step on a copy of the package and its tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.fences import ROOT, blocks

PAGE = ROOT / "docs" / "new_algorithm.md"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which the page's files are written and its edits made."""
    tree = tmp_path_factory.mktemp("newcomer")
    ignore = shutil.ignore_patterns("__pycache__", "docs")
    for name in ("headstart", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tree)
    for block in blocks(PAGE):
        if name := block.option("file"):
            assert not (tree / name).exists(), f"the page creates {name}, which is there already"
            (tree / name).write_text(block.code, encoding="utf-8")
        elif name := block.option("edit"):
            with (tree / name).open("a", encoding="utf-8") as file:
                file.write(f"\n{block.code}")
    return tree


def run(tree: Path, *command: str) -> str:
    """Run Python in the copy, so that its package is the one imported."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_takes_three_files() -> None:
    touched = {name for block in blocks(PAGE) for option in ("file", "edit") if (name := block.option(option))}
    assert len(touched) == 3, touched


def test_it_is_in_the_catalogue(tree: Path) -> None:
    look = "import headstart.algorithms as a; print(a.__file__, a.ALGORITHMS['fedexp'].paper, 'FedExP' in a.__all__)"
    assert run(tree, "-c", look).split(maxsplit=1) == [
        str(tree / "headstart" / "algorithms" / "__init__.py"),
        "Jhunjhunwala et al. 2023 True\n",
    ]


def test_it_passes_the_tests_of_the_page(tree: Path) -> None:
    """Every check of the contract, its own closed form, and its doctest."""
    uses = "from tests.algorithms.contract import CONTRACT"
    checks = [str(f) for f in sorted(tree.glob("tests/**/test_*.py")) if uses in f.read_text(encoding="utf-8")]
    assert checks
    report = tree / "report.xml"
    run(
        tree, "-m", "pytest", "-q", "-k", "fedexp or contract_row", "-m", "not slow", "-p", "no:cacheprovider",
        "-p", "no:xdist",
        f"--junit-xml={report}", *checks, "tests/algorithms/test_fedexp.py", "headstart/algorithms/fedexp.py",
    )  # fmt: skip
    cases = [(case.get("classname", ""), case.get("name", "")) for case in ElementTree.parse(report).iter("testcase")]
    assert sum(file.endswith("test_fedexp") for file, _ in cases) == 4, cases
    assert sum(file == "headstart.algorithms.fedexp" for file, _ in cases) == 1, cases
    assert any(name.startswith("test_every_method_has_a_contract_row") for _, name in cases), cases
    assert sum("[fedexp" in name or "-fedexp" in name for _, name in cases) >= 2, cases


def test_it_trains(tree: Path) -> None:
    """The page's last block."""
    script = ""
    for block in blocks(PAGE):
        if name := block.option("after"):
            script += f"from {name.removesuffix('.py').replace('/', '.')} import *\n{block.code}"
    accuracy = float(run(tree, "-c", script))
    assert accuracy > 0.5
