"""Charts in Altair, from columns; the page draws them, and fits them to its width and colours."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headstart.errors import UsageError
from headstart.report.page.document import Figure

__all__ = [
    "LARGE",
    "Columns",
    "altair",
    "far_apart",
    "figure",
    "finite",
    "legend",
    "levels",
    "lines",
    "points",
    "round_numbers",
    "source",
]

HEIGHT = 300
COLOURS = 8
"""How many the page has."""
DIGITS = 5
"""Significant ones, of what is drawn."""
FAR = 1e3
"""From this ratio on positive values are drawn by their logarithms."""
LARGE = "abs(datum.value) >= 1e7 ? format(datum.value, '.3~e') : datum.label"
WHOLE = "datum.value % 1 ? '' : format(datum.value, ',')"
"""How an axis says its numbers, in Vega's language."""

Columns = Mapping[str, Sequence[Any]]


def altair() -> Any:
    """The charting library, which the extra ``report`` installs."""
    try:
        import altair as alt
    except ImportError as error:
        raise UsageError("Altair is not installed.", "Install it: pip install 'headstart[report]'.") from error
    return alt


def figure(name: str, title: str, caption: str, alternative: str, chart: Any, **data: Columns) -> Figure:
    """A chart that names its data sets, with those; as wide as the page has room for."""
    fitting = altair().AutoSizeParams(type="fit-x", contains="padding")
    spec = chart.properties(width="container", height=HEIGHT, autosize=fitting).to_dict()
    for unwanted in ("$schema", "config"):  # the page has its own look
        spec.pop(unwanted, None)
    return Figure(name, title, caption, alternative, spec, data)


def far_apart(values: Iterable[float | None]) -> bool:
    """Whether values, such as the losses of training that diverges, are so far apart that few could be told apart."""
    there = [value for value in values if value is not None]
    return bool(there) and min(there) > 0 and max(there) > FAR * min(there)


def source(name: str = "rows") -> Any:
    """The data set of that name."""
    return altair().NamedData(name=name)


def finite(value: float) -> float | None:
    """A number with as many digits as can be seen, or nothing."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def round_numbers(values: Iterable[float]) -> list[float | None]:
    """Every number with as many digits as can be seen."""
    return [finite(float(value)) for value in values]


def legend(**options: Any) -> Any:
    """Under the chart, where a phone has room for it; strokes are long enough to show how they are dashed."""
    if options.get("symbolType") == "stroke":
        options.setdefault("symbolSize", 400)
    return altair().Legend(orient="bottom", direction="vertical", labelLimit=300, symbolOpacity=1, **options)


def lines(
    x: str,
    x_title: str,
    y: str,
    y_title: str,
    *,
    colour: str = "method",
    order: Sequence[str],
    dash: str | None = None,
    dashes: Sequence[str] = (),
    band: bool = False,
    marked: bool = False,
    whole: bool = False,
    ticks: Sequence[int] | None = None,
    log: bool = False,
    tooltip: Sequence[str] = (),
) -> Any:
    """A line per value of ``colour`` (and of ``dash``), over the bands from low to high of the data set ``band``.

    ``whole`` is for a horizontal axis of whole numbers, which has ``ticks`` at some of them; ``log`` for a vertical one
    of logarithms.
    """
    alt = altair()
    across: dict[str, Any] = {"tickMinStep": 1, "labelExpr": WHOLE} if whole else {"labelExpr": LARGE}
    if ticks is not None:
        across |= {"values": list(ticks), "labelOverlap": "greedy"}
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    up = alt.Axis(labelExpr=LARGE, **({"format": "~g", "labelOverlap": "greedy"} if log else {}))
    base = alt.Chart().encode(
        x=alt.X(
            f"{x}:Q",
            title=x_title,
            scale=alt.Scale(zero=False, nice=False),
            axis=alt.Axis(**across),
        ),
        # All methods are the domain, as of the patterns below: the page then makes one legend of both.
        color=alt.Color(
            f"{colour}:N",
            title=None,
            sort=list(order),
            scale=alt.Scale(domain=list(order)),
            legend=legend(symbolType="stroke"),
        ),
    )
    layers = []
    if band:
        area = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=y_title, axis=up), y2="high:Q")
        layers.append(area.properties(data=source("band")))
    encoding: dict[str, Any] = {
        "y": alt.Y(f"{y}:Q", title=y_title, scale=scale, axis=up),
        "tooltip": [
            alt.Tooltip(f"{name}:{'N' if name in (colour, dash) else 'Q'}") for name in tooltip or (colour, x, y)
        ],
    }
    if dash is None and len(order) > COLOURS:  # colours come round again, with another pattern
        patterns = [[1, 0], [5, 3], [2, 2]]
        pattern = [patterns[i // COLOURS % len(patterns)] for i in range(len(order))]
        encoding["strokeDash"] = alt.StrokeDash(
            f"{colour}:N",
            title=None,
            sort=list(order),
            scale=alt.Scale(domain=list(order), range=pattern),
            legend=legend(symbolType="stroke"),
        )
    elif dash is not None:
        patterns = [[1, 0], [5, 3], [2, 2], [8, 3, 2, 3], [1, 3]]
        scale = alt.Scale(domain=list(dashes), range=[patterns[i % len(patterns)] for i in range(len(dashes))])
        encoding["strokeDash"] = alt.StrokeDash(
            f"{dash}:N", title=None, scale=scale, legend=legend(symbolType="stroke")
        )
    line = base.mark_line(strokeWidth=2, point={"size": 30} if marked else False).encode(**encoding)
    layers.append(line.properties(data=source()))
    return alt.layer(*layers) if len(layers) > 1 else layers[0]


def points(x: str, x_title: str, y: str, y_title: str, *, order: Sequence[str], tooltip: Sequence[str]) -> Any:
    """A point per row, coloured by method."""
    alt = altair()
    # Not rounded up: a share of more than 100% is nowhere.
    scale, few = alt.Scale(zero=False, nice=False, padding=8), alt.Axis(tickCount=8, labelExpr=LARGE)
    return (
        alt.Chart(source())
        .mark_point(filled=True, opacity=0.65, size=36)
        .encode(
            x=alt.X(f"{x}:Q", title=x_title, scale=scale, axis=few),
            y=alt.Y(f"{y}:Q", title=y_title, scale=scale, axis=few),
            color=alt.Color("method:N", title=None, sort=list(order), legend=legend()),
            tooltip=_tooltips(tooltip),
        )
    )


def levels(x: str, x_title: str, y: str, y_title: str, *, order: Sequence[str], tooltip: Sequence[str]) -> Any:
    """A point per row where ``x`` has few values: methods stand beside each other at each of them."""
    alt = altair()
    return (
        alt.Chart(source())
        .mark_point(filled=True, opacity=0.5, size=36)
        .encode(
            x=alt.X(f"{x}:O", title=x_title, axis=alt.Axis(labelAngle=0, labelExpr="format(datum.value, '.3~g')")),
            xOffset=alt.XOffset("method:N", sort=list(order)),
            y=alt.Y(f"{y}:Q", title=y_title, scale=alt.Scale(zero=False, nice=False, padding=8)),
            color=alt.Color("method:N", title=None, sort=list(order), legend=legend()),
            tooltip=_tooltips(tooltip),
        )
    )


def _tooltips(names: Sequence[str]) -> list[Any]:
    alt = altair()
    return [alt.Tooltip(f"{name}:{'N' if name in ('client', 'method') else 'Q'}") for name in names]
