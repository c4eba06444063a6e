"""A function's values on a TPU against a reference's, in this process: for tests of kernels in their own repository.

The program that would be compiled is executed, Mosaic modules and all, with what must not matter changed
(``mosaic/run.py``). The reference is evaluated once more in float64, together with what honest arithmetic loses on the
way (``candidate/promote.py``), so nobody has to choose a tolerance: the judge's rule decides (``judge/parity.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratchet.exam.problem import fitting, parity
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What became of one check."""

    findings: tuple[str, ...]
    """Hazards and accesses out of bounds: with any of them, values are chance."""
    comparisons: tuple[parity.Comparison, ...]
    """One for each output."""
    outputs: tuple[np.ndarray, ...]

    @property
    def passed(self) -> bool:
        return not self.findings and all(one.status is Status.PASS for one in self.comparisons)

    @property
    def worst(self) -> float:
        """Largest error over its allowance; 1.0 is the limit."""
        return max((one.worst for one in self.comparisons), default=0.0)


def checked(
    findings: Sequence[str],
    outputs: Sequence[np.ndarray],
    reference: Callable[..., Any],
    arrays: Sequence[Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> Checked:
    """Compare what was executed with ``reference`` on the same inputs.

    Args:
        findings: of the execution, in words.
        outputs: of the execution.
        reference: a JAX function of ``arrays``, with outputs of the same shapes.
        arrays: the inputs; pytrees too.
        rtol: instead of the judge's rule: an error may be this share of the reference's value, or ``atol``.
        atol: see ``rtol``.

    Raises:
        Refusal: ``WRONG_SHAPE`` for outputs of other shapes; ``CANNOT_VERIFY`` for a reference that has no meaning in
            float64, or that is unstable in its own dtypes: give ``rtol`` and ``atol``.
    """
    import jax

    leaves, tree = jax.tree.flatten(arrays)
    cpu = jax.devices("cpu")[0]

    def flat(*given: Any) -> list[Any]:
        return jax.tree.leaves(reference(*jax.tree.unflatten(tree, given)))

    with jax.default_device(cpu):
        given = [np.asarray(jax.numpy.asarray(leaf)) for leaf in leaves]
        native = [np.asarray(leaf) for leaf in jax.jit(flat)(*given)]
    got, wanted = ([(one.shape, one.dtype.name) for one in each] for each in (outputs, native))
    if got != wanted:
        raise Refusal(Status.WRONG_SHAPE, f"the function gives {got}, its reference {wanted}")
    if rtol is not None or atol is not None:
        exact, losses = native, [np.zeros(one.shape) for one in native]
        compare = _within(rtol or 0.0, atol or 0.0)
    else:
        exact, losses = _widened(flat, given, native, cpu)
        compare = parity.compare
    comparisons = tuple(compare(*three) for three in zip(outputs, exact, losses, strict=True))
    return Checked(findings=tuple(findings), comparisons=comparisons, outputs=tuple(outputs))


def _widened(
    flat: Callable[..., list[Any]], given: Sequence[np.ndarray], native: Sequence[np.ndarray], cpu: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The reference in float64 and its losses, with which the native one passes with a margin."""
    import jax

    from ratchet.exam.problem.promote import with_losses

    avals = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in given]
    try:
        wide = with_losses(flat, *avals)
        with jax.default_device(cpu), jax.enable_x64(True):
            both = [np.asarray(one) for one in jax.jit(wide)(*given)]
    except NotImplementedError as error:
        raise Refusal(Status.CANNOT_VERIFY, f"{error}: give rtol and atol") from None
    except (AttributeError, ImportError) as error:  # of a JAX whose insides are not those that the rules know
        what = f"rounding cannot be followed under jax {jax.__version__} ({error})"
        raise Refusal(Status.CANNOT_VERIFY, f"{what}: give rtol and atol") from None
    exact, losses = both[: len(native)], both[len(native) :]
    fitted = [fitting.fitted(*three) for three in zip(native, exact, losses, strict=True)]
    worst = max((times for _, times, _ in fitted), default=1.0)
    if worst > fitting.WIDEST:
        message = f"the reference in its own dtypes is {worst:.3g} times as far off float64 as can be explained"
        raise Refusal(Status.CANNOT_VERIFY, f"{message}: make it stable, or give rtol and atol")
    return exact, [loss for loss, *_ in fitted]


def _within(rtol: float, atol: float) -> Callable[[np.ndarray, np.ndarray, np.ndarray], parity.Comparison]:
    """Compares by tolerances that somebody chose."""

    def compare(got: np.ndarray, exact: np.ndarray, _loss: np.ndarray) -> parity.Comparison:
        wide, wanted = got.astype(np.float64), exact.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            same = (wide == wanted) | (np.isnan(wide) & np.isnan(wanted))
            over = np.where(same, 0.0, np.abs(wide - wanted) / (atol + rtol * np.abs(wanted)))
        over = np.where(np.isfinite(over), over, np.inf)
        worst = float(over.max()) if over.size else 0.0
        place = [int(one) for one in np.unravel_index(int(np.argmax(over)), over.shape)] if over.size else []
        said = f"{worst:.3g} times {rtol=:g} and {atol=:g}; {place}: got {wide[tuple(place)]:g}, " if over.size else ""
        return parity.Comparison(
            status=Status.PASS if worst <= 1.0 else Status.WRONG_VALUES,
            worst=worst,
            rms=0.0,
            floor_rms=0.0,
            message=f"{said}wanted {wanted[tuple(place)]:g}" if over.size else "it has no elements",
        )

    return compare
