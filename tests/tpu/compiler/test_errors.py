"""What the compiler says when it fails: its status, and in one line what was used and wanted."""

import pytest

from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler.errors import HEADER_BYTES, classify, overflowing, parse_amount
from ratchet.tpu.dump.files import ALLOCATIONS_PASS
from ratchet.values.status import Status
from ratchet.values.tokens import TokenTable

MIB = 1 << 20
OOM = "CompileTimeScopedVmemOom: "
SCOPED = f"{OOM}Scoped allocation with size 16.12M and limit 16.00M exceeded by 123.0K."
ALLOCATION = "#allocation{} [shape = 'f32[8]{{0}}', space=vmem, size = 0x{:x}, scoped, tag = '{}']\n"


def header(*buffers):
    return "".join(ALLOCATION.format(number, size, tag) for number, (size, tag) in enumerate(buffers))


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("512", 512),
        ("1K", 1024),
        ("0.5K", 512),
        ("16.12M", int(16.12 * MIB)),
        ("18.94G", int(18.94 * 1024 * MIB)),
        ("1T", 1 << 40),
    ],
)
def test_amounts_have_binary_units(text, amount):
    assert parse_amount(text) == amount


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (
            "E1001: CompileTimeScopedVmemOom: Ran out of memory in memory space vmem while allocating.\n"
            "Scoped allocation with size 16.12M and limit 16.00M exceeded by 123.0K.",
            Status.VMEM_OVERFLOW,
            "needs 16.12MiB of VMEM, the limit is 16.00MiB",
        ),
        (
            "Ran out of memory in memory space vmem. Used 156.25M of 128.00M vmem. Exceeded by 28.25M",
            Status.VMEM_OVERFLOW,
            "needs 156.25MiB of VMEM, the limit is 128.00MiB; use smaller blocks",
        ),
        (
            "RESOURCE_EXHAUSTED: Allocation (size=1200128) would exceed memory (size=1048576) :: #allocation3 [shape = "
            "'u8[1200128]{0}', space=smem, size = 0x125000, scoped, tag = 'prefetched SMEM operand 0'] :: _k.3",
            Status.SMEM_OVERFLOW,
            "needs 1172 KiB of SMEM for the prefetched operand 0, the chip has 1024 KiB",
        ),
        (f"{OOM}in words that are new", Status.VMEM_OVERFLOW, "needs too much VMEM: "),
        *(
            (
                f"memory space vmem. Scoped allocation with size {amount} and limit 16.00M exceeded",
                Status.VMEM_OVERFLOW,
                "needs too much VMEM: ",
            )
            for amount in ("1.2.3M", "...", "M", "9" * 400)
        ),
        (
            "Ran out of memory on HBM, the total memory required (18.94G) exceeds available HBM (15.75G)",
            Status.HBM_OVERFLOW,
            "needs 18.94GiB of HBM, a program may use 15.75GiB",
        ),
        (
            "Ran out of memory in memory space hbm. Used 32.00G of 15.75G hbm.",
            Status.HBM_OVERFLOW,
            "needs 32.00GiB of HBM",
        ),
        ("HBM capacity, in words that are new", Status.HBM_OVERFLOW, "needs too much HBM"),
        ("ABORTED: Internal error when accessing libtpu multi-process lockfile.", Status.INFRASTRUCTURE, "try again"),
        (
            "ValueError: The Pallas TPU lowering currently requires that the last two dimensions",
            Status.UNALIGNED_BLOCK,
            "the last two dimensions",
        ),
        (
            "NotImplementedError: Unimplemented primitive in Pallas TPU lowering",
            Status.UNSUPPORTED_PRIMITIVE,
            "Unimplemented primitive",
        ),
        ("something nobody has seen", Status.COMPILE_FAILED, "something nobody has seen"),
    ],
)
def test_an_error_has_a_status_and_one_line(text, status, said, tmp_path):
    for schedule in (None, tmp_path):
        refusal = classify(f"JaxRuntimeError: {text}", schedule)
        assert refusal.status is status
        assert said in refusal.message
        assert "\n" not in refusal.message


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((9 * MIB, 2 * MIB), "; scratch f32[8] weighs most (9.0 MiB), then other f32[8] (2.0 MiB);"),
        ((3 * MIB, 2 * MIB), "; most of it, 11.1 MiB, is register spills and compiler temporaries;"),
        (
            (8 * MIB, int(16.12 * MIB) - 16 * MIB),
            "; scratch f32[8] weighs most (8.0 MiB), then other f32[8] (0.1 MiB);",
        ),
        ((8 * MIB, int(16.12 * MIB) - 16 * MIB - 1), "; most of it, 8.0 MiB, is register spills"),
    ],
)
def test_what_weighs_most_of_a_kernel_that_does_not_fit(tmp_path, sizes, said):
    (tmp_path / f"1-k-07-{ALLOCATIONS_PASS}.txt").write_text(header((MIB, "of an earlier pass")))
    (tmp_path / f"2-k-07-{ALLOCATIONS_PASS}.txt").write_text(header((sizes[0], "scratch"), (sizes[1], "other")))
    for name in ("3-<late-initialization>-", "4-TLP-"):
        (tmp_path / f"{name}07-{ALLOCATIONS_PASS}.txt").write_text(header((MIB, "of the runtime")))
    message = classify(SCOPED, tmp_path, chip=V5E).message
    assert said in message
    assert message.endswith("; use smaller blocks, or raise vmem_limit_bytes in CompilerParams (the chip has 128 MiB)")


def test_of_a_large_dump_the_beginning_is_read(tmp_path):
    first, second = header((9 * MIB, "a")), header((12 * MIB, "b"))
    (tmp_path / f"1-k-07-{ALLOCATIONS_PASS}.txt").write_text("x" * (HEADER_BYTES - len(first)) + first + second)
    assert "; a f32[8] weighs most (9.0 MiB);" in classify(SCOPED, tmp_path).message
    assert HEADER_BYTES == 65536


def test_a_single_buffer_that_no_limit_makes_fit():
    error = f"{OOM}Allocation (size={256 * MIB}) would exceed memory (size={128 * MIB}) :: "
    start = "the kernel needs 256.00MiB of VMEM for one buffer, the limit is 128.00MiB"
    listed = classify(error + header((256 * MIB, "scratch"))).message
    assert listed == f"{start}; scratch f32[8] weighs most (256.0 MiB); use a smaller one"
    assert classify(error).message == f"{start}; use a smaller one"


@pytest.mark.parametrize("start", [OOM, "HBM capacity: "])
def test_messages_in_new_words_are_quoted_in_part(start):
    text = start + "x" * 400
    message = classify(text).message
    assert text[:300] in message
    assert text[:301] not in message


INVOLVED = """JaxRuntimeError: INTERNAL: Mosaic failed to compile TPU kernel: infer-vector-layout: \
unsupported shape cast
See https://openxla.org/xla/errors/error_2003 for more details.

at location: loc("t":2:1)

The MLIR operation involved:
  %5 = "tpu.reshape"(%4) : (vector<192x8xbf16>) -> vector<8x192xbf16>

Please report a bug at: https://github.com/jax-ml/jax/issues/new/choose
"""
OPERATION = 'in %5 = "tpu.reshape"(%4) : (vector<192x8xbf16>) -> vector<8x192xbf16>'
LINE = ("kernel.py", 37, 48)


@pytest.mark.parametrize(
    ("sources", "around", "place"),
    [
        ((None, None, LINE), (-1, 0, 1), "at kernel.py:37:48"),
        ((None, LINE, None), (-1, 0, 1), "at kernel.py:37:48"),
        ((LINE, None, None), (-1, -1, 1), "after kernel.py:37:48, the last operation before it with a place"),
        ((None, None, None), (-1, 0, 1), "at no known place"),
    ],
)
def test_an_operation_that_mosaic_refuses_is_three_lines(sources, around, place):
    refusal = classify(INVOLVED, tokens=TokenTable(sources=sources, around=around))
    assert refusal.status is Status.COMPILE_FAILED
    what = "Mosaic failed to compile TPU kernel: infer-vector-layout: unsupported shape cast"
    assert refusal.message.split("\n") == [what, place, OPERATION]


def test_a_long_operation_is_cut_and_a_location_of_another_kind_is_quoted():
    long = INVOLVED.replace("%5 = ", "%5 = " + "x" * 5000).replace('"t":2:1', "unknown")
    _, place, operation = classify(long, tokens=TokenTable()).message.split("\n")
    assert place == "at loc(unknown)"
    assert len(operation) < 450


def test_an_alignment_that_is_not_proven_keeps_its_status_and_its_operation():
    text = INVOLVED.replace("infer-vector-layout:", "E2003: CompileTimeMosaicUnprovenMemoryAccessAlignment:")
    refusal = classify(text)
    assert refusal.status is Status.UNALIGNED_BLOCK
    assert refusal.message.endswith(OPERATION)


WHOLE = "Ran out of memory in memory space smem. Used 1.46M of 1.00M smem. Exceeded smem capacity by 466.6K."


def test_smem_that_overflows_in_all_is_given_to_its_owners(tmp_path):
    lines = "".join(
        f"#allocation{n} [shape = 'u8[{size}]{{0}}', space=smem, size = {size:#x}, scoped, tag = '{tag}']\n"
        for n, (size, tag) in enumerate([(800256, "prefetched SMEM operand 0"), (360448, "prefetched SMEM operand 1")])
    )
    (tmp_path / f"1-k-07-{ALLOCATIONS_PASS}.txt").write_text(lines)
    refusal = classify(f"JaxRuntimeError: RESOURCE_EXHAUSTED: {WHOLE}", tmp_path)
    assert refusal.status is Status.SMEM_OVERFLOW
    said = "needs 1495 KiB of SMEM, the chip has 1024 KiB: prefetched SMEM 0 u8[800256] (782 KiB), prefetched SMEM 1"
    assert said in refusal.message
    found = overflowing(WHOLE, tmp_path, V5E)
    assert (found.memory, found.op, found.fits) == ("SMEM", "k", False)
    assert [(one.number, one.size_bytes) for one in found.allocations] == [(0, 800256), (1, 360448)]
