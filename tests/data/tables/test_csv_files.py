"""CSV files as people have them."""

import gzip

import pytest

from headstart.data.tables import prepare, prepared, source_of, table
from headstart.data.tables.csv_files import csv_form
from headstart.data.tables.reading import streamed_file
from headstart.data.watching import watching
from headstart.errors import UsageError

COLOURS, ANSWERS = ("red", "blue"), ("yes", "no")
ROWS = [("Jürgen" if i % 2 else "Zoë", 1.5 * i, COLOURS[i % 3 % 2], ANSWERS[i // 4 % 2]) for i in range(80)]


def written(separator=",", decimal=".", newline="\n", quote=""):
    lines = [separator.join(("who", "size", "colour", "likes"))]
    for who, size, *texts in ROWS:
        cells = [who, str(size).replace(".", decimal), *texts]
        lines.append(separator.join(f"{quote}{cell}{quote}" for cell in cells))
    return newline.join([*lines, ""])


FORMS = {
    "usual": (written().encode(), 0),
    "carriage returns": (written(newline="\r\n").encode(), 0),
    "byte order mark": (b"\xef\xbb\xbf" + written().encode(), 0),
    "quotes": (written(quote='"').encode(), 0),
    "semicolons": (written(";", ",").encode(), 1),
    "semicolons and points": (written(";").encode(), 1),
    "tabs": (written("\t").encode(), 1),
    "bars": (written("|").encode(), 1),
    "old spreadsheet": (written(";", ",").encode("cp1252"), 2),
    "wide": (written().encode("utf-16"), 1),
    "a title": (f"What people like\n\n{written()}".encode(), 1),
    "a padded title": (f"People;;;\n{written(';')}".encode(), 2),
    "a remark": (f"# written by a program, version 2\n{written()}".encode(), 1),
    "a named separator": (f"sep=;\n{written(';', ',')}".encode(), 2),
    "empty lines": (f"\n\n{written()}".encode(), 1),
    "blanks around cells": (written(" , ").encode(), 0),
    "blanks and a mark": (b"\xef\xbb\xbf" + written(", ").encode(), 0),
    "zipped": (gzip.compress(written().encode()), 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_files_of_every_form_are_read_alike(tmp_path, form):
    content, notes = FORMS[form]
    path = tmp_path / ("people.csv.gz" if form == "zipped" else "people.csv")
    path.write_bytes(content)
    federation = table(path, client="who", label="likes", held_out=0)
    assert federation.names == ["Jürgen", "Zoë"]
    samples = federation.partition.samples
    assert samples.features == ("size", "colour=blue", "colour=red")
    assert samples.x[:, 0].tolist() == [size for _, size, _, _ in ROWS]
    assert len([note for note in federation.partition.notes if path.name in note]) == notes
    if form != "wide":
        again = prepared(prepare(path, tmp_path / "out", client="who", label="likes"), held_out=0)
        assert again.names == federation.names
        assert again.partition.samples.features == samples.features


def test_names_that_two_columns_have_are_told_apart(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("who,size,size,,,likes\n" + "".join(f"{w},{s},{2 * s},,,{like}\n" for w, s, _, like in ROWS))
    partition = table(path, client="who", label="likes", held_out=0).partition
    assert partition.samples.features == ("size", "size (2)")
    assert any("columns are called 'size (2)', 'column 5'" in note for note in partition.notes)
    assert "The columns '', 'column 5' are left out: no values at all." in partition.notes
    assert streamed_file(path).schema.names == ["who", "size", "size (2)", "", "column 5", "likes"]


def test_a_label_that_two_columns_have_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("who,size,likes,likes\na,1,yes,yes\nb,2,no,no\n")
    with pytest.raises(UsageError, match=r"two columns 'likes' \(label\)"):
        table(path, client="who", label="likes", held_out=0)


def test_a_row_is_named_by_its_number_below_the_header(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("A title\n\nwho, size\na,1\nb,2,3\n")
    with pytest.raises(UsageError, match=r"Row 2 of people\.csv has 3 cells"):
        source_of(path)


def test_blanks_alone_are_nothing(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("who,colour\na, red\nb,red \nc,  \n")
    for source in (source_of(path), streamed_file(path)):
        (batch,) = source.batches(["colour"])
        assert batch.column(0).to_pylist() == ["red", "red", None]


def test_cells_may_have_several_lines(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('who,size,remark\na,1,"one\ntwo"\nb,2,"three, four"\n')
    assert csv_form(path).lines_in_cells
    assert source_of(path).table["remark"].to_pylist() == ["one\ntwo", "three, four"]


def test_rows_of_other_lengths_are_named(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("who,size\na,1\nb,2\nc,3,4\n")
    for read in (source_of, lambda path: list(streamed_file(path).batches(["who"]))):
        with pytest.raises(UsageError, match=r"Row 3 of people\.csv has 3 cells, and the header has 2: 'c,3,4'"):
            read(path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(b"who,size\na,\x001\n")
    with pytest.raises(UsageError, match="NUL byte in line 2"):
        source_of(path)


def test_texts_that_could_be_numbers_stay_texts_where_they_are_known_to_be(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("code,size\n007,1\n1.0,2\n")
    assert source_of(path, texts=["code"]).table["code"].to_pylist() == ["007", "1.0"]
    (batch,) = streamed_file(path, ["code", "not there"]).batches(["code", "size"])
    assert batch.column("code").to_pylist() == ["007", "1.0"]


def test_numbers_that_begin_later_than_the_first_block_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("headstart.data.tables.csv_files.BLOCK_BYTES", 200)
    path = tmp_path / "late.csv"
    path.write_text("who,size\n" + "a,\n" * 200 + "b,1.5\n" * 200)
    batches = list(streamed_file(path).batches(["size"]))
    assert sum(batch.column("size").null_count for batch in batches) == 200


def test_whoever_watches_is_told_how_far_reading_is(tmp_path):
    path = tmp_path / "people.csv.gz"
    path.write_bytes(FORMS["zipped"][0])
    shares = []
    with watching(lambda what, share: shares.append((what, share))):
        watched = source_of(path).table
    assert watched.equals(source_of(path).table)
    assert shares[-1] == ("Reading people.csv.gz", 1.0)
