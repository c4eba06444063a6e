"""What ``import ratchet`` gives: programs, as :mod:`ratchet.tpu.library` has them; kernel files judged; the ledger.

JAX is imported when a function is traced or executed, pandas when the ledger is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.exam.measure.session import BUDGET_SECONDS
from ratchet.process import paths
from ratchet.process.boot.home import PACKAGE_ROOT
from ratchet.tpu.library import compile, execute, explain, export, model, steering  # noqa: F401 - names of the library's
from ratchet.tpu.mosaic.findings import RunResult  # noqa: F401 - likewise
from ratchet.values import Refusal, Status, Verdict
from ratchet.view import html
from ratchet.wiring import RepositoryJudge, evaluator

if TYPE_CHECKING:
    from ratchet.loop.table import DataFrame

html.register()


def judge_kernel(
    kernel: str | Path, *, on: str | None = None, deep: bool = False, budget_s: float = BUDGET_SECONDS
) -> Verdict:
    """Judge a kernel file as ``./ratchet.sh`` does, without a row, a commit or evidence.

    A kernel file without a frozen problem that passes gets one, beside it.

    Args:
        kernel: the kernel file, with its seven symbols.
        on: ``tpu``, ``gpu`` or ``cpu`` to measure, ``v5e-model``, ``v6e-model`` and so on to model; by default an
            attached TPU, else ``v5e-model``.
        deep: execute in a third grid order as well, and compare every row of every instance in float64.
        budget_s: measured: how long to time at most, in seconds.

    Returns:
        The verdict; whatever is wrong with the kernel is its ``status`` and ``reason``.

    Raises:
        Refusal: ``NOT_FOUND`` without such a file or outside a checkout of pallas-ratchet, ``UNSUPPORTED_PLATFORM``,
            ``NO_SPACE``, ``LEDGER_UNWRITABLE``.
    """
    path = Path(kernel).resolve()
    if not paths.is_file(path):
        raise Refusal(Status.NOT_FOUND, f"{kernel} is no file, wanted a kernel file")
    try:
        from prepare import judge
    except ModuleNotFoundError:
        message = f"prepare.py is not on the path: judging needs a checkout of pallas-ratchet, not {PACKAGE_ROOT}"
        raise Refusal(Status.NOT_FOUND, message) from None
    own = RepositoryJudge(root=PACKAGE_ROOT, function=judge, evaluator=evaluator(on), budget_s=budget_s, deep=deep)
    inside = path.is_relative_to(PACKAGE_ROOT)
    return own.judge(path, kernel_rel=(path.relative_to(PACKAGE_ROOT) if inside else path).as_posix())


def ledger(path: str | Path = "results.tsv") -> DataFrame:
    """The ledger as a DataFrame, one row per experiment, oldest first, its chain of hashes verified.

    Returns:
        Columns as in the file, units in their names. Numbers are Float64 and Int64, ``time`` is UTC, the others are
        text; what is empty in the file is NA.

    Raises:
        Refusal: ``NOT_FOUND``, ``LEDGER_BROKEN``.
    """
    from ratchet.loop import table

    if not paths.is_file(Path(path)):
        raise Refusal(Status.NOT_FOUND, f"{path} is no file, wanted a ledger such as results.tsv")
    return table.read(Path(path))
