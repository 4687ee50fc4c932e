"""Numbers and dates as spreadsheets write them: 1,234.50, $5, 12 %, 31/12/2024, and ? where nothing is known."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Misspelt", "Spelling", "number_of", "spelling_notes", "spelling_of"]

NOTHING = frozenset({
    "", "-", "--", "---", "\u2013", "\u2014", "?", ".", "..", "...", "*", "none", "nil", "n/a", "n.a.", "na", "nan",
    "n.d.", "nd", "null", "(null)", "\\n", "missing", "unknown", "not available",
    "#n/a", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!",
})  # fmt: skip
"""Words for a missing number."""
SIGNS = "[$€£¥]"
BLANKS = " \u00a0\u202f'"
"""Between groups of three digits, whatever the decimal sign is."""
UNITED = re.compile(rf"([-+]?)\s*({SIGNS}?)\s*([-+]?[\d.,][^$€£¥%]*?)\s*({SIGNS}?|%)")
"""A sign, a unit, a number, and a unit behind it."""
DATED = re.compile(r"\s*(\d{1,4}[/.-]\d{1,2}[/.-]\d|\d{4}-\d\d\s*$|(\d{1,2}[ -])?[A-Z][a-z]{2,8}\.?[ -]\d)")
LONG_YEAR = re.compile(r"(^|\D)\d{4}(\D|$)")
DATES = (
    *("%Y/%m/%d", "%Y.%m.%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y-%m"),
    *("%b %d, %Y", "%b %d %Y", "%d %b %Y", "%d-%b-%Y", "%b %Y", "%b-%Y"),
)
"""Days come first where both ways are possible; of short years (%y) there are the same."""
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
IN_WORDS = {"%Y": "year", "%y": "year", "%m": "month", "%b": "month", "%d": "day", "%H:%M": "time", ":%S": ""}
IN_WORDS |= {"%I:%M": "time", " %p": ""}
MOST_NAMED = 3


class Misspelt(ValueError):
    """A text that is not spelt like the others of its column; the text is its only argument."""


@dataclass(frozen=True)
class Spelling:
    """How the numbers or dates of a column are written."""

    what: str
    """What the column holds, in words."""
    decimal: str = "."
    date: str | None = None
    """The format of dates; ``None`` for numbers."""
    missing: tuple[str, ...] = ()
    """Words that are taken for a missing number."""

    @property
    def type(self) -> pa.DataType:
        """Of what the texts stand for."""
        return pa.float64() if self.date is None else pa.timestamp("s")

    def values(self, texts: pa.DictionaryArray) -> pa.Array:
        """What a column's texts stand for."""
        words, codes = _used(texts)
        if self.date is not None:
            values = pc.strptime(words, format=self.date, unit="s", error_is_null=True)
            if values.null_count:
                raise Misspelt(words[int(np.flatnonzero(values.is_null())[0])].as_py())
        else:
            values = pa.array([self._number(word) for word in words.to_pylist()], pa.float64(), from_pandas=True)
        return values.take(codes)

    def _number(self, word: str) -> float:
        value = number_of(word, self.decimal)
        if value is None:
            raise Misspelt(word)
        return value


def spelling_of(texts: pa.DictionaryArray, decimal: str = ".") -> Spelling | None:
    """How a column of texts spells numbers of one unit, or dates; ``None`` for other texts."""
    words, _ = _used(texts)
    return _of_numbers(words.to_pylist(), decimal) or _of_dates(words)


def spelling_notes(spelt: Mapping[str, Spelling]) -> tuple[str, ...]:
    """A word about columns that were read otherwise than they are written."""
    notes = []
    for what in dict.fromkeys(spelling.what for spelling in spelt.values()):
        names = [name for name, spelling in spelt.items() if spelling.what == what]
        one = len(names) == 1
        notes.append(f"The column{'' if one else 's'} {_listed(names)} hold{'s' if one else ''} {what}.")
    missing = sorted({word for spelling in spelt.values() for word in spelling.missing})
    if missing:
        notes.append(f"{_listed(missing)} among numbers {'is' if len(missing) == 1 else 'are'} taken for nothing.")
    return tuple(notes)


def number_of(text: str, decimal: str = ".") -> float | None:
    """The number that a text spells; a NaN for a word that says there is none, and ``None`` for any other text.

    >>> number_of("$ 1,234.50"), number_of("-12 %"), number_of("1.234,5", decimal=","), number_of("1,2")
    (1234.5, -12.0, 1234.5, None)
    """
    text = text.strip()
    return np.nan if text.lower() in NOTHING else _parsed(_without_unit(text)[0], decimal)


def _used(texts: pa.DictionaryArray) -> tuple[pa.Array, pa.Array]:
    """The different texts that rows have, and each row's place among them."""
    used = np.unique(texts.indices.drop_null().to_numpy(zero_copy_only=False))
    place = np.zeros(len(texts.dictionary), np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    return texts.dictionary.take(pa.array(used)).cast(pa.string()), pa.array(place).take(texts.indices)


def _of_numbers(words: list[str], decimal: str) -> Spelling | None:
    units, missing, grouped = set(), [], False
    for word in words:
        value = number_of(word, decimal)
        if value is None:
            return None
        if np.isnan(value):
            missing.append(word)
            continue
        number, unit = _without_unit(word.strip())
        units.add(unit)
        grouped = grouped or re.fullmatch(r"[-+\d.eE]*", number) is None
    if len(units) != 1:
        return None
    unit = units.pop()
    what = "numbers" + (f" in {unit}" if unit else "") + (" with signs between their digits" if grouped else "")
    return Spelling(what, decimal, missing=tuple(missing))


def _of_dates(words: pa.Array) -> Spelling | None:
    if not len(words) or not DATED.match(words[0].as_py()):
        return None
    # A long year also takes two digits, as those of a year 2,000 years ago.
    long_years = LONG_YEAR.search(words[0].as_py()) is not None
    for date in DATES if long_years else [date.replace("%Y", "%y") for date in DATES]:
        for time in TIMES:
            if not pc.strptime(words, format=date + time, unit="s", error_is_null=True).null_count:
                said = re.sub("|".join(IN_WORDS), lambda found: IN_WORDS[found[0]], date + time)
                return Spelling(f"dates, read as {said}", date=date + time)
    return None


def _without_unit(text: str) -> tuple[str, str]:
    """A number without its unit, and the unit: a sign of money or of percent."""
    found = UNITED.fullmatch(text)
    if found is None or (found[2] and found[4]) or (found[1] and found[3][0] in "-+"):
        return text, ""
    return found[1] + found[3], found[2] or found[4]


def _parsed(text: str, decimal: str) -> float | None:
    group, point = re.escape("." if decimal == "," else ","), re.escape(decimal)
    found = re.fullmatch(rf"([-+]?\d{{1,3}}(?:([{group}{BLANKS}])\d{{3}}(?:\2\d{{3}})*)?)({point}\d*)?", text)
    if found is not None:
        whole = found[1].replace(found[2], "") if found[2] else found[1]
        return float(whole + (found[3] or "").replace(decimal, "."))
    try:
        return None if "_" in text else float(text.replace(decimal, "."))
    except ValueError:
        return None


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return ", ".join(map(repr, words[:MOST_NAMED])) + more
