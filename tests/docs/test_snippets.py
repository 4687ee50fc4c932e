"""Every Python block of the documents runs.

The blocks of one document run in order, as one script in a process and a folder of their own. Left out are blocks
marked ``no-run``, and those of the form ``file=``, ``edit=`` or ``after=``, which ``test_new_algorithm`` and
``test_extending`` carry out.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import DOCUMENTS, ROOT, Block, blocks

ELSEWHERE = ("file", "edit", "after")


def runnable(document: Path) -> list[Block]:
    return [
        block
        for block in blocks(document)
        if block.language == "python" and "no-run" not in block.words and not any(map(block.option, ELSEWHERE))
    ]


WITH_CODE = [document for document in DOCUMENTS if document.exists() and runnable(document)]


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda document: str(document.relative_to(ROOT)))
def test_blocks_run(document: Path, tmp_path: Path) -> None:
    script = ""
    for block in runnable(document):
        # Line numbers of the script are those of the document.
        script += "\n" * (block.line - 1 - script.count("\n")) + block.code
    name = tmp_path / f"{document.stem}.py"
    name.write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{document.relative_to(ROOT)} (same line numbers):\n{done.stderr}"


def test_every_fence_has_a_language() -> None:
    for document in DOCUMENTS:
        for block in blocks(document):
            assert block.language, f"{document.relative_to(ROOT)}, line {block.line - 1}: name the fence's language"
