"""A large program is compiled by a process that profiles, and what is around its kernels by another."""

import functools
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from ratchet.process import fast
from ratchet.process.sandbox.child import Ending
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.compiler.fast import inside, route
from ratchet.tpu.compiler.fast.bundles import scheduled
from ratchet.tpu.dump.files import LAST_PASS, LISTING_PASS, OUTLINE_PASS, UTILISATION_PASS, Dumps, load_hlo
from ratchet.values.status import Refusal, Status
from tests.exam.judge.programs import artefact, blocked, double
from tests.refusals import refused
from tests.tpu.compiler.test_compile import X, too_large
from tests.tpu.compiler.test_fast_bundles import SCHEDULE, TEXT


def walking(x_ref, o_ref):
    """A loop, a branch and copies: a kernel whose listing has targets."""

    def add(number, total):
        return total + x_ref[pl.ds(pl.multiple_of(number * 8, 8), 8)]

    o_ref[...] = jnp.zeros_like(o_ref)

    @pl.when(x_ref[0, 0] > 0)
    def _positive():
        o_ref[:8] = jax.lax.fori_loop(0, 4, add, jnp.zeros((8, 128), jnp.float32))


def between(x):
    """A kernel between operations of XLA's own."""
    return jnp.tanh(blocked(walking)(x - jnp.max(x, axis=0)).T)


@pytest.fixture
def whole(workers, monkeypatch):
    """Compiles by the fast route, or by a plain compiler."""
    monkeypatch.setattr(route, "LARGE_BYTES", 0)

    def compile_it(program, limits=compiling.LIMITS):
        folder, profiler = workers.folder("test"), functools.partial(workers.profiler_for, V5E)
        return compiling.compile_artefact(program, V5E, folder, workers.compiler, limits, profiler=profiler)

    return compile_it


@pytest.fixture
def apart(whole, monkeypatch):
    """As ``whole``, where a plain compile fails."""

    def compile_it(program):
        with monkeypatch.context() as patch:
            patch.setattr(compiling, "remove", lambda _: pytest.fail("compiled plainly"))
            return whole(program)

    return compile_it


def read(program):
    dumps = Dumps(program.dump_dir / "schedule", load_hlo(program.dump_dir), program.compiler)
    return {name: (tuple(dumps.load(name).bundles), dumps.load(name).allocations) for name in dumps.names}


@pytest.mark.parametrize("function", [blocked(double), between], ids=["a kernel alone", "among operations"])
def test_every_unit_reads_as_in_a_plain_compile(function, apart, compiled):
    program = artefact(function, X)
    sooner, plain = apart(program), compiled(program)
    assert read(sooner) == read(plain)
    assert len(read(sooner)) >= 4
    assert sooner.footprint == plain.footprint
    assert sooner.copies == plain.copies
    assert not list(sooner.dump_dir.glob("schedule/*post-delay*"))
    assert not list(sooner.dump_dir.parent.glob("*-stubbed"))


def test_where_the_two_do_not_fit_it_is_compiled_as_any_other(whole, compiled, monkeypatch):
    moved = []
    monkeypatch.setattr(route, "add_around", lambda schedule, stubs: moved.append(stubs.is_dir()))
    program = artefact(between, X)
    sooner = whole(program)
    assert moved == [True]
    assert read(sooner) == read(compiled(program))
    assert not list(sooner.dump_dir.glob("schedule/*post-delay*"))  # what was made of it before is gone
    assert not list(sooner.dump_dir.parent.glob("*-stubbed"))


def test_what_a_profiling_compiler_dies_of_is_compiled_plainly(whole, compiled, monkeypatch):
    plain, died = route.compiled_apart, Ending(how="died", answer="", returncode=-11, tail="", seconds=1)

    def dies(*given):
        monkeypatch.setattr(given[2], "ask", lambda *_: died)
        return plain(*given)

    monkeypatch.setattr(route, "compiled_apart", dies)
    program = artefact(between, X)
    assert read(whole(program)) == read(compiled(program))


def test_what_a_plain_compiler_dies_of_is_not_asked_again(whole):
    with refused(Status.COMPILER_CRASHED, "more than 1 MiB"):
        whole(artefact(between, X), replace(compiling.LIMITS, memory_bytes=1 << 20))
    assert whole(artefact(between, X)).kernels


def test_what_does_not_fit_is_refused_as_by_a_plain_compile_and_the_next_has_its_own_bundles(
    whole, apart, compiled, not_compiled
):
    with pytest.raises(Refusal) as caught:
        whole(too_large())
    assert caught.value.status is Status.VMEM_OVERFLOW
    assert caught.value.message == not_compiled(too_large()).message
    program = artefact(blocked(walking), X)
    assert read(apart(program)) == read(compiled(program))


def test_switched_off_every_program_is_compiled_plainly(workers, compiled, monkeypatch):
    monkeypatch.setattr(route, "LARGE_BYTES", 0)
    monkeypatch.setattr(fast, "ON", replace(fast.ON, profiles=False))
    program, folder = artefact(blocked(double), X), workers.folder("test")
    plain = compiling.compile_artefact(program, V5E, folder, workers.compiler, profiler=lambda: pytest.fail("asked"))
    assert read(plain) == read(compiled(program))


ALL = (LAST_PASS, LISTING_PASS, OUTLINE_PASS, UTILISATION_PASS)


def dump(folder, name, passes, text="text"):
    folder.mkdir(exist_ok=True)
    for number, label in enumerate(passes):
        (folder / f"17-{name}-{number:02}-{label}.txt").write_text(f"{text} {name} {label}")


@pytest.fixture
def folders(tmp_path):
    real, stubs = tmp_path / "real", tmp_path / "stubs"
    dump(real, "kernel_0.3", ALL[1:], "real")
    dump(stubs, "kernel_0.3", ALL, "stubs")
    for name in ("TLP", "<late-initialization>"):
        dump(real, name, ALL[:1])
        dump(stubs, name, ALL)
    (stubs / "17-TLP-schedule-analysis_packed-09-packed-bundles-post-ra.txt").write_text("")
    (real / "17-TLP-01-vmem_report.html").write_text("")
    return real, stubs


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_what_is_around_is_taken_and_the_kernel_stays(folders):
    real, stubs = folders
    assert route.add_around(real, stubs)
    assert not [name for name in names(real) if LAST_PASS in name or "analysis" in name]
    for name in ("TLP", "<late-initialization>"):
        assert {f"17-{name}-0{n}-{label}.txt" for n, label in enumerate(ALL[1:], 1)} <= names(real)
    assert (real / f"17-kernel_0.3-00-{LISTING_PASS}.txt").read_text().startswith("real")
    assert "17-TLP-01-vmem_report.html" in names(real)


def nothing_around(real, stubs):
    for folder in (real, stubs):
        for path in [*folder.glob("17-TLP-*"), *folder.glob("17-<*")]:
            path.unlink()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda real, stubs: dump(stubs, "TLP", ALL[:1], "another"), id="another text"),
        pytest.param(lambda real, stubs: dump(real, "fusion", ALL[:1]), id="a unit only here"),
        pytest.param(lambda real, stubs: dump(stubs, "fusion", ALL), id="a unit only there"),
        pytest.param(lambda real, stubs: (stubs / f"17-TLP-01-{LISTING_PASS}.txt").unlink(), id="no bundles there"),
        pytest.param(
            lambda real, stubs: (real / f"17-kernel_0.3-00-{LISTING_PASS}.txt").unlink(), id="none of the kernel"
        ),
        pytest.param(nothing_around, id="nothing around"),
        pytest.param(lambda real, stubs: shutil.rmtree(stubs), id="nothing there"),
    ],
)
def test_nothing_is_moved_where_they_differ(folders, change):
    real, stubs = folders
    change(real, stubs)
    before = names(real)
    assert not route.add_around(real, stubs)
    assert names(real) == before


def test_a_unit_that_no_profile_has_is_left_to_a_plain_compile(tmp_path):
    late = f"17-kernel_0.3-00-{LAST_PASS}.txt"
    for name in (late, late.replace("kernel_0.3", "TLP")):
        (tmp_path / name).write_text(TEXT)
    inside.write_units(tmp_path, {"kernel_0.3": SCHEDULE})
    assert (tmp_path / f"17-kernel_0.3-00-{LISTING_PASS}.txt").read_text() == scheduled(TEXT, SCHEDULE)[LISTING_PASS]
    assert [path.name for path in tmp_path.glob(f"*{LAST_PASS}*")] == [late.replace("kernel_0.3", "TLP")]
