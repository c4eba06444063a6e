"""What no machine here runs has no latency: SparseCores, the host, custom calls without code, TensorCores that talk."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from ratchet.tpu.chips import TPU7X, V5P, Chip
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.machine import run as running
from ratchet.tpu.machine.elsewhere import Part, elsewhere, handed, received, refusal
from ratchet.values.status import Status
from ratchet.values.tokens import TokenTable
from tests.hlo_texts import hlo_of

HANDED = """HloModule m

%inner (p: f32[8,128]) -> f32[8,128] {{
  %p = f32[8,128] parameter(0)
  ROOT %k_0.3 = f32[8,128] {work}
}}

ENTRY %main (x: f32[8,128]) -> f32[8,128] {{
  %x = f32[8,128] parameter(0)
  %twice = f32[8,128] add(%x, %x)
  %prepare_start_handed-start = s32[] custom-call(), custom_call_target="PrepareAsyncCallStart"
  %handed-start = ((f32[8,128]), f32[8,128], u32[]) async-start(%twice), calls=%inner
  ROOT %handed-done = f32[8,128] async-done(%handed-start), calls=%inner
}}
"""
SPARSE = (
    'custom-call(%p), custom_call_target="tpu_custom_call", backend_config={"device_type":"DEVICE_TYPE_SPARSECORE"}'
)


STARTED = HANDED.replace(
    '  %prepare_start_handed-start = s32[] custom-call(), custom_call_target="PrepareAsyncCallStart"\n', ""
).replace("async-start(%twice)", 'async-start(%twice), async_execution_thread="sparsecore"')
"""As a newer compiler has it: nothing prepares the operation."""


def parts(text: str, code: tuple[str, ...] = (), chip: Chip = V5P) -> list[Part]:
    return elsewhere(hlo_of(text), chip, lambda name: name in code, lambda _: False)


@pytest.mark.parametrize("work", [SPARSE, SPARSE.replace("SPARSECORE", "X"), "add(%p, %p)", "exponential(%p)"])
@pytest.mark.parametrize("text", [HANDED, STARTED])
def test_what_a_sparse_core_computes_is_not_modelled(text: str, work: str) -> None:
    (part,) = parts(text.format(work=work))
    assert part.where == "the SparseCores"


@pytest.mark.parametrize("text", [HANDED, STARTED])
def test_what_a_sparse_core_copies_is(text: str) -> None:
    assert parts(text.format(work="copy(%p)")) == []
    hlo = hlo_of(text.format(work="copy(%p)"))
    assert handed(hlo, hlo.entry_ops()) == ["handed-start"]


@pytest.mark.parametrize(
    ("work", "size"),
    [
        ("collective-permute(%p), source_target_pairs={{0,1},{1,0}}", 8 * 128 * 4),
        ("all-to-all(%p), replica_groups={{0,1}}", 0),
        ("add(%p, %p)", None),
        ("copy(%p)", None),
    ],
)
def test_what_sparse_cores_exchange_is_modelled_where_it_was_timed(work: str, size: int | None) -> None:
    text = HANDED.format(work=work)
    assert received(hlo_of(text), "handed-start") == size, "all-to-all: of one device, nothing"
    assert len(parts(text)) == (work != "copy(%p)"), "none was timed on v5p"
    assert len(parts(text, chip=TPU7X)) == (work.startswith("add"))


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ('ROOT %c = f32[8] custom-call(%x), custom_call_target="Mystery"', "custom call Mystery"),
        ('ROOT %c = f32[8] custom-call(%x), custom_call_target="xla_python_cpu_callback"', "the host"),
        ("%t = token[] after-all()\n  ROOT %c = token[] outfeed(%x, %t)", "the host"),
        ("ROOT %c = f32[8]{0:S(5)} copy(%x)", "the host"),
        (f"ROOT %c = f32[8] {SPARSE}".replace("%p", "%x"), "the SparseCores"),
    ],
)
def test_what_has_no_code_or_is_on_another_unit_is_not_modelled(line: str, where: str) -> None:
    assert parts(f"%x = f32[8] parameter(0)\n  {line}") == [Part("c", where)]


def test_custom_calls_with_code_or_without_work_are() -> None:
    text = """%x = f32[8] parameter(0)
  %c = f32[8] custom-call(%x), custom_call_target="Mystery"
  %b = f32[8] custom-call(), custom_call_target="AllocateBuffer"
  ROOT %d = f32[16] custom-call(%b, %c), custom_call_target="ConcatBitcast" """
    assert parts(text, code=("c",)) == []


def test_the_refusal_says_what_and_how_much() -> None:
    hlo = hlo_of(HANDED.format(work=SPARSE))
    said = refusal(hlo, elsewhere(hlo, V5P, lambda _: False, lambda _: False), TokenTable(names={"k_0": "gather"}))
    assert said.status is Status.NOT_MODELLED
    assert said.message.startswith("gather.3 (the SparseCores): ")
    assert "modelled are 1 of 2 operations" in said.message


@dataclass(frozen=True, kw_only=True)
class Core:
    """What a run of one core is known by."""

    cycles: int
    beside: tuple[Core, ...] = ()


@pytest.mark.parametrize(("cores", "slower"), [(1, 10), (2, 70)])
def test_the_core_that_takes_longer_decides(monkeypatch: pytest.MonkeyPatch, cores: int, slower: int) -> None:
    class Fake:
        def __init__(self, *_: object, start_up: dict[str, int] | None = None, take_undecided: object) -> None:
            self.cores_of, self.core = {"k": cores}, (start_up or {}).get("core index", 0)

        def execute(self) -> object:
            return Core(cycles=70 if self.core else 10)

    monkeypatch.setattr(running, "Machine", Fake)
    programs = SimpleNamespace(hlo=HloModule(ops={}, entry="main"), chip=V5P)
    slowest = running.run(programs).slowest  # type: ignore[arg-type]
    assert slowest.cycles == slower
    assert [one.cycles for one in slowest.beside] == ([] if cores == 1 else [10]), "what both did counts together"
