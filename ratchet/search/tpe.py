"""Optuna's tree-structured Parzen estimator, asked for points of a finite space."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from ratchet.search.space import Axis, Key, Observation, Space
from ratchet.values import Literal, Point
from ratchet.values.status import Refusal, Status

STARTUP = 8
"""Points that are drawn at random before the estimator has anything to go by."""
_REPEATS = 32
"""After so many points in a row that were tried already, it is asked no more."""


@cache
def optuna() -> ModuleType:
    """The library, silent.

    Raises:
      Refusal: ``INFRASTRUCTURE`` where it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        message = f"Optuna cannot be imported ({error}): the judge's environment has it, and the extra `search`"
        raise Refusal(Status.INFRASTRUCTURE, message) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def points(space: Space, observations: Sequence[Observation], is_open: Callable[[Point], bool]) -> Iterator[Point]:
    """Points in the order in which the estimator gives them, each of them asked for with those before it under way.

    The estimator is made anew from what was tried: a kernel that was refused ranks below all that have a latency.
    """
    library = optuna()
    sampler = library.samplers.TPESampler(
        seed=len(observations), n_startup_trials=STARTUP, multivariate=False, constant_liar=True
    )
    study = library.create_study(sampler=sampler)
    study.add_trials([frozen(space, one) for one in observations])
    wanted, repeats = distributions(space), 0
    given: set[Key] = set()
    while repeats < _REPEATS:
        trial = study.ask(wanted)
        point = {axis.name: axis.values[trial.params[axis.name]] for axis in space.axes}
        if is_open(point) and space.key(point) not in given:
            repeats = 0
            given.add(space.key(point))
            yield point
        else:
            repeats += 1
            study.tell(trial, state=library.trial.TrialState.FAIL)


def frozen(space: Space, one: Observation) -> Any:
    """A tried point as a trial of Optuna's."""
    library = optuna()
    states = library.trial.TrialState
    return library.trial.create_trial(
        params={axis.name: axis.index(one.point[axis.name]) for axis in space.axes},
        distributions=distributions(space),
        value=one.latency_ms,
        state=states.COMPLETE if one.passed else states.PRUNED,
        user_attrs={
            "point": {name: _json(value) for name, value in one.point.items()},
            "status": one.status.name,
            "row": one.id,
            "kept": one.kept,
        },
    )


def distributions(space: Space) -> dict[str, Any]:
    """Every knob as the place of its value among its own: a step from one number to the next counts as one."""
    return {axis.name: _distribution(axis) for axis in space.axes}


def _distribution(axis: Axis) -> Any:
    library, last = optuna(), len(axis.values) - 1
    if axis.ordered:
        return library.distributions.IntDistribution(0, last)
    return library.distributions.CategoricalDistribution(tuple(range(last + 1)))


def _json(value: Literal) -> Literal:
    return repr(value) if isinstance(value, float) else value
