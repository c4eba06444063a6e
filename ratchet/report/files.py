"""A chart as a file, drawn without a browser: SVG or PNG, on white."""

from __future__ import annotations

from typing import Any

from ratchet.report.charts import Spec
from ratchet.report.palette import LIGHT, painted
from ratchet.values.status import Refusal, Status

FORMATS = ("svg", "png")
_WIDTH = 860
_SCALE = 2
"""Pixels of a PNG for one of the chart's."""


def drawn(spec: Spec, *, title: str, suffix: str) -> bytes:
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
