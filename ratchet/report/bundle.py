"""The JavaScript that draws charts in a page: Vega, Vega-Lite and Vega-Embed, as their maintainers ship them."""

from __future__ import annotations

import functools


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
