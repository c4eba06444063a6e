"""Colours of pages and charts, by the names that charts use: ``var(--kept)`` and so on. Text has a contrast of 4.5."""

from __future__ import annotations

from typing import Any

LIGHT = {
    "paper": "#ffffff",
    "card": "#f6f7f9",
    "ink": "#1b1f24",
    "muted": "#57606a",
    "line": "#d0d7de",
    "grid": "#e4e8ec",
    "link": "#0550ae",
    "focus": "#0969da",
    "kept": "#1a7f4b",
    "baseline": "#2563b0",
    "reverted": "#8a929b",
    "failed": "#c5362b",
    "judged": "#8a5fb5",
    "floor": "#7d4bb0",
    "issue": "#3273b8",
    "stall": "#c7881d",
    "wait": "#b5473c",
    "delay": "#8a929b",
    "memory": "#6d58b0",
    "heat": "#f3c9a2",
    "added": "#dcf5e3",
    "removed": "#fbe3e1",
}
DARK = {
    "paper": "#12161b",
    "card": "#1b2128",
    "ink": "#e6eaef",
    "muted": "#a0aab5",
    "line": "#3a434d",
    "grid": "#283039",
    "link": "#7ab7ff",
    "focus": "#7ab7ff",
    "kept": "#4cc38a",
    "baseline": "#6aa9f0",
    "reverted": "#8f99a4",
    "failed": "#ff7b6e",
    "judged": "#bb95e6",
    "floor": "#b48be0",
    "issue": "#5b9fe3",
    "stall": "#dba641",
    "wait": "#e8776b",
    "delay": "#8f99a4",
    "memory": "#9c87e0",
    "heat": "#6b4a24",
    "added": "#163423",
    "removed": "#432021",
}


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
