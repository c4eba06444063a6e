"""How charts are drawn: colours by name, marks and axes, files without a browser, the script that draws them in a page.

Colours are named as charts name them: ``var(--kept)`` and so on.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ratchet.values.status import Refusal, Status

Spec = dict[str, Any]
Rows = Sequence[Mapping[str, object]]
_COLOURS = {
    "paper": ("#ffffff", "#12161b"),
    "card": ("#f6f7f9", "#1b2128"),
    "ink": ("#1b1f24", "#e6eaef"),
    "muted": ("#57606a", "#a0aab5"),
    "line": ("#d0d7de", "#3a434d"),
    "grid": ("#e4e8ec", "#283039"),
    "link": ("#0550ae", "#7ab7ff"),
    "focus": ("#0969da", "#7ab7ff"),
    "kept": ("#1a7f4b", "#4cc38a"),
    "baseline": ("#2563b0", "#6aa9f0"),
    "reverted": ("#8a929b", "#8f99a4"),
    "failed": ("#c5362b", "#ff7b6e"),
    "judged": ("#8a5fb5", "#bb95e6"),
    "floor": ("#7d4bb0", "#b48be0"),
    "issue": ("#3273b8", "#5b9fe3"),
    "stall": ("#c7881d", "#dba641"),
    "wait": ("#b5473c", "#e8776b"),
    "delay": ("#8a929b", "#8f99a4"),
    "memory": ("#6d58b0", "#9c87e0"),
    "heat": ("#f3c9a2", "#6b4a24"),
    "added": ("#dcf5e3", "#163423"),
    "removed": ("#fbe3e1", "#432021"),
}
"""On a light and on a dark page. Text has a contrast of 4.5."""
LIGHT, DARK = ({name: pair[place] for name, pair in _COLOURS.items()} for place in (0, 1))


def variables(colours: dict[str, str]) -> str:
    """The colours as declarations of CSS."""
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def painted(spec: Any, colours: dict[str, str] = LIGHT) -> Any:
    """A chart with colours in place of the names that are a whole value; text that only contains one stays."""
    if isinstance(spec, dict):
        return {key: value if key == "values" else painted(value, colours) for key, value in spec.items()}
    if isinstance(spec, list):
        return [painted(value, colours) for value in spec]
    if isinstance(spec, str) and spec.startswith("var(--") and spec.endswith(")"):
        return colours.get(spec[6:-1], spec)
    return spec


CONFIG: Mapping[str, object] = {
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)", "titleColor": "var(--muted)", "gridColor": "var(--grid)",
        "domainColor": "var(--line)", "tickColor": "var(--line)", "labelFontSize": 12, "titleFontSize": 12,
        "titleFontWeight": "normal", "gridDash": [2, 3], "labelOverlap": True,
    },
    "legend": {"labelColor": "var(--ink)", "labelFontSize": 12, "rowPadding": 4, "columnPadding": 14},
}  # fmt: skip

# --- parts of charts ---


def drawing_of(rows: Rows) -> alt.Chart:
    """A chart of some rows, without marks."""
    return alt.Chart(alt.Data(values=list(rows)))


def bars_of(rows: Rows, band: float = 0.75, **how: Any) -> alt.Chart:
    """A bar for each row."""
    return drawing_of(rows).mark_bar(height={"band": band}, **how)


def tip(field: str, title: str, *, kind: str = "N", **how: Any) -> alt.Tooltip:
    """A line of what is shown over a mark."""
    return alt.Tooltip(f"{field}:{kind}", title=title, **how)


def label_of(row: Mapping[str, object], x: alt.X, y: alt.Y, **how: Any) -> alt.Chart:
    """A text beside a point."""
    text = drawing_of([row]).mark_text(**{"color": "var(--floor)", "fontSize": 12, **how})
    return text.encode(x=x, y=y, text="label:N")


def log_scale(kind: Any, field: str, title: str, low: float, high: float, **axis: Any) -> Any:
    """``kind`` (X or Y) of a field on a logarithmic scale."""
    return kind(
        field,
        title=title,
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(**{"format": ".3~r", "tickCount": 5, **axis}),
    )


def share_axis(field: str, scale: alt.Scale) -> alt.X:
    """A field of shares of the run."""
    return alt.X(f"{field}:Q", title="share of the run", axis=alt.Axis(format=".0%", tickCount=5), scale=scale)


def name_axis(field: str, rows: Rows) -> alt.Y:
    """A field of names, in the order of the rows."""
    names = list(dict.fromkeys(str(row[field]) for row in rows))
    return alt.Y(
        f"{field}:N", title=None, sort=names, axis=alt.Axis(labelLimit=170, ticks=False, domain=False, grid=False)
    )


def colours_of(field: str, rows: Rows, colours: Mapping[str, str]) -> alt.Color:
    """Colours of a field by its value, with a legend."""
    used = [name for name in colours if any(row[field] == name for row in rows)]
    scale = alt.Scale(domain=used, range=[colours[name] for name in used])
    legend = alt.Legend(title=None, orient="top", columns=1, labelLimit=260, symbolOpacity=1)
    return alt.Color(f"{field}:N", scale=scale, legend=legend)


def spec_of(chart: Any, *, height: int) -> Spec:
    """The specification of a chart."""
    sized = chart.properties(
        width="container", height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
    )
    return {**sized.to_dict(), "background": "transparent", "config": CONFIG}


# --- files and pages ---

FORMATS = ("svg", "png")
_WIDTH = 860
_SCALE = 2
"""Pixels of a PNG for one of the chart's."""


def drawn(spec: Mapping[str, Any], *, title: str, suffix: str) -> bytes:
    """The bytes of a file that ends in ``suffix``.

    Raises:
        Refusal: USAGE for another format.
    """
    kind = suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise Refusal(Status.USAGE, f"-o ends in {suffix or 'nothing'!r:.20}, wanted .svg or .png")
    import vl_convert

    chart: dict[str, Any] = {
        **painted(spec),
        "width": _WIDTH,
        "background": LIGHT["paper"],
        "padding": 16,
        "title": {"text": title, "anchor": "start", "color": LIGHT["ink"], "fontSize": 15, "offset": 12},
    }
    chart["config"] = {**chart["config"], "font": "sans-serif"}
    if kind == "svg":
        return str(vl_convert.vegalite_to_svg(chart)).encode()
    return bytes(vl_convert.vegalite_to_png(chart, scale=_SCALE))


@functools.cache
def charts_library() -> str:
    """The three libraries as one script that sets ``window.vegaEmbed``; safe inside of a ``script`` element.

    It is bundled from what is installed: nothing is fetched. Takes some seconds, once a process.
    """
    import vl_convert

    bundled: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return inside_script(bundled)


def inside_script(script: str) -> str:
    """JavaScript in which nothing ends the element around it: in a string, the backslash changes nothing."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
