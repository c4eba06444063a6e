"""A pytest plugin: values, latency and VMEM of TPU kernels as tests, without a TPU. See ``docs/ci.md``.

@pytest.mark.tpu_kernel(chip="v6e")
def test_scale(ratchet_values, ratchet_latency, ratchet_baseline, ratchet_fits):
    ratchet_values(scale, reference, x)
    assert ratchet_fits(scale, x)
    assert ratchet_latency(scale, x) <= ratchet_baseline
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ratchet.testing.judge import Judge, exported
from ratchet.values.status import Refusal, Status

DEFAULT_CHIP = "v5e"
FILE = "ratchet-baseline.json"
ALLOWED = 0.02
"""Share by which a latency may grow over its baseline, unless the file says another: from this distance on the model
ranks two versions of a kernel right nine times in ten (``ratchet/loop/compare.py``)."""
_TOO_LARGE = (Status.VMEM_OVERFLOW.name, Status.SMEM_OVERFLOW.name)
_STATE = pytest.StashKey["_State"]()


@dataclass(frozen=True, kw_only=True)
class Latency:
    """One modelled latency. ``latency <= ratchet_baseline`` compares it with the committed one."""

    latency_ms: float
    band_ms: tuple[float, float]
    """Where the measured latency is expected, 9 times in 10."""
    chip: str
    compiler: str
    vmem_bytes: int
    spills: int

    def __le__(self, other: Any) -> bool:
        return other.allows(self) if isinstance(other, Baseline) else bool(self.latency_ms <= other)

    def __repr__(self) -> str:
        return f"{self.latency_ms:.6g} ms modelled for {self.chip} ({self.compiler})"


@dataclass(frozen=True, kw_only=True)
class Fits:
    """Whether a program fits in VMEM and SMEM: true or false, with every allocation as text."""

    fits: bool
    text: str

    def __bool__(self) -> bool:
        return self.fits

    def __repr__(self) -> str:
        return self.text


class Baseline:
    """The committed latencies of one test, in the order in which it compares them."""

    def __init__(self, state: _State, test: str) -> None:
        self._state = state
        self._test = test
        self._compared = 0
        self._said = "nothing was compared yet"

    def __repr__(self) -> str:
        return self._said

    def allows(self, latency: Latency) -> bool:
        """Whether a latency is no more than its baseline and its share; ``--ratchet-update`` makes it the baseline."""
        self._compared += 1
        key = self._test if self._compared == 1 else f"{self._test} #{self._compared}"
        if self._state.update:
            self._state.keep(key, latency)
        entry = self._state.entries().get(key)
        if entry is None:
            pytest.fail(f"{self._state.path.name} has no baseline of {key}: run pytest --ratchet-update", pytrace=False)
        before, allowed = float(entry["latency_ms"]), float(entry.get("allowed_share", ALLOWED))
        change = latency.latency_ms / before - 1
        other = "" if entry.get("compiler") == latency.compiler else f", of {entry.get('compiler')}"
        self._said = f"baseline of {before:.6g} ms + {allowed:.1%}{other} (the change is {change:+.2%})"
        self._state.seen.append(f"{key}: {latency.latency_ms:.6g} ms, {change:+.2%} over the baseline")
        return change <= allowed


@dataclass
class _State:
    """Of one session: where baselines are, and what was explained already."""

    path: Path
    update: bool
    jax: str
    """The version that compiles, where it is not the one that is installed."""
    started: Judge | None = None
    explained: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def entries(self) -> dict[str, Any]:
        """What the file holds. Raises UsageError for one that does not read."""
        if not self.path.is_file():
            return {}
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise pytest.UsageError(f"{self.path} is no JSON: {error}") from None
        if not isinstance(entries, dict):
            raise pytest.UsageError(f"{self.path} is {type(entries).__name__}, wanted an object of baselines by test")
        for key, entry in entries.items():
            if not _is_baseline(entry):
                wanted = "latency_ms above 0 and allowed_share of 0 or more"
                raise pytest.UsageError(f"{self.path}: {key!a:.120} is {entry!r:.60}, wanted an object with {wanted}")
        return entries

    def keep(self, key: str, latency: Latency) -> None:
        """Write one entry; the share that somebody allowed stays."""
        entries = self.entries()
        allowed = entries.get(key, {}).get("allowed_share", ALLOWED)
        entries[key] = {**asdict(latency), "allowed_share": allowed}
        self.path.write_text(json.dumps(dict(sorted(entries.items())), indent=2) + "\n")

    def judge(self) -> Judge:
        """The process that compiles and executes, started when it is first needed, or where it died. Raises Refusal."""
        if self.started is None or self.started.process.poll() is not None:
            self.started = Judge.start()
        return self.started

    def export(self, function: Callable[..., Any], inputs: tuple[Any, ...], chip: str) -> tuple[bytes, list[Any]]:
        """A function's program, and the leaves of its inputs. Raises Refusal."""
        return exported(function, inputs, chip, self.judge().stablehlo)

    def explain(self, function: Callable[..., Any], inputs: tuple[Any, ...], chip: str) -> dict[str, Any]:
        """What is to be said of a program, compiled once in a session. Raises Refusal."""
        program, leaves = self.export(function, inputs, chip)
        parts = [program, *(data for data in map(_steering, leaves) if data is not None)]
        key = " ".join([chip, *(hashlib.sha256(part).hexdigest() for part in parts)])
        if key not in self.explained:
            question = {"do": "explain", "chip": chip, "jax": self.jax}
            self.explained[key] = self.judge().ask(question, program, leaves)[0]
        return self.explained[key]


def _steering(leaf: Any) -> bytes | None:
    """The bytes of an array of integers, which may steer; None for others, and for shapes."""
    import numpy as np

    if hasattr(leaf, "shape") and not hasattr(leaf, "__array__"):
        return None
    values = np.asarray(leaf)
    return values.tobytes() if values.dtype.kind in "biu" else None


def _is_baseline(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    given = [entry.get("latency_ms"), entry.get("allowed_share", ALLOWED)]
    numbers = [one for one in given if isinstance(one, int | float) and not isinstance(one, bool)]
    return len(numbers) == len(given) and numbers[0] > 0 and numbers[1] >= 0


def _chips(node: Any) -> str | tuple[str, ...]:
    """The chip or chips that a test's marker names, by position or as ``chip``; it fails for anything else."""
    from ratchet.tpu.chips import CHIPS

    marker = node.get_closest_marker("tpu_kernel")
    if marker is None or not (marker.args or marker.kwargs):
        return DEFAULT_CHIP
    given = [*marker.args, *marker.kwargs.values()]
    named = given[0] if len(given) == 1 and not set(marker.kwargs) - {"chip"} else ()
    several = tuple(named) if isinstance(named, tuple | list) else (named,)
    if not several or not all(isinstance(one, str) and one in CHIPS for one in several):
        wanted = f"wanted tpu_kernel(chip=...) with one or more of {', '.join(CHIPS)}"
        pytest.fail(f"{node.nodeid}: tpu_kernel has {given!r:.80}: {wanted}", pytrace=False)
    return named if isinstance(named, str) else several


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--ratchet-update``, ``--ratchet-jax`` and where baselines are."""
    group = parser.getgroup("ratchet", "TPU kernels, modelled")
    group.addoption("--ratchet-update", action="store_true", help="write the latencies of this run as baselines")
    group.addoption("--ratchet-jax", default="", metavar="VERSION", help="compile with this JAX, not the installed one")
    parser.addini(
        "ratchet_baseline", f"file of committed latencies, beside the configuration; default {FILE}", default=FILE
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", "tpu_kernel(chip): the TPU that ratchet's fixtures compile and model for")
    update = bool(config.getoption("--ratchet-update"))
    if update and (hasattr(config, "workerinput") or getattr(config.option, "numprocesses", None)):
        raise pytest.UsageError("--ratchet-update writes one file: run it without -n")
    path = config.rootpath / str(config.getini("ratchet_baseline"))
    config.stash[_STATE] = _State(path=path, update=update, jax=str(config.getoption("--ratchet-jax")))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test whose marker names several chips runs once for each."""
    chips = _chips(metafunc.definition)
    if not isinstance(chips, str) and "ratchet_chip" in metafunc.fixturenames:
        metafunc.parametrize("ratchet_chip", chips, indirect=True)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The latencies of this run."""
    seen = config.stash[_STATE].seen
    if seen:
        terminalreporter.section("modelled latencies")
        for line in seen:
            terminalreporter.write_line(line)


@pytest.fixture
def ratchet_chip(request: pytest.FixtureRequest) -> str:
    """The chip that the test's marker names."""
    chips = getattr(request, "param", None) or _chips(request.node)
    return chips if isinstance(chips, str) else chips[0]


@pytest.fixture
def ratchet_values(request: pytest.FixtureRequest, ratchet_chip: str) -> Callable[..., Any]:
    """``ratchet_values(fn, reference, *inputs)`` fails unless ``fn`` computes what ``reference`` does, without hazards.

    The program for the TPU is executed on this machine's CPU, its Mosaic modules included. ``rtol`` and ``atol``
    replace the judge's rule for errors. Returns the outputs.
    """
    state = request.config.stash[_STATE]

    def values(
        function: Callable[..., Any],
        reference: Callable[..., Any],
        *inputs: Any,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> tuple[Any, ...]:
        program, leaves = _or_skip(lambda: state.export(function, inputs, ratchet_chip))
        said, outputs = _or_skip(lambda: state.judge().ask({"do": "execute"}, program, leaves))
        from ratchet.testing.checking import checked  # imports NumPy, which comes with JAX

        result = _or_skip(lambda: checked(said["findings"], outputs, reference, inputs, rtol=rtol, atol=atol))
        problems = list(result.findings)
        problems += [
            f"output {number}: {one.status.name}: {one.message}"
            for number, one in enumerate(result.comparisons)
            if one.status.name != "PASS"
        ]
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)
        return result.outputs

    return values


@pytest.fixture
def ratchet_latency(request: pytest.FixtureRequest, ratchet_chip: str) -> Callable[..., Latency]:
    """``ratchet_latency(fn, *inputs)`` is the modelled latency; compare it with ``ratchet_baseline``, or with ms."""
    state = request.config.stash[_STATE]

    def latency(function: Callable[..., Any], *inputs: Any) -> Latency:
        one = _or_skip(lambda: state.explain(function, inputs, ratchet_chip))
        if "latency_ms" not in one:
            pytest.fail(f"{one['status']}: {one['reason']}", pytrace=False)
        low, high = one["band_ms"]
        known = {name: one[name] for name in ("latency_ms", "compiler", "vmem_bytes", "spills")}
        return Latency(chip=ratchet_chip, band_ms=(low, high), **known)

    return latency


@pytest.fixture
def ratchet_baseline(request: pytest.FixtureRequest) -> Baseline:
    """The committed latencies of this test."""
    return Baseline(request.config.stash[_STATE], request.node.nodeid)


@pytest.fixture
def ratchet_fits(request: pytest.FixtureRequest, ratchet_chip: str) -> Callable[..., Fits]:
    """``assert ratchet_fits(fn, *inputs)``: it fits in VMEM and SMEM; else the assertion shows what fills them."""
    state = request.config.stash[_STATE]

    def fits(function: Callable[..., Any], *inputs: Any) -> Fits:
        one = _or_skip(lambda: state.explain(function, inputs, ratchet_chip))
        fitting = Fits(fits=one["status"] not in _TOO_LARGE, text=one["vmem"])
        if not fitting:  # pytest shortens what an assertion shows, and leaves this whole
            print(fitting.text)
        return fitting

    return fits


def _or_skip(act: Callable[[], Any]) -> Any:
    """What ``act`` returns. A machine that the TPU compiler has no build for skips the test, and says so; what else is
    refused fails it, with the reason and the line of the user's code that raised."""
    try:
        return act()
    except Refusal as refusal:
        if refusal.status is Status.UNSUPPORTED_PLATFORM:
            pytest.skip(refusal.message)
        said = f"{refusal.status.name}: {refusal.message}{_place(refusal.__cause__)}"
    pytest.fail(said, pytrace=False)


def _place(error: BaseException | None) -> str:
    """Where it was raised: the innermost frame that is no installed package's."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    own = [frame for frame in frames if "site-packages" not in frame.filename and not _is_ours(frame.filename)]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _is_ours(file: str) -> bool:
    return Path(file).is_relative_to(Path(__file__).parents[1])
