"""What a report says is what the record has, in every form."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import headstart as hs
from headstart.data.partitions import describe
from headstart.errors import UsageError
from headstart.metrics import METRICS
from headstart.report.page.conduct import as_toml
from headstart.report.page.document import Column, Document, Section, Table, Text
from headstart.report.page.reading import NEW, read_evidence
from headstart.report.page.sentences import paired_over_clients
from headstart.report.page.terminal import as_terminal
from headstart.simulate import summarize
from headstart.simulate.identity import data_digest
from headstart.statistics import mean_interval
from tests.report.page.made_up import write_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [f"site {i}" for i in range(39)] + [HOSTILE]
    return write_run(tmp_path_factory.mktemp("runs") / "mine", names=names, evaluations=11)


@pytest.fixture(scope="module")
def document(run: Path) -> Document:
    return hs.report.make_report(run).document


def table(document: Document, name: str) -> Table:
    return next(table for table in document.tables() if table.name == name)


def data_of(page: str) -> str:
    return re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]


def words(document: Document) -> str:
    texts = [b.words for section in document.sections for b in section.blocks if isinstance(b, Text)]
    return "\n".join([*document.sentences, *texts, *document.warnings])


def test_three_sentences_with_the_numbers_of_the_record(run, document):
    evidence = read_evidence([run])
    best, other = evidence.methods
    assert len(document.sentences) == 3
    interval = mean_interval(best.scores[5][-10:])
    first, second, third = document.sentences
    assert f"a new client has accuracy {100 * interval.mean:.1f} % on average with per-fedavg" in first
    assert f"95% interval {100 * interval.low:.1f} to {100 * interval.high:.1f} over 10 clients" in first
    assert f"{100 * best.gains[-10:].mean():.1f} points better" in first
    difference = best.scores[5][-10:] - other.scores[5][-10:]
    assert f"It is {100 * difference.mean():.1f} points better than fedavg" in second
    assert "One seed was run" in second
    gains = best.gains[-10:]
    assert f"helps {(gains > 0).sum()} of 10 new clients, harms {(gains < 0).sum()}" in third
    assert f"{100 * np.sort(best.scores[5][-10:])[0]:.1f} % after adapting" in third


def test_methods_are_compared_on_the_clients_that_they_share(run):
    one, other = read_evidence([run]).methods
    shuffled = np.random.default_rng(0).permutation(len(other.clients))
    moved = type(other)(
        **{
            **vars(other),
            "clients": other.clients[shuffled],
            "roles": other.roles[shuffled],
            "scores": {n: scores[shuffled] for n, scores in other.scores.items()},
        }
    )
    assert paired_over_clients(one, moved, NEW) == paired_over_clients(one, other, NEW)
    assert paired_over_clients(one, moved, NEW).difference.number == 10


def test_every_section_is_there(document):
    assert [section.name for section in document.sections] == [
        "curves", "clients", "adaptation", "likeness", "cost", "privacy", "settings",
    ]  # fmt: skip
    names = [figure.name for figure in document.figures()]
    assert len(names) == len(set(names)) >= 8
    for figure in document.figures():
        assert figure.alternative.endswith(".") or ";" in figure.alternative
        for columns in figure.data.values():
            assert len({len(values) for values in columns.values()}) == 1, figure.name


def test_a_band_of_shares_is_between_none_and_all(tmp_path):
    made = hs.report.make_report(write_run(tmp_path / "run", clients=12, held_out=5, seed=5)).document
    band = next(figure.data["band"] for figure in made.figures() if figure.name == "curves-new")
    assert max(band["high"]) == 100, "it would go beyond"


def test_the_table_of_clients_has_every_client_and_gain(run, document):
    method = read_evidence([run]).methods[0]
    rows = [row for row in table(document, "clients").rows if row[2] == "per-fedavg"]
    assert [row[0] for row in rows] == method.clients.tolist()
    assert [float(row[-1]) for row in rows] == pytest.approx(100 * method.gains, abs=0.051)
    assert {row[1] for row in rows} == {"trained", "new"}


def test_cost_to_a_common_target(document):
    better, worse = table(document, "cost").rows
    assert (better[1], better[2], better[5]) == ("50", "40000", "25.00")
    assert int(better[8]) < int(worse[8]) == 50
    assert int(better[9]) == 800 * int(better[8])
    assert float(better[10]) == int(better[8])


def test_fairness_is_over_clients(run, document):
    scores = read_evidence([run]).methods[0].scores[5]
    row = next(row for row in table(document, "fairness").rows if row[:3] == ["per-fedavg", "all", "5"])
    ordered = np.sort(scores)
    expected = [scores.mean(), scores.std(), ordered[:4].mean(), ordered[-4:].mean()]
    assert [float(cell) for cell in row[3:7]] == pytest.approx([100 * value for value in expected], abs=0.051)


def test_less_is_better_for_an_error(tmp_path):
    made = hs.report.make_report(write_run(tmp_path / "run", metric="rmse", held_out=0)).document
    method = read_evidence([tmp_path / "run"]).methods[0]
    assert method.gains == pytest.approx(method.scores[0] - method.scores[5])
    assert "a client has rmse" in made.sentences[0]
    assert "better than the shared model" in made.sentences[0]
    assert "better than fedavg" in made.sentences[1]
    assert float(table(made, "fairness").rows[0][5]) > float(table(made, "fairness").rows[0][6])


def test_the_model_that_was_kept_is_reported(tmp_path):
    made = hs.report.make_report(write_run(tmp_path / "run", held_out=12, kept=(20, 50))).document
    best, last = read_evidence([tmp_path / "run"]).methods
    rows = [row for row in best.record.table.to_pylist() if row["round"] == 20 and row["steps"] == 5]
    assert best.last == 20
    assert dict(zip(best.clients, best.scores[5], strict=True)) == {row["client"]: row["accuracy"] for row in rows}
    assert best.judged == last.judged == NEW
    assert best.chosen(NEW).sum() == 8
    leading = max((best, last), key=lambda method: method.after(NEW).mean())
    assert f"{100 * leading.after(NEW).mean():.1f} % on average with {leading.title}" in made.sentences[0]
    assert "over 8 clients" in made.sentences[0]
    said = words(made)
    assert "New clients were looked at once" in said
    assert "is of round: per-fedavg 20 of 50." in said
    drawn = {figure.name: figure for figure in made.figures() if figure.name.startswith("curves")}
    assert list(drawn) == ["curves-all", "curves-validation"]
    for figure in drawn.values():
        assert set(figure.data["rows"]["round"]) == {0, 10, 20, 30, 40, 50}
    others = [r for r in best.record.table.to_pylist() if r["round"] == 20 and r["steps"] == 5 and not r["held_out"]]
    others += [r for r in rows if r["validation"]]
    mean = np.mean([row["accuracy"] for row in others])
    assert next(row for row in best.curve("all", 5) if row["round"] == 20)["mean"] == pytest.approx(mean)


def test_training_that_makes_it_worse_is_called_so(tmp_path):
    import pyarrow.parquet as pq

    path = write_run(tmp_path / "run", methods=["fedavg"], steps=[0, 1]) / "fedavg"
    rows = pq.read_table(path / "clients.parquet")
    turned = rows.set_column(0, "round", [50 - rows["round"].to_numpy()])
    pq.write_table(turned, path / "clients.parquet")
    pq.write_table(summarize(turned, [METRICS["loss"], METRICS["accuracy"]]), path / "summary.parquet")
    assert "Worse at the last round than before any training: fedavg." in words(
        hs.report.make_report(path.parent).document
    )


@pytest.mark.parametrize(("ahead", "said"), [(0.1, "points worse."), (0.001, "points worse, which may be chance.")])
def test_where_to_stop_is_not_told_from_chance(tmp_path, ahead, said):
    import pyarrow.parquet as pq

    path = write_run(tmp_path / "run", methods=["fedavg"], steps=[0, 5, 6]) / "fedavg"
    rows = pq.read_table(path / "clients.parquet")
    steps, scores = rows["steps"].to_numpy(), rows["accuracy"].to_numpy().copy()
    uneven = 0.01 * (-1.0) ** np.arange((steps == 6).sum())
    scores[steps == 6] = scores[steps == 5] - ahead + uneven
    pq.write_table(rows.set_column(rows.column_names.index("accuracy"), "accuracy", [scores]), path / "clients.parquet")
    text = words(hs.report.make_report(path.parent).document)
    assert f"fedavg is best after 5 steps; after 6 it is {100 * ahead:.1f} {said}" in text


def test_a_run_that_goes_on_is_reported_as_far_as_it_is(tmp_path):
    made = hs.report.make_report(write_run(tmp_path / "run", done=False)).document
    assert len(made.warnings) == 2
    assert "has not been trained to the end" in made.warnings[0]
    assert made.sentences[0].startswith("After 5 steps")


def test_several_runs_side_by_side(tmp_path):
    first, second = (write_run(tmp_path / f"seed-{seed}", seed=seed) for seed in (0, 1))
    made = hs.report.make_report([first, second]).document
    assert {row[2] for row in table(made, "clients").rows} == {
        f"seed-{seed}: {method}" for seed in (0, 1) for method in ("per-fedavg", "fedavg")
    }
    assert "One seed" not in words(made)
    with pytest.raises(UsageError, match="different metrics"):
        hs.report.make_report([first, write_run(tmp_path / "error", metric="rmse")])
    with pytest.raises(UsageError, match="named twice"):
        hs.report.make_report([first, first])


def test_nothing_evaluated_yet_is_said_with_a_remedy(tmp_path):
    run = write_run(tmp_path / "run", done=False)
    for part in run.glob("*/clients/*.parquet"):
        part.unlink()
    with pytest.raises(UsageError, match="Nothing has been evaluated yet"):
        hs.report.make_report(run)
    with pytest.raises(UsageError, match="not a run directory"):
        hs.report.make_report(tmp_path)


def test_clients_without_a_score_are_counted_and_left_out(tmp_path, run):
    import pyarrow.parquet as pq

    copy = write_run(tmp_path / "run", held_out=0, methods=["fedavg"])
    path = copy / "fedavg" / "clients.parquet"
    rows = pq.read_table(path)
    values = rows["accuracy"].to_numpy().copy()
    values[rows["client"].to_numpy(zero_copy_only=False) == "client-3"] = np.nan
    pq.write_table(rows.set_column(rows.column_names.index("accuracy"), "accuracy", [values]), path)
    made = hs.report.make_report(copy)
    assert {row[-1] for row in table(made.document, "fairness").rows} == {"1"}
    assert "NaN" not in data_of(made.html())


def test_without_adaptation_the_page_says_so(tmp_path):
    made = hs.report.make_report(write_run(tmp_path / "run", steps=[0], methods=["fedavg"])).document
    assert "was not evaluated" in made.sentences[0]
    assert "no other method" in made.sentences[1]
    assert "evaluate.steps" in words(made)


def test_privacy_is_said(tmp_path):
    spent = {"epsilon": 3.2, "delta": 1e-5, "kind": "central", "note": "50 rounds, 8 of 40 clients per round"}
    assert "epsilon = 3.2 at delta = 1e-05" in words(
        hs.report.make_report(write_run(tmp_path / "a", privacy=spent)).document
    )
    assert "No differential privacy" in words(hs.report.make_report(write_run(tmp_path / "b")).document)


def test_faults_of_a_deployment(tmp_path):
    run = write_run(tmp_path / "server" / "run")
    events = [
        {"event": "closed", "round": 0},
        {"event": "left_out", "site": "north", "round": 1, "reason": "came too late"},
        {"event": "left_out", "site": "north", "round": 4, "reason": "came too late"},
        {"event": "lost", "site": "south", "round": 2},
        {"event": "resumed", "round": 5},
    ]
    lines = "\n".join(json.dumps({"time": "2026-01-01T00:00:00", **event}) for event in events)
    (run.parent / "events.jsonl").write_text(lines + '\n{"event": "left_ou')
    made = hs.report.make_report(run).document
    assert table(made, "faults").rows[0] == ["north", "left out", "came too late", "2", "1 to 4"]
    assert "1 rounds were closed, and the server was resumed once; there were 3 faults at 2 places" in words(made)


def test_the_page_is_one_whole_and_safe_file(run, document, tmp_path):
    path = hs.report.make_report(run).save(tmp_path / "page.html")
    text = path.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert "&lt;/script&gt;" in text or "\\u003c/script>" in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']?https?:", text)
    data = json.loads(data_of(text))
    assert set(data["figures"]) == {figure.name for figure in document.figures()}
    assert HOSTILE in data["tables"]["clients"]["columns"][0]


def test_markdown_has_its_figures_beside_it(run, document, tmp_path):
    path = hs.report.make_report(run).save(tmp_path / "page.md")
    text = path.read_text(encoding="utf-8")
    pictures = re.findall(r"\]\((page_figures/[^)]+)\)", text)
    assert len(pictures) == len(document.figures())
    assert all((tmp_path / picture).read_text(encoding="utf-8").startswith("<svg") for picture in pictures)
    assert "<script" not in text.replace("\\<script", "")
    assert "| ---" not in text
    assert "… and 55 more rows" in text


def test_a_terminal_has_the_sentences_and_tables(run, tmp_path):
    text = hs.report.make_report(run).save(tmp_path / "page.txt").read_text(encoding="utf-8")
    assert "a new client has accuracy" in " ".join(text.split())
    assert "worst 10%" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    with pytest.raises(UsageError, match=r"\.html, \.md or \.txt"):
        hs.report.make_report(run).save(tmp_path / "page.pdf")


@pytest.mark.parametrize("width", [50, 80, 200])
def test_a_terminal_has_whole_words_or_names_what_it_has_no_room_for(width):
    columns = [Column("method"), Column("mean accuracy, %", True), Column("interval"), Column("samples drawn", True)]
    rows = [["per-fedavg-first-order", "93.3", "92.1 to 94.5", "1234567"], ["fedavg", "none", "none", "12"]]
    made = Document("title", "about", [], [Section("s", "S", [Table("t", "T", columns, rows)])])
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(as_terminal(made))
    said = captured.get()
    assert max(map(len, said.splitlines())) <= width
    for word in ("per-fedavg-first-order", "accuracy,", "93.3", "92.1 to 94.5"):
        assert word in " ".join(said.split())
    assert ("1234567" in said) is (width > 50)
    assert ("where there is more room: samples drawn." in " ".join(said.split())) is (width == 50)


def test_a_hundred_thousand_clients_are_summed_up(tmp_path):
    run = write_run(tmp_path / "run", clients=100_000, held_out=20_000, evaluations=2, steps=(0, 1))
    made = hs.report.make_report(run)
    assert len(made.html().encode()) < 5_000_000
    rows = table(made.document, "clients").rows
    gains = read_evidence([run]).methods[0].gains
    assert len(rows) == 2 * 500
    assert float(rows[0][-1]) == pytest.approx(100 * gains.min(), abs=0.06)
    counted = next(figure for figure in made.document.figures() if figure.name == "before-after-0")
    assert sum(counted.data["rows"]["clients"]) == 100_000


def test_settings_are_a_file_that_runs_again():
    config = {"seed": 1, "data": {"name": "sine", "clients": 4}, "train": {"rounds": 2, "chunk": None}}
    again = tomllib.loads(as_toml(config))
    assert again == {"seed": 1, "data": {"name": "sine", "clients": 4}, "train": {"rounds": 2}}


def test_clients_data_is_described_from_the_data_dealt_out_again(tmp_path):
    experiment = hs.Experiment.from_toml(settings=["data.clients=8", "data.held_out=2"])
    federation = experiment.federation
    names = [federation.name(i) for i in range(8)]
    about = {"config": experiment.config, "data": data_digest(federation), "names": names, "clients": 8, "held_out": 2}
    made = hs.report.make_report(write_run(tmp_path / "run", **about)).document
    sizes = {row[0]: int(row[-2]) for row in table(made, "clients").rows}
    assert sizes == {federation.name(i): n for i, n in enumerate(federation.counts["support"].tolist())}
    summary = describe(federation.partition)
    shares = summary.train / summary.train.sum(axis=1, keepdims=True)
    unlike = np.abs(shares - summary.train.sum(axis=0) / summary.train.sum()).sum(axis=1) / 2
    found = [float(row[-1]) for row in table(made, "clients").rows if row[2] == "fedavg"]
    assert found == pytest.approx(unlike, abs=6e-4)
    assert np.mean(unlike) == pytest.approx(summary.distance_to_all)
    unread = hs.report.make_report(tmp_path / "run", with_data=False).document
    assert "The data was not read, as asked." in words(unread)
    changed = write_run(tmp_path / "changed", **{**about, "data": "another"})
    assert "The data has changed since the run" in words(hs.report.make_report(changed).document)
    settings_text = next(b for s in made.sections for b in s.blocks if getattr(b, "file", None))
    again = hs.Experiment.from_toml(settings_text.text)
    assert json.loads(json.dumps(again.config)) == json.loads(json.dumps(experiment.config))


def test_the_command(run, tmp_path, capsys, monkeypatch):
    from headstart.cli.main import app

    def call(*arguments: str) -> str:
        with pytest.raises(SystemExit) as left:
            app(["report", *arguments])
        assert left.value.code == 0
        return capsys.readouterr().out

    assert "page.html" in call(str(run), "--out", str(tmp_path / "page.html"))
    assert "What each method cost" in call(str(run), "--format", "terminal")
    call(str(run), "--format", "markdown")
    assert (run / "report.md").exists()
