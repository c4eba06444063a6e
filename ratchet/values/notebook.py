"""How values show themselves in a notebook: by a renderer that the view registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RENDERERS: dict[str, Callable[[Any], str]] = {}
"""HTML of a value, by the name of its class. Filled by ``view/html.py``, which ``import ratchet`` brings along."""


class Shown:
    """A value that a notebook shows as HTML where a renderer is known, and as text elsewhere."""

    def _repr_html_(self) -> str | None:
        renderer = RENDERERS.get(type(self).__name__)
        return renderer(self) if renderer else None
