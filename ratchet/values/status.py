"""The closed set of outcomes: each has a name, a process exit code and a one-line meaning.

Shells and agents branch on the exit code, never on text. A verdict on a kernel carries one of the
statuses; so does an experiment that was refused before anything was judged.
"""

from enum import Enum


class Status(Enum):
    """An outcome. ``value`` is ``(exit code, meaning)``; ``name`` is what the ledger stores."""

    # The kernel was judged and is correct.
    PASS = (0, "judged correct and timed (kept, a baseline, or only judged by `prepare.py`)")
    NOT_BETTER = (3, "correct, but not better than the incumbent: reverted")
    CANNOT_TELL = (5, "correct, but the time budget ended before it was known whether it is faster: reverted")
    UNCHECKED = (
        6,
        "modelled as no better, or timed as better by one node alone, so it was not checked: reverted",
    )
    NO_CHANGE = (4, "nothing to judge: the kernel is what HEAD has and was judged already")

    # The candidate file.
    SYNTAX_ERROR = (10, "the kernel file is not valid Python")
    CONTRACT = (11, "one or more of the seven symbols is missing or of the wrong type")
    IMPORT_FAILED = (12, "the kernel file raised or exited while it was imported or traced")
    TIMEOUT = (13, "the kernel file did not finish within its deadline")
    OUT_OF_MEMORY = (14, "the kernel file used more memory than it may")
    FORBIDDEN = (15, "the kernel file does something the contract forbids")
    PROBLEM_CHANGED = (16, "reference, inputs, FLOPs or name differ from the frozen problem")
    WEAK_PROBLEM = (17, "zeros, a constant or a copy of an input would pass this problem")

    # Lowering and compiling.
    LOWERING_FAILED = (20, "JAX or Pallas could not lower the kernel for TPU")
    UNALIGNED_BLOCK = (21, "a block shape or memory access is not aligned to the TPU tiling")
    UNSUPPORTED_PRIMITIVE = (22, "the kernel uses an operation that Pallas cannot lower for TPU")
    COMPILE_FAILED = (23, "the TPU compiler rejected the program")
    COMPILER_CRASHED = (24, "the TPU compiler crashed on the program")
    COMPILE_TIMEOUT = (25, "the TPU compiler did not finish within its deadline")
    VMEM_OVERFLOW = (26, "the kernel needs more VMEM than its limit")
    SMEM_OVERFLOW = (19, "the kernel needs more scalar memory (SMEM) than the chip has")
    HBM_OVERFLOW = (27, "the program needs more HBM than the chip has")
    NOT_A_KERNEL = (28, "the compiled program holds no live Pallas kernel")
    HOST_CALLBACK = (29, "the program calls back to the host or branches on the platform")

    # Values.
    WRONG_SHAPE = (30, "an output has the wrong shape or dtype")
    WRONG_VALUES = (31, "an output differs from the reference by more than its precision allows")
    NOT_FINITE = (32, "an output is NaN or infinite where the reference is not")
    NON_DETERMINISTIC = (33, "two runs on the same inputs disagree")
    INPUTS_CHANGED = (34, "the kernel wrote into its inputs")
    OUT_OF_BOUNDS = (35, "the kernel reads or writes outside an array")
    INSENSITIVE = (36, "an output does not react to an input that it depends on")
    CANNOT_VERIFY = (37, "the compiled kernel uses an operation that the judge cannot execute for its values")
    MEMORY_HAZARD = (38, "the kernel reads memory never written, races, misuses a semaphore, or promises what is false")

    # The schedule machine and the physics.
    SCHEDULE_UNKNOWN = (40, "the compiled schedule holds something the machine does not know")
    DEADLOCK = (41, "the compiled program waits for something that never happens")
    CONTROL_FLOW_DIFFERS = (
        43,
        "the modelled run went another way than the execution for values, or than other inputs go",
    )
    COPIES_DIFFER = (44, "the compiled kernel copies other bytes than those that its values were computed with")
    NOT_MODELLED = (
        45,
        "a part of the program runs on no core that is modelled: it has no latency, no band and no rank",
    )
    INVALID = (42, "faster than the chip can be: an impossible number, not a fast one")

    # The repository or the ledger: nothing was kept or reverted.
    DIRTY = (50, "files other than the kernel differ from HEAD")
    NOT_A_REPOSITORY = (51, "not inside a git repository")
    NO_COMMIT = (52, "the repository has no commit yet")
    NO_IDENTITY = (53, "git does not know who you are")
    DETACHED_HEAD = (54, "HEAD is not on a branch")
    OPERATION_UNDER_WAY = (55, "a merge, rebase, cherry-pick, revert or bisect is under way")
    SHALLOW_CLONE = (56, "the repository is a shallow clone")
    BUSY = (57, "another experiment is running in this repository")
    SEAL_BROKEN = (58, "a file of the judge changed")
    LEDGER_BROKEN = (59, "the ledger was edited, truncated or converted")
    LEDGER_UNWRITABLE = (60, "the ledger or the evidence cannot be written")
    NO_SPACE = (61, "no space left on the device")
    BRANCH_MOVED = (62, "the branch moved while the experiment ran")
    NOT_FOUND = (63, "no such file, experiment or row")

    # The machine the judge runs on.
    USAGE = (2, "the command line is wrong")
    UNSUPPORTED_PLATFORM = (68, "no such device is attached, or the TPU compiler has no build for this platform")
    INFRASTRUCTURE = (69, "the judge's own tools failed; the kernel is not to blame")
    SELFTEST_FAILED = (71, "the self-test has an entry that did not end as it has to")
    REGRESSED = (72, "`ratchet ci`: a target got slower than allowed, or no longer compiles")
    UNSETTLED = (73, "`ratchet ci`: nothing got worse, but a target ran out of time or memory, or was killed")
    INTERNAL = (70, "a bug of pallas-ratchet: please report it")
    INTERRUPTED = (130, "interrupted; nothing was kept or lost")

    @property
    def exit_code(self) -> int:
        return self.value[0]

    @property
    def meaning(self) -> str:
        return self.value[1]


CORRECT = (Status.PASS, Status.NOT_BETTER, Status.CANNOT_TELL, Status.UNCHECKED)
"""The statuses of a row that has a latency."""


class Refusal(Exception):
    """A failure with a status of its own, shown to the user in one or two lines.

    ``message`` says what was got, what was wanted and what to do.
    """

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Ended(Refusal):
    """One whose cause is a process that was killed, or ran out of time, memory or disk: elsewhere it may succeed."""


KILLED = (-15, -9)
"""Exit codes of processes that another one killed, as the system does where memory runs out."""
