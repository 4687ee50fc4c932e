"""The run directory."""

import pytest

import headstart as hs
from headstart.experiment import RunDirectory


def test_a_record_of_another_format_is_refused(tmp_path):
    with RunDirectory.create(tmp_path / "run", {}, [], "digest"):
        pass
    text = (tmp_path / "run" / "run.json").read_text().replace('"format": 2', '"format": 99')
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(hs.UsageError, match="format 99"):
        hs.load_run(tmp_path / "run")
