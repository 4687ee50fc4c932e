"""Rounds over sites in this process are the simulator's, whatever the method and whatever goes wrong on the way."""

import errno
import json
import os
from dataclasses import replace

import numpy as np
import pytest

import headstart as hs
from headstart.deploy.messages import Fault, Message
from headstart.deploy.session import Book
from headstart.errors import CannotWrite
from headstart.wire import wire
from tests import toy
from tests.algorithms.contract import CONTRACT, setting
from tests.deploy.standin import Agreement, Trial

ROUNDS = 3
QUICK = ("per-fedavg, exact", "local-moml, cross-silo", "local-scgdm", "moml-v2", "pfedme")


def same(trial, run, other):
    """Server and memories are another run's, a simulated one or one over the same sites."""
    toy.assert_close(toy.to_numpy(run.state.server), toy.to_numpy(other.state.server), 1e-6)
    toy.assert_close(trial.memories(run), toy.to_numpy(other.state.clients), 1e-6)


def parity(name, folder):
    problem, pooled = setting(name)
    cohort = 1.0 if CONTRACT[name].needs_everyone else 3
    trial = Trial(folder, CONTRACT[name], problem, pooled, cohort=cohort, weighting="samples")
    run = trial.run()
    table = run.advance(ROUNDS)
    sim = trial.simulation()
    expected = sim.advance(ROUNDS)
    same(trial, run, sim)
    for column in ("loss", "gradients", "products", "samples"):
        np.testing.assert_allclose(table[column].to_numpy(), expected[column].to_numpy(), rtol=1e-6)
    assert not trial.reasons()
    scores, wanted = run.evaluate(hs.Evaluation(steps=(0, 2))), sim.evaluate(hs.Evaluation(steps=(0, 2)))
    assert scores.column_names == wanted.column_names
    for column in scores.column_names:
        got, want = scores[column].to_numpy(zero_copy_only=False), wanted[column].to_numpy(zero_copy_only=False)
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-6)
        else:
            assert got.tolist() == want.tolist()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", QUICK)
def test_sites_agree_with_the_simulator(name, tmp_path):
    """Partial cohorts, unequal sites, several clients at some of them, and clients that count by their samples."""
    parity(name, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [name for name in CONTRACT if name not in QUICK])
def test_all_methods_agree_with_the_simulator(name, tmp_path):
    parity(name, tmp_path)


WIRES = {
    "clip": wire(clip=0.2),
    "adaptive clip, noise at the server": wire(clip={"name": "adaptive", "initial": 0.2}, noise=0.5),
    "quantize": wire(compress={"name": "quantize", "bits": 4}),
    "top-k with feedback, quantize": wire(compress=[{"name": "top-k", "share": 0.5}, {"name": "quantize", "bits": 8}]),
    "median": wire(aggregate="median"),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "name", [name if "," in name else pytest.param(name, marks=pytest.mark.slow) for name in WIRES]
)
def test_what_is_on_the_wire_is_the_simulators(name, tmp_path):
    trial = Trial(tmp_path, CONTRACT["local-moml, cross-silo"], *setting("fedavg"), wire=WIRES[name], cohort=3)
    run = trial.run()
    run.advance(ROUNDS)
    sim = trial.simulation()
    sim.advance(ROUNDS)
    same(trial, run, sim)
    assert not trial.reasons()


def test_compressed_updates_travel_packed(tmp_path):
    problem = hs.Regression(hs.MLP(inputs=toy.FEATURES, outputs=1, hidden=(64, 64)))
    plain, packed = (
        Trial(tmp_path / str(on), CONTRACT["fedavg"], problem, toy.federation(), sites={"one": list(range(5))}, wire=on)
        for on in (None, wire(compress={"name": "quantize", "bits": 4}))
    )
    sent = [trial.run().advance(1)["bytes_up"][0].as_py() for trial in (plain, packed)]
    assert sent[1] < 0.25 * sent[0]


def test_noise_of_a_sites_own_key(tmp_path):
    """The same question twice gets the same noise, so that asking again tells nothing; the seed does not tell it."""
    local = wire(clip=0.5, noise={"multiplier": 0.5, "at": "client"})
    trial = Trial(tmp_path, CONTRACT["fedavg"], *setting("fedavg"), wire=local)
    first, again = trial.run(), trial.run()
    first.advance(1)
    again.advance(1)
    toy.assert_same_bits(first.state.server, again.state.server)
    sim = trial.simulation()
    sim.advance(1)
    assert np.abs(toy.flat(sim.state.server.params) - toy.flat(first.state.server.params)).max() > 1e-3
    key = (tmp_path / "north" / "noise.key").stat()
    assert (key.st_size, key.st_mode & 0o777) == (32, 0o600)


def test_noise_of_the_servers_own_key(tmp_path):
    central = wire(clip=0.5, noise=0.5)
    trial = Trial(tmp_path, CONTRACT["fedavg"], *setting("fedavg"), wire=central)
    runs = [trial.run(secret=True, book=Book(run="run1")) for _ in range(2)]
    params = [toy.flat((run.advance(1), run.state.server.params)[1]) for run in runs]
    assert np.abs(params[0] - params[1]).max() > 1e-3  # two secrets


class Meddler:
    """Between server and one site: does something to its answers in the rounds it is told."""

    def __init__(self, site, change, rounds=(1,), kind="work"):
        self.site, self.change, self.rounds, self.kind = site, change, rounds, kind
        self.earlier = []

    def __call__(self, content):
        answer = self.site.answer(content)
        self.earlier.append(answer)
        head = Message.unpack(content).head
        if head.kind == self.kind and head.round in self.rounds:
            return self.change(self, answer)
        return answer


def _arrays(change):
    def changed(meddler, answer):
        message = Message.unpack(answer)
        return Message(message.head, message.said, change(dict(message.arrays))).pack()

    return changed


def _first(value):
    """One number of an update is another."""

    def change(arrays):
        name = next(name for name in arrays if "/up" in name and arrays[name].size > 1)
        arrays[name] = np.array(arrays[name])
        arrays[name].flat[0] = value
        return arrays

    return _arrays(change)


def _head(**changes):
    def changed(meddler, answer):
        message = Message.unpack(answer)
        return Message(type(message.head)(**{**vars(message.head), **changes}), message.said, message.arrays).pack()

    return changed


FAULTS = {
    "NaN": (_first(np.nan), "not finite"),
    "infinity": (_first(np.inf), "not finite"),
    "far away": (_first(1e30), "too large"),
    "wrong shape": (_arrays(lambda arrays: {name: a.reshape(1, *a.shape) for name, a in arrays.items()}), "arrays"),
    "wrong type": (_arrays(lambda arrays: {name: a.astype(np.float16) for name, a in arrays.items()}), "arrays"),
    "missing": (_arrays(lambda arrays: dict(list(arrays.items())[1:])), "arrays"),
    "too much": (_arrays(lambda arrays: {**arrays, "0/up['more']": np.zeros(1)}), "arrays"),
    "another's": (_arrays(lambda arrays: {**arrays, "1/up['weight']": np.zeros(3)}), "arrays"),
    "garbage": (lambda meddler, answer: b"\x00garbage", "garbled"),
    "cut short": (lambda meddler, answer: answer[: len(answer) // 2], "garbled"),
    "nothing": (lambda meddler, answer: b"", "garbled"),
    "replay": (lambda meddler, answer: meddler.earlier[-2], "stale"),
    "old round": (_head(round=0), "stale"),
    "another run": (_head(run="run2"), "stale"),
    "another digest": (_head(digest="x"), "stale"),
    "another's name": (_head(site="south"), "stale"),
    "silence": (lambda meddler, answer: Fault("silent"), "silent"),
}


@pytest.mark.usefixtures("x64")
def test_bad_answers_are_left_out_by_name(tmp_path):
    """Round 1 goes on without the site, whose memories stay those of round 0, and it is back in round 2."""
    algorithm = CONTRACT["local-moml, cross-silo"]
    absent = None
    for name, (change, reason) in FAULTS.items():
        trial = Trial(tmp_path / name.replace(" ", ""), algorithm, *setting("fedavg"))
        run = trial.run(trial.fleet(north=Meddler(trial.sites["north"], change)), max_update_norm=1e6)
        run.advance(3)
        assert trial.reasons() == [("north", reason)], name
        if absent is None:
            absent = run, trial.memories(run)
        else:
            toy.assert_same_bits(run.state.server, absent[0].state.server)
            toy.assert_same_bits(trial.memories(run), absent[1])
    without = [told for told in trial.events.told if told["event"] == "closed"]
    assert [told["clients"] for told in without] == [5, 3, 5]


def test_a_server_that_forgot_its_last_round_goes_on_as_if_it_had_not(tmp_path):
    """Its sites have worked ahead of its checkpoint: they go back with it, also when they were started again."""
    trial = Trial(tmp_path, CONTRACT["moml-v2"], *setting("fedavg"), cohort=3)
    undisturbed = Trial(tmp_path / "undisturbed", CONTRACT["moml-v2"], *setting("fedavg"), cohort=3)
    book = Book(run="run1")
    run = trial.run(book=book)
    run.advance(2)
    checkpoint = run.round, run.state
    run.advance(1)
    run.evaluate(hs.Evaluation())
    for restart in (False, True):
        if restart:
            trial.sites = {name: trial.site(name) for name in trial.sites}
        resumed = trial.run(book=book)
        resumed.round, resumed.state = checkpoint
        resumed.advance(1)
    resumed.advance(1)
    whole = undisturbed.run()
    whole.advance(4)
    toy.assert_same_bits(resumed.state.server, whole.state.server)
    toy.assert_same_bits(trial.memories(resumed), undisturbed.memories(whole))


def test_a_site_without_its_memory_says_so(tmp_path):
    for lost, setting_, expected in (
        ("*", "leave-out", ["memory"] * 3),
        ("*", "begin-anew", ["memory"]),
        ("index.json", "begin-anew", ["memory"]),
    ):
        folder = tmp_path / f"{setting_} {len(lost)}"
        trial = Trial(folder, CONTRACT["local-moml, cross-silo"], *setting("fedavg"))
        run = trial.run(lost_memory=setting_)
        run.advance(2)
        for path in (folder / "south" / "state" / "run1" / "method").glob(lost):
            path.unlink() if lost == "*" else path.write_text("")
        trial.sites["south"] = trial.site("south")
        run.session.fleet = trial.fleet()
        run.advance(3)
        assert [reason for _, reason in trial.reasons()] == expected
        assert {site for site, _ in trial.reasons()} == {"south"}


def test_too_few_wait_or_stop(tmp_path):
    trial = Trial(tmp_path, CONTRACT["fedavg"], *setting("fedavg"))
    silent = Meddler(trial.sites["north"], lambda meddler, answer: Fault("silent"), rounds=(1,))
    run = trial.run(trial.fleet(north=silent), quorum=4, below_quorum="stop")
    run.advance(1)
    with pytest.raises(hs.HeadstartError, match=r"round 1.*needs 4 clients"):
        run.advance(1)
    assert run.round == 1

    class Once(Meddler):
        def __call__(self, content):
            answer = super().__call__(content)
            self.rounds = () if isinstance(answer, Fault) else self.rounds
            return answer

    waiting = trial.run(trial.fleet(north=Once(trial.sites["north"], silent.change)), quorum=4)
    waiting.advance(2)
    assert [told["event"] for told in trial.events.told].count("waiting") == 1
    sim = trial.simulation()
    sim.advance(2)
    toy.assert_close(toy.to_numpy(waiting.state.server), toy.to_numpy(sim.state.server), 1e-4)


def test_a_fault_that_comes_again_from_all_sites_is_not_waited_for_without_end(tmp_path):
    trial = Trial(tmp_path, CONTRACT["fedavg"], *setting("fedavg"))
    broken = {
        name: Meddler(site, lambda meddler, answer: _told(answer, "error", "no disk"), rounds=(1,))
        for name, site in trial.sites.items()
    }
    run = trial.run(trial.fleet(**broken))
    run.advance(1)
    with pytest.raises(hs.HeadstartError, match=r"round 1, 5 times in a row: .*\n  north: error: no disk\n"):
        run.advance(1)
    assert [told["event"] for told in trial.events.told].count("waiting") == 4


def test_sites_that_do_not_come_back_are_not_waited_for_without_end(tmp_path):
    trial = Trial(tmp_path, CONTRACT["fedavg"], *setting("fedavg"))
    gone = {name: Meddler(site, lambda *_: Fault("silent"), rounds=(1,)) for name, site in trial.sites.items()}
    run = trial.run(trial.fleet(**gone), retry_seconds=0.05, wait_timeout=0.5)
    run.advance(1)
    with pytest.raises(hs.HeadstartError, match=r"(?s)round 1 for \d+ s: .*south: silent.*is kept"):
        run.advance(1)


def _told(answer, reason, detail):
    return Message.unpack(answer).fault(Fault(reason, detail)).pack()


def test_a_method_that_needs_everyone_waits_for_everyone(tmp_path):
    trial = Trial(tmp_path, CONTRACT["nasa"], *setting("nasa"))
    fleet = trial.fleet(north=Meddler(trial.sites["north"], lambda *_: Fault("silent"), rounds=(0,)))
    with pytest.raises(hs.HeadstartError, match="method needs all clients in every round"):
        trial.run(fleet, below_quorum="stop").advance(1)


def test_sites_refuse_what_is_not_theirs(tmp_path):
    trial = Trial(tmp_path, CONTRACT["fedavg"], *setting("fedavg"))
    run = trial.run(trial.fleet(south=trial.sites["north"].answer))
    run.advance(1)
    assert trial.reasons()[0] == ("south", "refused")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (hs.UsageError("Row 7 of /wards/3.csv: 'Mary Jones' is no number."), "the data that it has"),
        (CannotWrite("/wards/3.csv cannot be read."), "its files"),
        (KeyError("Mary Jones"), "KeyError"),
    ],
)
def test_what_is_wrong_with_a_sites_data_stays_there(tmp_path, error, told):
    trial = Trial(tmp_path, CONTRACT["fedavg"], *setting("fedavg"))
    north = trial.sites["north"]

    def broken(section, site):
        raise error

    north._reading = north._reading._replace(data=broken)
    trial.run().advance(1)
    left_out = [event for event in trial.events.told if event["event"] == "left_out"]
    assert {event["site"] for event in left_out} == {"north"}
    assert all(told in event["detail"] for event in left_out)
    assert not any(word in json.dumps(trial.events.told) for word in ("Mary", "wards"))
    assert all(event["event"] == "trouble" and event["detail"] == str(error) for event in north.events.told)
    assert north.events.told


def test_what_a_site_tells_fills_no_log_and_moves_no_cursor(tmp_path):
    trial = Trial(tmp_path, CONTRACT["fedavg"], *setting("fedavg"))
    shouting = Meddler(
        trial.sites["north"], lambda m, answer: _told(answer, "error", "\x1b[2J\nno" * 1000), rounds=(0,)
    )

    def boasting(content):
        message = Message.unpack(trial.sites["south"].answer(content))
        said = (
            {"versions": {str(i): "9" * 10_000 for i in range(1000)}} if message.head.kind == "begin" else message.said
        )
        return Message(message.head, said, message.arrays).pack()

    trial.run(trial.fleet(north=shouting, south=boasting)).advance(1)
    told = [event["detail"] for event in trial.events.told if event["event"] == "left_out"]
    assert len(told[0]) == 500
    assert told[0].startswith(" [2J no")
    assert len(json.dumps(trial.events.told)) < 20_000


def test_events_are_lines_of_json(tmp_path):
    from headstart.deploy.events import Events, read_events

    Events(tmp_path).tell("joined", site="north")
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"event": "half')
    Events(tmp_path).tell("lost", site="north")
    assert [told["event"] for told in read_events(tmp_path)] == ["joined", "lost"]
    assert json.loads((tmp_path / "events.jsonl").read_text().splitlines()[0])["site"] == "north"


def test_a_full_disk_is_no_reason_to_fail_for_what_is_told(tmp_path, monkeypatch, capsys):
    from headstart.deploy.events import Events, read_events

    events, write = Events(tmp_path), os.write
    room = [5, 0, 10_000]

    def cramped(handle, content):
        if not (left := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content[:left])

    monkeypatch.setattr(os, "write", cramped)
    for site in ("north", "south", "west"):
        events.tell("joined", site=site)
    monkeypatch.undo()
    assert [told["site"] for told in read_events(tmp_path)] == ["west"]
    assert "south" in capsys.readouterr().err


def test_a_site_that_joins_later_is_evaluated(tmp_path):
    """Its clients are new ones: they are scored from then on, and training is what it would have been without them."""
    problem, pooled = toy.LOGISTIC, toy.federation(held_out=1)
    early = {"north": [0, 3], "south": [1], "west": [2]}
    trial = Trial(tmp_path, CONTRACT["local-moml, cross-silo"], problem, pooled, sites={**early, "late": [4]})
    joined = trial.agreement
    trial.agreement = Agreement(replace(pooled, total=4), early)
    here = trial.fleet()
    late = here._sites.pop("late")

    def welcome(session, sites):
        assert sites == {"late"}
        trial.agreement = joined
        return joined

    run = trial.run(here)
    run.session._newcomers = welcome
    run.advance(1)
    assert run.evaluate(hs.Evaluation())["client"].to_pylist() == ["0", "1", "2", "3"] * 2
    here._sites["late"] = late
    run.advance(1)
    assert run.evaluate(hs.Evaluation())["client"].to_pylist() == ["0", "1", "2", "3", "4"] * 2
    assert ("late", "joined") in [(told.get("site"), told["event"]) for told in trial.events.told]
    assert not trial.reasons()
    sim = trial.simulation()
    sim.advance(2)
    toy.assert_close(toy.to_numpy(run.state.server), toy.to_numpy(sim.state.server), 1e-4)
