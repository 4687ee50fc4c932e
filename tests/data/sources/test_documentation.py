from pathlib import Path

import pytest

from headstart.data.sources import SOURCES

PAGE = (Path(__file__).parents[3] / "docs" / "data_sources.md").read_text("utf-8")


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_page_lists_every_source_with_its_files(source):
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{source.name}("))
    assert f"| {source.licence} |" in row
    assert f"| {source.size / 1e6:.0f} MB |" in row or not source.size
    for form in source.forms:
        assert len(form.files) > 1 or form.files[0] in PAGE, form
    for folder in source.subfolders:
        assert f"`{folder.removeprefix(f'{source.name}/')}`" in PAGE
