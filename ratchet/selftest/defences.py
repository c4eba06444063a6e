"""The defences that keep a cheat from a score, each by name, and how its refusal is recognised in a verdict. Pure.

The test suite holds for each how it is switched off (``tests/selftest/switches.py``), and shows that a cheat which it
catches then gets further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ratchet.values import Step
from ratchet.values.status import Status


@dataclass(frozen=True, kw_only=True)
class Defence:
    """One defence."""

    name: str
    what: str
    step: str = ""
    """The step of a verdict that refuses. ``""``: recognised by no verdict; what it keeps has no effect."""
    statuses: tuple[Status, ...] = ()
    said: tuple[str, ...] = ()
    """One of these is in the refusal; nothing is asked where there is none."""

    def refuses(self, step: Step) -> bool:
        """Whether a failed step is this defence's refusal."""
        right = step.name == self.step and step.status in self.statuses
        return right and (not self.said or any(words in step.summary for words in self.said))


_S = Status


def _row(name: str, what: str, *statuses: Status, said: tuple[str, ...] = ()) -> Defence:
    return Defence(name=name, what=what, statuses=statuses, said=said)


def _of(step: str, *defences: Defence) -> tuple[Defence, ...]:
    return tuple(replace(one, step=step) for one in defences)


DEFENCES = (
    *_of(
        "contract",
        _row(
            "plain source",
            "a source file is UTF-8 without characters that hide what runs",
            _S.FORBIDDEN,
            said=("what is read has to be what runs",),
        ),
        _row(
            "static check", "what the contract forbids is refused before anything runs", _S.FORBIDDEN, _S.SYNTAX_ERROR
        ),
        _row(
            "landlock",
            "the kernel file reads the system and the packages, writes regular files in its own folder",
            _S.IMPORT_FAILED,
            said=("PermissionError: [Errno 13]",),
        ),
        _row(
            "seccomp",
            "no process, program, socket, mount, tracing or signal to others",
            _S.IMPORT_FAILED,
            said=("PermissionError: [Errno 1]", "BlockingIOError", "Operation not permitted"),
        ),
        _row(
            "namespaces",
            "processes, network and a small file system of its own",
            _S.IMPORT_FAILED,
            said=(
                "No space left",
                "ProcessLookupError",
                "No such file or directory: '/proc/",
                "Network is unreachable",
            ),
        ),
        _row("limits", "a deadline, and limits of memory, files and output", _S.TIMEOUT, _S.OUT_OF_MEMORY),
        _row("file size", "no file is larger than the folder may be", _S.IMPORT_FAILED, said=("File too large",)),
        _row(
            "contained exceptions",
            "whatever the file raises is its own failure, not the judge's",
            _S.IMPORT_FAILED,
            said=("at import:", "generate_inputs(key):", "reference_fn", "compute_flops():", "get_tiling_meta():"),
        ),
        _row("complete record", "a process that ends before its record is complete has not answered", _S.IMPORT_FAILED),
        _row("typed symbols", "symbols, FLOPs and claims have the types and ranges of the contract", _S.CONTRACT),
        _row(
            "problem from data",
            "a problem is frozen from data, by processes that never called the kernel; the file's own is the same",
            _S.NON_DETERMINISTIC,
            said=("in the process that traces kernel_fn",),
        ),
        _row("two traces", "the file is traced twice, and both programs have to be the same", _S.NON_DETERMINISTIC),
        _row(
            "one program",
            "only what traces to one program for the platform is judged: no concrete values, no host",
            _S.LOWERING_FAILED,
            _S.HOST_CALLBACK,
            _S.UNALIGNED_BLOCK,
            _S.UNSUPPORTED_PRIMITIVE,
        ),
    ),
    *_of(
        "problem",
        _row("frozen problem", "reference, inputs, FLOPs, mesh and names are those of the lock", _S.PROBLEM_CHANGED),
        _row("output types", "outputs have the shapes and dtypes of the problem", _S.WRONG_SHAPE),
    ),
    *_of(
        "compile",
        _row("readable program", "what cannot be read goes no further", _S.CANNOT_VERIFY, said=("cannot be read",)),
        _row(
            "tokens",
            "no text of the author's reaches the compiler, and what is not known in a program is refused",
            _S.CANNOT_VERIFY,
            _S.HOST_CALLBACK,
        ),
        _row(
            "memory limits",
            "VMEM, SMEM and HBM as the compiler counts them",
            _S.VMEM_OVERFLOW,
            _S.SMEM_OVERFLOW,
            _S.HBM_OVERFLOW,
        ),
        _row("declared program", "the program has the inputs and outputs that its record declares", _S.PROBLEM_CHANGED),
        _row(
            "jailed compiler",
            "what the compiler refuses, or ends it, is the program's failure",
            _S.COMPILE_FAILED,
            _S.COMPILE_TIMEOUT,
            _S.COMPILER_CRASHED,
        ),
    ),
    *_of(
        "kernel",
        _row("live kernel", "the compiled program holds a Pallas kernel whose result is used", _S.NOT_A_KERNEL),
        _row(
            "one layout",
            "operands and results of kernels are row-major in the compiled program, as they are executed",
            _S.CANNOT_VERIFY,
            said=("wanted row-major",),
        ),
        _row("no host", "the compiled program runs nothing on the host", _S.HOST_CALLBACK),
    ),
    *_of(
        "correctness",
        _row(
            "inputs of one sign",
            "regions of one sign, near and far from zero, are checked, too",
            _S.WRONG_VALUES,
            _S.NOT_FINITE,
            said=("signed inputs",),
        ),
        _row(
            "small inputs",
            "inputs of which one number is made are checked all small, too",
            _S.WRONG_VALUES,
            _S.NOT_FINITE,
            said=("small inputs",),
        ),
        _row("finite", "no NaN or infinity where the reference has none", _S.NOT_FINITE),
        _row("weak problems", "a problem that constants or a copy of an input would pass is refused", _S.WEAK_PROBLEM),
        _row(
            "stable reference",
            "a problem whose own reference cannot be told from noise is refused",
            _S.INFRASTRUCTURE,
            said=("no fault of the kernel's",),
        ),
        _row(
            "ties",
            "what is ordered or compared has equal elements, and where nothing rounds one of them is the first",
            _S.WRONG_VALUES,
            said=(", and ties",),
        ),
        _row(
            "ends of ranges",
            "integers of known draws are the first and the last of their range, and groups empty",
            _S.WRONG_VALUES,
            said=(", and ends of ranges",),
        ),
        _row(
            "mixed inputs", "large, tiny, equal, zero and integer regions, too", _S.WRONG_VALUES, said=("mixed inputs",)
        ),
        _row(
            "sides of a rounding",
            "no element is rounded to the other side of a tie that is far from its value",
            _S.WRONG_VALUES,
            said=("rounded to the wrong side",),
        ),
        _row(
            "probes",
            "a few rows are made large, and the output has to move as the reference does",
            _S.WRONG_VALUES,
            _S.INSENSITIVE,
            said=("probe",),
        ),
        _row("common factor", "a factor of all elements is no rounding", _S.WRONG_VALUES, said=("by a common factor",)),
        _row(
            "rows",
            "rows, slices and the whole output are compared beside single elements",
            _S.WRONG_VALUES,
            said=("a row is off as a whole", "the output is off as a whole", "of axis"),
        ),
        _row("allowance", "each element may be off by what honest arithmetic loses in it", _S.WRONG_VALUES),
        _row("bounds", "every window, load, store and copy is inside its array", _S.OUT_OF_BOUNDS),
        _row(
            "unwritten memory",
            "executed again with other contents of memory that was never written",
            _S.MEMORY_HAZARD,
            said=("uninitialised_memory",),
        ),
        _row(
            "step order",
            "executed again with the steps of parallel grid dimensions in another order",
            _S.MEMORY_HAZARD,
            said=("order_of_parallel_steps",),
        ),
        _row(
            "late copies",
            "executed again with copies that arrive at their wait, and what they read watched until then",
            _S.MEMORY_HAZARD,
            said=("read_before_wait", "source_overwritten", "target_overwritten"),
        ),
        _row("promises", "what a kernel promises the compiler is checked", _S.MEMORY_HAZARD, said=("false_promise",)),
        _row(
            "windows read ahead",
            "executed again with windows that the pipeline read before earlier steps were written back",
            _S.MEMORY_HAZARD,
            said=("window_race",),
        ),
        _row(
            "chips that run ahead",
            "what a chip writes into another's memory is ordered with what that one does there, by signals and waits",
            _S.MEMORY_HAZARD,
            said=("chips_race",),
        ),
        _row(
            "semaphores",
            "every wait is signalled, and every semaphore is back at zero",
            _S.MEMORY_HAZARD,
            _S.DEADLOCK,
            said=("wait_without_start", "dma_never_waited", "negative_amount"),
        ),
        _row("other hazards", "further misuses of memory", _S.MEMORY_HAZARD, _S.DEADLOCK, _S.NON_DETERMINISTIC),
        _row("inputs kept", "no input is written that is not aliased to an output", _S.INPUTS_CHANGED),
        _row("defined scalars", "only scalars of a known value are used", _S.CANNOT_VERIFY, said=("undefined_scalar",)),
        _row(
            "known operations", "what cannot be executed for its values is refused", _S.CANNOT_VERIFY, _S.HOST_CALLBACK
        ),
    ),
    *_of(
        "schedule",
        _row(
            "known control flow",
            "loops and branches depend on what the judge knows, or are refused",
            _S.SCHEDULE_UNKNOWN,
            _S.WRONG_VALUES,
            _S.CANNOT_VERIFY,
        ),
        _row("deadlocks", "chips that wait for what never comes", _S.DEADLOCK),
    ),
    *_of(
        "control",
        _row(
            "other draws",
            "the kernel does with other values of what steers it what it does with the public ones",
            _S.CONTROL_FLOW_DIFFERS,
            said=("it seems to know the inputs",),
        ),
        _row(
            "same control flow",
            "the modelled run and the execution for values take the same branches, turns and copies",
            _S.CONTROL_FLOW_DIFFERS,
            _S.CANNOT_VERIFY,
        ),
        _row(
            "same copies",
            "the compiled kernel copies the bytes that were copied when its values were computed",
            _S.COPIES_DIFFER,
        ),
    ),
    *_of(
        "roofline",
        _row("roofline", "nothing is faster than the chip", _S.INVALID),
    ),
    *_of(
        "audit",
        _row("written output", "a run moves at least the bytes of its outputs", _S.INVALID),
    ),
    *_of(
        "measure",
        _row(
            "timed values",
            "every timed output is checked: the same bits for the same inputs, and right",
            _S.WRONG_VALUES,
            _S.NON_DETERMINISTIC,
            _S.NOT_FINITE,
            _S.CANNOT_VERIFY,
            _S.INVALID,
            _S.INPUTS_CHANGED,
        ),
    ),
    # What leaves no trace in a verdict, because it has no effect; and what the loop refuses around one.
    _row("neutral text", "names and places are the judge's tokens, so that text says nothing"),
    _row("one scalar arithmetic", "executor and machine compute scalars by one definition"),
    _row("all of the program", "what XLA does beside a kernel is timed with it"),
    _row("compiled memory", "donation and aliases as the compiler made them, copies included"),
    _row("isolated start", "`python -I -S`, a shell that reads no variable: no code of the caller's"),
    _row("served sources", "modules of the judge's come from sources that were read and hashed"),
    _row("kernel names", "no kernel file is named like a module"),
    _row("protected files", "the judge's files equal HEAD, and nothing but the kernel differs"),
    _row("ledger chain", "every row holds the hash of the one before, and names commits that resolve"),
    _row("canonical lock", "a problem lock has the bytes that the judge writes"),
    _row("plain git", "git runs without hooks, filters and programs of the repository's configuration"),
    _row("regular files", "regular files are read, by descriptor: no link is followed, no pipe awaited"),
    _row("opener", "what is in a repository is reached from its root's descriptor: no link, no path leads out of it"),
    _row("signed state", "what a run leaves to the next one has a MAC, and so has every folder that is removed"),
    _row(
        "no programs of a table",
        "`[tool.ratchet]` names no interpreter inside the repository, no link and no file of git's",
    ),
    _row("rows as data", "a cell of another clone's row has a form, and a ref of its names a line"),
    _row("base decides", "`ratchet ci` judges by the base's list and shares, and quotes no author's exception"),
    _row("agent's walls", "an agent's command writes its kernel file, reads no key, and leaves no process"),
    _row("origin", "references and rows carry a code that only the judge's key makes"),
)

BY_NAME = {one.name: one for one in DEFENCES}


def caught_by(steps: Sequence[Step]) -> str:
    """Name of the defence whose refusal decided a verdict; ``""`` where none did."""
    failed = next((step for step in steps if step.status is not Status.PASS), None)
    if failed is None:
        return ""
    return next((one.name for one in DEFENCES if one.refuses(failed)), "")
