"""Numbers and dates as spreadsheets write them."""

import math

import numpy as np
import pyarrow as pa
import pytest

from headstart.data.tables import csv_files, open_data, prepare, source_of, stored_rows
from headstart.data.tables.reading import streamed_file
from headstart.data.tables.spelling import number_of, spelling_notes, spelling_of
from headstart.errors import UsageError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234", 1234.0), ("-1,234,567.5", -1234567.5), ("$1,234.50", 1234.5), ("-$5", -5.0), ("5 €", 5.0),
        ("12.5%", 12.5), ("1 234 567", 1234567.0), ("1'234.5", 1234.5), ("+3", 3.0), ("1e5", 1e5), (" 7 ", 7.0),
        ("1,23", None), ("1,2345", None), ("1,234,56", None), ("12.03.2024", None), ("abc", None), ("1_000", None),
        ("$5%", None), ("$$5", None), ("-$-5", None), ("5 kg", None),
    ],
)  # fmt: skip
def test_numbers_are_read_as_people_write_them(text, number):
    assert number_of(text) == number


@pytest.mark.parametrize("word", ["?", "-", "n/a", "None", "NA", "", "..", "n.a.", "#DIV/0!", "\u2013"])
def test_words_for_nothing_are_missing_numbers(word):
    assert math.isnan(number_of(word))


def test_decimal_commas():
    assert [number_of(text, ",") for text in ("1.234,56", "0,5", "1.234")] == [1234.56, 0.5, 1234.0]


def spelling(*texts):
    return spelling_of(pa.array(texts, pa.string()).dictionary_encode())


def test_a_column_has_one_unit_and_some_numbers():
    assert spelling("1%", "2%", None).what == "numbers in %"
    assert spelling("1%", "2") is None
    assert spelling("$5", "5 €") is None
    assert spelling("?", "-") is None
    assert spelling(None) is None
    assert spelling("red", "5") is None


def test_dates_are_read_in_one_order():
    assert spelling("31/12/2024", "01/02/2023").date == "%d/%m/%Y"
    assert spelling("12/31/2024", "01/02/2023").date == "%m/%d/%Y"
    assert spelling("31/12/2024", "12/31/2024") is None
    assert spelling("31/12/99", "01/02/20").date == "%d/%m/%y"
    assert spelling("5/1/2020 3:05 PM", "12/31/2021 11:59 AM").date == "%m/%d/%Y %I:%M %p"
    assert spelling("Jan 1 2000", "December 31 2001").what == "dates, read as month day year"
    assert spelling("3-Mar-20", "14-Apr-21").date == "%d-%b-%y"
    assert spelling("2020-01", "2021-11").date == "%Y-%m"
    assert spelling("Type 1", "Type 2") is None
    assert spelling("31.12.2024 12:30", None).what == "dates, read as day.month.year time"


def test_notes_name_columns_and_words():
    notes = spelling_notes({"a": spelling("1,000", "?"), "b": spelling("2,000"), "c": spelling("$1")})
    assert notes == (
        "The columns 'a', 'b' hold numbers with signs between their digits.",
        "The column 'c' holds numbers in $.",
        "'?' among numbers is taken for nothing.",
    )


def spreadsheet(path, rows=80):
    """Income, tax and a remark by town; what is earned is to be predicted."""
    rng = np.random.default_rng(0)
    income = rng.uniform(1_000, 90_000, rows)
    lines = ["town,income,tax,when,earned"]
    for i, value in enumerate(income):
        tax = "?" if i % 9 == 0 else f"{value / 3000:.1f}%"
        lines.append(f't{i % 8},"${value:,.2f}",{tax},{i % 28 + 1:02d}/03/2024,"{value * 0.7:,.0f}"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return income


def test_a_spreadsheet_is_a_table_of_numbers(tmp_path):
    path = tmp_path / "sheet.csv"
    income = spreadsheet(path)
    partition = open_data(str(path), client="town", label="earned")
    assert partition.samples.features == ("income", "tax", "tax is missing")
    assert partition.samples.kind == "regression"
    assert any("'when' holds dates, read as day/month/year" in note for note in partition.notes)
    assert any("'when' is left out: times" in note for note in partition.notes)
    encoding = partition.samples.transform
    # Read whole, streamed, or with what it stands for: the model sees the same.
    whole, streamed = (stored_rows(encoding, make(path)) for make in (source_of, streamed_file))
    np.testing.assert_array_equal(whole, streamed)
    np.testing.assert_allclose(whole[:, 0] + encoding.columns[0].offset, income.round(2), rtol=1e-6)


def test_a_frame_of_texts_is_stored_as_the_numbers_that_training_had(tmp_path):
    path = tmp_path / "sheet.csv"
    spreadsheet(path)
    encoding = open_data(str(path), client="town", label="earned").samples.transform
    stored = stored_rows(encoding, source_of({"income": ["$2,000.00", "3000"], "tax": ["12%", None]}))
    plain = stored_rows(encoding, source_of({"income": [2000.0, 3000.0], "tax": [12.0, None]}))
    np.testing.assert_array_equal(stored, plain)


def test_a_spreadsheet_that_is_streamed_names_what_is_misspelt(tmp_path, monkeypatch):
    for size in ("FIRST_BYTES", "BLOCK_BYTES"):
        monkeypatch.setattr(csv_files, size, 1024)
    path = tmp_path / "sheet.csv"
    spreadsheet(path)
    path.write_text(path.read_text().rsplit("\n", 2)[0] + '\nt1,about ten,5%,01/03/2024,"1,000"\n')
    with pytest.raises(UsageError, match=r"row 80 of sheet.csv, column 'income': 'about ten' among numbers in \$"):
        prepare(path, tmp_path / "out", client="town", label="earned")
