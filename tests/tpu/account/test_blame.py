"""Blame: every cycle once, to the cycle; lines, stalls and units by the compiler's own words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.account.costs import ISSUE_SLOTS, Activity, Cell, Placed, costs_of, executed, placed, whole
from ratchet.tpu.account.places import places
from ratchet.tpu.account.reasons import reasons
from ratchet.tpu.account.regions import Sums
from ratchet.tpu.account.stalls import Stall, stalls
from ratchet.tpu.chips.units import slots
from ratchet.tpu.dump.columns import Columns, flat
from ratchet.tpu.dump.instruction import Instruction
from ratchet.tpu.dump.listing import Listing, read_instruction
from ratchet.values import Timeline
from ratchet.values.blame import BRANCH, OTHER, RESULTS, STORES, WEIGHTS, LineCost
from ratchet.values.loss import LossKind
from ratchet.values.place import Code, Op, SourceLine, Window, Windows
from tests.tpu.machine import programs
from tests.tpu.machine.golden_dumps import ARCHIVES, COMPILERS, counted, modelled, unpack
from tests.tpu.machine.test_golden import CYCLES


def parts(line: LineCost) -> int:
    return sum(line.issue_cycles.values()) + sum(line.stall_cycles.values()) + line.wait_cycles + line.delay_cycles


@pytest.fixture(params=CYCLES)
def timeline(request: pytest.FixtureRequest) -> Timeline:
    return modelled(*request.param)


def test_parts_make_the_whole_to_the_cycle(timeline: Timeline) -> None:
    blame = timeline.blame
    assert sum(line.cycles for line in blame.lines) == timeline.cycles
    assert sum(region.cycles for region in blame.regions) == timeline.cycles
    assert sum(one.cycles for one in reasons(blame.regions)) == timeline.cycles
    assert sum(region.wait_cycles for region in blame.regions) == timeline.dma_wait_cycles
    assert sum(region.stall_cycles for region in blame.regions) == timeline.empty_bundles
    for lines, cycles in [(blame.lines, timeline.cycles), *((r.lines, r.cycles) for r in blame.regions)]:
        assert sum(line.cycles for line in lines) == cycles
        assert all(parts(line) == line.cycles for line in lines)
        assert all(n > 0 for line in lines for n in (*line.issue_cycles.values(), *line.stall_cycles.values()))
    # A delay takes cycles that are no bundles; there is at most the runtime's own.
    assert sum(line.delay_cycles for line in blame.lines) == timeline.cycles - (
        timeline.executed_bundles + timeline.dma_wait_cycles
    )
    issued = Counter[str]()
    for line in blame.lines:
        issued.update(line.issues)
    assert +Counter(timeline.slot_issues) == +issued
    used = sum(n for slot, n in timeline.slot_issues.items() if slot not in ("FILL", "SPILL"))
    assert sum(line.empty_slots for line in blame.lines) == ISSUE_SLOTS * timeline.cycles - used
    assert sum(line.spill_stores for line in blame.lines) == timeline.slot_issues["SPILL"]
    assert sum(line.spill_loads for line in blame.lines) == timeline.slot_issues["FILL"]


def test_losses_are_sorted_and_possible(timeline: Timeline) -> None:
    losses = timeline.blame.losses
    costs = [loss.cycles for loss in losses if loss.kind not in (LossKind.NOTHING_LEFT, LossKind.FORM)]
    assert costs == sorted(costs, reverse=True)
    for loss in losses:
        assert 0 <= loss.ceiling_cycles <= timeline.cycles
        assert loss.kind is LossKind.BOUND or loss.cycles == timeline.cycles - loss.ceiling_cycles


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_vector_instruction_of_a_kernel_has_a_line(compiler: str) -> None:
    places = {line.place: line for line in modelled(compiler, "flash").blame.lines}
    assert Code.VECTOR not in places
    named = [(place, line) for place, line in places.items() if isinstance(place, SourceLine)]
    assert {place.file for place, _ in named} == {"programs.py"}
    source = Path(programs.__file__).read_text().splitlines()
    by_text = {source[place.line - 1].strip(): line for place, line in named}
    (product,) = [line for text, line in by_text.items() if text.startswith("s = lax.dot_general")]
    (exponentials,) = [line for text, line in by_text.items() if text.startswith("p, scale = jnp.exp")]
    assert product.issues["MXU"] >= 20 * 32
    assert exponentials.issues["EUP"] >= 20 * 32
    assert Code.PIPELINE in places
    assert Windows(windows=(Window(kind="input", number=1), Window(kind="input", number=2))) in places


@pytest.mark.parametrize("compiler", COMPILERS)
def test_steps_are_distinguished_by_their_way(compiler: str) -> None:
    """20 of 32 steps compute (causal); the pipeline has two iterations more, which fill and drain it."""
    timeline = modelled(compiler, "flash")
    working = [kind for kind in timeline.blame.steps if kind.mxu_cycles]
    assert sum(kind.steps for kind in working) == 20
    assert sum(kind.steps for kind in timeline.blame.steps) == 34
    assert sum(kind.mxu_cycles for kind in working) <= 2 * timeline.mxu_busy_cycles  # busiest unit against the average
    steps = {region.name: region.steps for region in timeline.blame.regions}
    assert steps == {"first": 2, "steady": 30, "last": 2, "outside": 0}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_what_is_outside_kernels_is_named(compiler: str) -> None:
    timeline = modelled(compiler, "whole")
    places = {line.place: line for line in timeline.blame.lines}
    ops = {op.name: op for op in timeline.ops}
    assert places[Op(name="copy", opcode="copy")].cycles == ops["copy"].cycles
    outside = next(region for region in timeline.blame.regions if region.name == "outside")
    kernels = sum(op.cycles for op in timeline.ops if op.name.startswith("_whole"))
    assert outside.cycles == timeline.cycles - kernels


# --- the sharing rule ---------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20_000), max_size=30), st.integers(1, 20))
def test_rounding_keeps_the_sum_and_stays_next_to_the_share(parts: list[int], denominator: int) -> None:
    shares = dict(enumerate([*parts, -sum(parts) % denominator]))
    total = sum(shares.values()) // denominator
    found = whole(shares, denominator, total)
    assert sum(found.values()) == total
    assert all(abs(found[key] * denominator - share) < denominator for key, share in shares.items())


def test_shares_that_do_not_sum_are_refused() -> None:
    with pytest.raises(ValueError, match="sum to 1/2, not to 1"):
        whole({"a": 1}, 2, 1)


def at(number: int) -> SourceLine:
    return SourceLine(file="k.py", line=number)


def instruction(opcode: str, line: int, dest: str = "v1_v1", operands: str = "") -> Instruction:
    note = f' /* loc("/some/where/k.py":{line}:8 to :9) */' if line else ""
    return read_instruction(f"%{dest} = {opcode} {operands}{note}")


bundles = st.lists(
    st.lists(
        st.builds(
            instruction,
            st.sampled_from("vadd.f32 vmul.f32 vld vst smov sphi vmatmul.bf16.gmra.mxu1 vpow2.f32".split()),
            st.integers(0, 4),
        ),
        max_size=6,
    ).map(tuple),
    min_size=1,
    max_size=12,
)


def spent(bundles: list[tuple[Instruction, ...]], times: int) -> Placed:
    """By bundles that are one basic block, executed so many times."""
    listing = Listing(file="f", bundles=bundles, allocations={})
    costs = costs_of(listing, [(0, len(bundles))], compiler="c", delay_slots=4)
    return placed(costs, executed(costs, [times]))


@given(bundles, st.integers(0, 10**6))
def test_every_bundle_is_shared_out_exactly(bundles: list[tuple[Instruction, ...]], times: int) -> None:
    sums = Sums()
    sums.add(spent(bundles, times))
    assert sums.cells.total() == times * len(bundles)
    taken = [slots(i.opcode, spill=i.form.spill, moves=i.moves) or () for bundle in bundles for i in bundle]
    assert sum(sum(line.issues.values()) for line in sums.lines()) == times * sum(map(len, taken))


def test_the_rule_by_hand() -> None:
    bundle = (instruction("vadd.f32", 3), instruction("vmul.f32", 3), instruction("vld", 7), instruction("sphi", 9))
    assert spent([bundle], 6).cycles == {
        Cell(at(3), Activity.ISSUE, "VALU"): 4,
        Cell(at(7), Activity.ISSUE, "VLOAD"): 2,
    }


# --- lines and stalls ---------------------------------------------------------------------------


def test_spills_belong_to_what_they_serve() -> None:
    bundles = [
        (instruction("vadd.f32", 3, "v1_v1"),),
        (instruction("vst", 0, "9", "[vmem:[#allocation1_spill]] vst_source=%v1_v1"),),
        (instruction("vld", 0, "v2_v1", "[vmem:[#allocation1_spill]]"),),
        (instruction("vpow2.f32", 0, "10", "%v2_v1"),),
        (instruction("vpop.eup", 8, "v3_v1", "%10"),),
        (instruction("smov", 0, "s4_s4", "1"),),
    ]
    found = places(Columns(flat(bundles)))
    assert [found.of(number) for number in range(len(bundles))] == [at(number) for number in (3, 3, 8, 8, 8)] + [
        Code.PIPELINE
    ]


def stalls_of(bundles: list[tuple[Instruction, ...]]) -> list[Stall]:
    """Stalls of bundles that are one basic block."""
    columns = Columns(flat(bundles))
    return stalls(columns, [(0, len(bundles))], places(columns), 4)


def reduction(gap: int, number: int) -> list[tuple[Instruction, ...]]:
    """A cross-lane maximum at line 5 whose result is popped ``gap`` bundles later."""
    push = instruction("vmax.xlane.f32.xlu0", 5, f"{number}", "%v1_v1")
    pop = instruction("vpop.xlane.xlu0", 6, f"v{number}_v2", f"%{number}")
    return [(push,), *[()] * (gap - 1), (pop,)]


def test_an_empty_bundle_waits_for_what_is_used_as_early_as_can_be() -> None:
    bundles = [bundle for number in range(10, 14) for bundle in reduction(8, number)]
    found = stalls_of(bundles)
    assert {stall.blamed for stall in found} == {((at(5), "XLU"),)}


def test_a_distance_that_is_the_only_one_is_what_is_waited_for() -> None:
    (stall,) = stalls_of(reduction(8, 10))
    assert stall.blamed == ((at(5), "XLU"),)


def test_a_dependence_that_is_longer_than_elsewhere_is_blamed_where_there_is_no_other() -> None:
    first, *_, last = stalls_of([*reduction(8, 10), *reduction(8, 11), *reduction(12, 12)])
    assert first.blamed == last.blamed == ((at(5), "XLU"),)


def test_what_depends_on_nothing_waits_for_the_order_of_the_program() -> None:
    bundles = [(instruction("vadd.f32", 3, "v1_v1"),), (), (instruction("vmul.f32", 4, "v2_v2", "%v9_v9"),)]
    (stall,) = stalls_of(bundles)
    assert stall.blamed == ((at(4), OTHER),)


@pytest.mark.parametrize(
    ("earlier", "later", "unit"),
    [
        (("vmatmul.bf16.gmra.mxu1", "10", "%v1_v1"), ("vpop.f32.mrf.mxu1", "v3_v3", ""), RESULTS),
        (("vmatpush.bf16.msra.mxu1", "10", "%v1_v1"), ("vmatmul.bf16.gmra.mxu1", "11", "%v2_v2"), WEIGHTS),
        (("vmatmul.bf16.gmra.mxu1", "10", "%v1_v1"), ("vmatmul.bf16.gmra.mxu1", "11", "%v2_v2"), "MXU"),
        (("vxpose.xlu0.b32.end", "10", "%v1_v1"), ("vpop.trf.xlu0", "v3_v3", ""), "XLU"),
        (("vst", "9", "[vmem:[#allocation2]] vst_source=%v1_v1"), ("vld", "v3_v3", "[vmem:[#allocation2]]"), STORES),
        (("vst", "9", "[vmem:[%s4_s4]] vst_source=%v1_v1"), ("vld", "v3_v3", "[vmem:[%s4_s4]]"), STORES),
    ],
)
def test_an_empty_bundle_says_what_of_a_unit_is_waited_for(
    earlier: tuple[str, str, str], later: tuple[str, str, str], unit: str
) -> None:
    base = (instruction("smov", 0, "s4_s4", "1"),)
    near = (instruction("vld", 7, "v4_v4", "[vmem:[%s4_s4 + $0x40]]"),)
    one, other = (instruction(opcode, line, *rest) for line, (opcode, *rest) in ((5, earlier), (6, later)))
    *_, stall = stalls_of([base, near, (one,), (), (), (other,)])
    assert stall.blamed == ((at(5), unit),)


def test_a_load_from_elsewhere_waits_for_no_store() -> None:
    store = instruction("vst", 5, "9", "[vmem:[#allocation2]] vst_source=%v1_v1")
    load = instruction("vld", 6, "v3_v3", "[vmem:[#allocation2 + $0x8]]")
    (stall,) = stalls_of([(store,), (), (load,)])
    assert stall.blamed == ((at(6), OTHER),)


def test_unfilled_delay_slots_are_the_branchs() -> None:
    branch = instruction("sbr.rel", 4, "9", "target bundleno = 0 (0x0)")
    bundles = [(branch,), (), (), (), ()]
    (stall,) = stalls_of(bundles)
    assert (stall.start, stall.end, stall.blamed) == (1, 5, ((at(4), BRANCH),))


# --- units, against the compiler's own count ------------------------------------------------------


@pytest.mark.parametrize(("compiler", "program"), [key for key in ARCHIVES if key[1] in programs.PROGRAMS])
def test_busy_units_agree_with_the_compilers_own_count(compiler: str, program: str, tmp_path: Path) -> None:
    """The compiler counts busy units per bundle, empty ones folded away: a product keeps its unit busy for 16 cycles
    from the one after its issue, a cross-lane operation for 8 or 9."""
    for listing, stated in counted(unpack(compiler, program, tmp_path)):
        own = costs_of(listing, [(0, len(listing.bundles))], compiler=compiler, delay_slots=4)
        products = stated["MATMUL" if "MATMUL" in stated else "MXU"]
        for units, count, slack in ((own.mxu, products, 1), (own.xlu, stated["XLU"], 9 / 8)):
            # What is in folded bundles is missing there, so it can only be less; issued bundles are all there.
            assert count.sum() <= slack * units.sum()
            if units.sum() > 1000:
                assert count.sum() >= 0.5 * units.sum()
