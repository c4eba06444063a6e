"""What an agent needs of a long JSON document first. Selects, and says nothing of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_A_VERDICT = ("reason", "hint", "score", "footprint", "losses", "notes", "remembered", "seconds")
_OF_A_FOOTPRINT = ("vmem_bytes", "vmem_limit_bytes", "spill_stores", "spill_loads")


def of_turn(document: Mapping[str, Any]) -> dict[str, Any]:
    """Of the document of one turn (``verdict.schema.json``): the outcome, and the verdict without tables."""
    verdict = document.get("verdict")
    short: dict[str, Any] = {"outcome": document.get("outcome")}
    if verdict is not None:
        short["verdict"] = {name: verdict[name] for name in _OF_A_VERDICT if verdict.get(name) not in (None, [], "")}
        if verdict.get("footprint"):
            short["verdict"]["footprint"] = {name: verdict["footprint"][name] for name in _OF_A_FOOTPRINT}
        failed = [step for step in verdict["steps"] if step["status"] != "PASS"]
        disagree = [claim for claim in verdict["claims"] if not claim["agrees"]]
        short["verdict"] |= {"failed_steps": failed} if failed else {}
        short["verdict"] |= {"claims_that_disagree": disagree} if disagree else {}
    return short
