"""Records of public kernels as tables and as ``docs/coverage.md``. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.coverage.calls import CASES
from benchmarks.coverage.repositories import REPOSITORIES

Record = Mapping[str, Any]
STEPS = ("traced", "compiled", "executed", "modelled")

_HEAD = """# Public kernels

Written by `python -m benchmarks.coverage --sources DIR --page docs/coverage.md`. Each line is one public Pallas TPU
kernel, or a variant of one that takes another path through it, as its repository has it: called by a few lines of ours
at small shapes, compiled for v5e, executed for its values with hazards, and modelled. No code of theirs is in this
repository.

Values are compared with the repository's own reference, or one that says the same in plain JAX (`reference`), else with
Pallas's interpreter (`interpreter`). *Error* is the largest of any output over that output's largest value. A *finding*
is a hazard that the judge reports of the kernel as it is called here. Its outputs are then not compared. None was
confirmed on a TPU; what each is in the kernel's source was read, and is said below.

*NOT_CALLED*: our few lines cannot trace it under the judge's JAX: it wants a newer one, a mesh of many chips, or
another package. Some modules of tokamax and MaxText have the syntax of Python 3.12: run those under it
(`--resume` adds them to the same file). What does not compile is refused by Google's compiler
and does not count against the judge.
"""


READ = {
    "sglang-jax/ragged paged attention, window": (
        "The loop over blocks of keys begins at block 0 (line 1038), the copies begin at `bkv_idx_start`, the "
        "first block that the window reaches (lines 870 and 1078). Sequence 1 has 60 keys, one query and a window "
        "of 20 here, so that in grid step (1,) the copy of block 1, with 28 keys, is waited for as block 0, with "
        "32: more than was started. The schedule machine ends at the same wait of the compiled program. On a TPU "
        "that hangs."
    ),
    "sglang-jax/greedy verification of a tree": (
        "`o_predicts_ref` is written at the accepted tokens alone (in `on_true`). The caller's `predicts` is donated, "
        "but no input is aliased to the output, so that its other elements, 10 of 13 here, are what memory held. "
        "Which of them a caller reads was not looked at."
    ),
    "jetstream/chunked prefill": (
        "Keys and values, and both buffers of each, share one semaphore, which counts bytes: a wait for keys is "
        "over as well when as many bytes of values have come, or of the next block. So keys may be read, and the "
        "copy of the next head's first block (line 94) may begin, before the block has come; with one head and "
        "one block already all 8192 elements of output 0 differ where values come first. It is right where copies "
        "arrive in the order in which they were started, which nothing promises."
    ),
    "maxtext/grouped matmul v2": (
        "In a tile that is full to its 128th row, `last_row` is 16, and `tiled_out_ref[last_row]` (line 621) "
        "loads the 17th of 16 blocks of rows. `jnp.where` does not take what was loaded, so that no element of "
        "the output depends on it."
    ),
}
"""By kernel, what a finding of it is, as its source says at the commit that is listed."""


def totals(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Kernels by repository and in all: how many reached which step."""
    rows = []
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["name"].partition("/")[0], []).append(record)
    for name, group in (*groups.items(), ("all", list(records))):
        compiled = [one for one in group if one.get("compiled") == "yes"]
        whole = sum(one.get("executed") == one.get("modelled") == "yes" for one in compiled)
        rows.append(
            {
                "repository": REPOSITORIES[name].origin if name in REPOSITORIES else name,
                "kernels": len(group),
                "traced": sum(one.get("traced") == "yes" for one in group),
                "compiled": len(compiled),
                "executed": sum(one.get("executed") == "yes" for one in compiled),
                "right": sum(one.get("values") == "right" for one in compiled),
                "findings": sum(one.get("values") == "finding" for one in compiled),
                "modelled": sum(one.get("modelled") == "yes" for one in compiled),
                "both": whole,
                "share of compiled": f"{whole / len(compiled):.0%}" if compiled else "",
            }
        )
    return rows


def row(record: Record) -> dict[str, Any]:
    """One kernel's line."""
    error = record.get("error")
    compared = ", ".join(filter(None, (record.get("values"), record.get("compared_with"))))
    return {
        "kernel": record["name"],
        **{step: record.get(step, "") for step in STEPS[:3]},
        "values": compared,
        "error": None if error is None else f"{error:.1e}",
        "modelled": record.get("modelled", ""),
        "µs": None if record.get("latency_ms") is None else f"{1000 * record['latency_ms']:.2f}",
    }


def in_words(record: Record) -> str:
    """One line for whoever waits."""
    steps = [f"{step} {record[step]}" for step in STEPS if record.get(step)]
    reasons = "; ".join(f"{step}: {why:.400}" for step, why in record.get("reasons", {}).items())
    values = f"; values {record['values']} {record.get('error')}" if record.get("values") else ""
    return ", ".join(steps) + values + (f" ({reasons})" if reasons else "")


def refusals(records: Sequence[Record]) -> list[tuple[str, str, str, str]]:
    """Step, status, kernel and reason of everything that was refused."""
    return [
        (step, record.get(step, "") or record.get("values", ""), record["name"], why)
        for step in (*STEPS, "values")
        for record in records
        for why in [record.get("reasons", {}).get(step)]
        if why
    ]


def text(records: Sequence[Record]) -> str:
    """The page."""
    counted = Counter((step, status) for step, status, _, _ in refusals(records))
    missing = len(CASES) - len(records)
    left = [f"\n{missing} more kernels of the list were not run for this page.\n"] if missing else []
    parts = [_HEAD, "\n## In all\n", _markdown(totals(records)), *left]
    if counted:
        parts += ["\n## Refused by which name\n", _markdown([
            {"step": step, "name": status, "kernels": many} for (step, status), many in sorted(counted.items())
        ])]  # fmt: skip
        parts += [
            "\n",
            *(f"- *{name}*, {step}: {status}: {_short(why)}\n" for step, status, name, why in refusals(records)),
        ]
    found = [one["name"] for one in records if one.get("values") == "finding" and one["name"] in READ]
    if found:
        parts += ["\n## What the findings are\n", "\n", *(f"- *{name}*: {READ[name]}\n" for name in found)]
    parts += ["\n## Every kernel\n", _markdown([row(record) for record in records])]
    parts += ["\n## Where they are\n", _markdown([
        {"repository": one.origin, "commit": one.commit, "kernels": _paths(name)} for name, one in REPOSITORIES.items()
    ])]  # fmt: skip
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


def _paths(repository: str) -> str:
    paths = dict.fromkeys(entry.path for entry in CASES.values() if entry.repository == repository)
    return ", ".join(f"`{path}`" for path in paths)


def _short(why: str) -> str:
    return " ".join(why.replace("|", "/").split())[:240]


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    head = list(rows[0]) if rows else []
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    cells = [[("" if one[name] is None else str(one[name])).replace("|", "/") for name in head] for one in rows]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)])
