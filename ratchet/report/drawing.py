"""How charts are drawn: colours by name, files without a browser, and the script that draws them in a page.

Colours are named as charts name them: ``var(--kept)`` and so on.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ratchet.values.status import Refusal, Status

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


FORMATS = ("svg", "png")
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
