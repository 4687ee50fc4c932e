"""What `headstart deploy` says at a site, and how it ends at a server that has stopped."""

from types import SimpleNamespace

import pytest

import headstart as hs
from headstart.cli.deploy import _conclude, site
from headstart.deploy.events import Events
from headstart.deploy.server_watch import Outcome


def test_a_site_says_what_is_wrong_with_its_data_once(tmp_path, monkeypatch, capsys):
    events = Events(tmp_path)
    events.tell("trouble", detail="of another day")

    def run_site(folder, watch):
        watching = SimpleNamespace(connected=True, place=SimpleNamespace(server="ward:9092"))
        for detail in ("Row 7: 'Mary' is no number.", "Row 7: 'Mary' is no number.", "There is no data at x.csv."):
            events.tell("trouble", asked="agree", round=0, detail=detail)
            watch(watching)

    monkeypatch.setattr(hs.deploy, "run_site", run_site)
    site(tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("Taking part, at ward:9092.") == said.count("'Mary' is no number.") == 1
    assert said.count("There is no data at x.csv.") == 1
    assert "another day" not in said


def test_a_server_that_has_stopped_is_left_to_somebody_who_can_help():
    """Exit code 2, with which systemd does not start it again."""
    _conclude(Outcome(True), "again")
    with pytest.raises(hs.UsageError, match=r"(?s)was stopped: it diverged.*Go on with: headstart deploy up x"):
        _conclude(Outcome(False, "it diverged"), "headstart deploy up x")
