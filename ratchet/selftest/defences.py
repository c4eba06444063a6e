"""The defences that keep a cheat from a score, each by name, and how its refusal is recognised in a verdict. Pure.

The test suite holds for each how it is switched off (``tests/selftest/switches.py``), and shows that a cheat which it
catches then gets further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

DEFENCES = (
    Defence(
        name="static check",
        what="imports, names and writes that the contract forbids are refused before anything runs",
        step="contract",
        statuses=(_S.FORBIDDEN, _S.SYNTAX_ERROR),
    ),
    Defence(
        name="landlock",
        what="the kernel file reads the system and the packages, writes regular files in its own folder",
        step="contract",
        statuses=(_S.IMPORT_FAILED,),
        said=("PermissionError: [Errno 13]",),
    ),
    Defence(
        name="seccomp",
        what="no process, program, socket, mount, tracing or signal to others",
        step="contract",
        statuses=(_S.IMPORT_FAILED,),
        said=("PermissionError: [Errno 1]", "BlockingIOError", "Operation not permitted"),
    ),
    Defence(
        name="namespaces",
        what="processes, network and a small file system of its own",
        step="contract",
        statuses=(_S.IMPORT_FAILED,),
        said=("No space left", "ProcessLookupError", "No such file or directory: '/proc/", "Network is unreachable"),
    ),
    Defence(
        name="limits",
        what="a deadline, and limits of memory, files and output",
        step="contract",
        statuses=(_S.TIMEOUT, _S.OUT_OF_MEMORY),
    ),
    Defence(
        name="file size",
        what="no file is larger than the folder may be",
        step="contract",
        statuses=(_S.IMPORT_FAILED,),
        said=("File too large",),
    ),
    Defence(
        name="contained exceptions",
        what="whatever the file raises is its own failure, not the judge's",
        step="contract",
        statuses=(_S.IMPORT_FAILED,),
        said=("at import:", "generate_inputs(key):", "reference_fn", "compute_flops():", "get_tiling_meta():"),
    ),
    Defence(
        name="complete record",
        what="a process that ends before its record is complete has not answered; every field is checked",
        step="contract",
        statuses=(_S.IMPORT_FAILED,),
    ),
    Defence(
        name="typed symbols",
        what="the seven symbols, FLOPs and claims have the types and ranges that the contract names",
        step="contract",
        statuses=(_S.CONTRACT,),
    ),
    Defence(
        name="two traces",
        what="the file is traced twice, and both programs have to be the same",
        step="contract",
        statuses=(_S.NON_DETERMINISTIC,),
    ),
    Defence(
        name="one program",
        what="only what traces to one program for the platform is judged: no concrete values, no host",
        step="contract",
        statuses=(_S.LOWERING_FAILED, _S.HOST_CALLBACK, _S.UNALIGNED_BLOCK, _S.UNSUPPORTED_PRIMITIVE),
    ),
    Defence(
        name="frozen problem",
        what="reference, inputs, FLOPs, mesh and names are those of the lock",
        step="problem",
        statuses=(_S.PROBLEM_CHANGED,),
    ),
    Defence(
        name="output types",
        what="outputs have the shapes and dtypes of the problem",
        step="problem",
        statuses=(_S.WRONG_SHAPE,),
    ),
    Defence(
        name="readable program",
        what="an artefact that cannot be read, or translated, goes no further",
        step="compile",
        statuses=(_S.CANNOT_VERIFY,),
        said=("cannot be read",),
    ),
    Defence(
        name="tokens",
        what="no text of the author's reaches the compiler, and what is not known in a program is refused",
        step="compile",
        statuses=(_S.CANNOT_VERIFY, _S.HOST_CALLBACK),
    ),
    Defence(
        name="memory limits",
        what="VMEM and HBM as the compiler counts them",
        step="compile",
        statuses=(_S.VMEM_OVERFLOW, _S.HBM_OVERFLOW),
    ),
    Defence(
        name="declared program",
        what="the program has the inputs and outputs that its record declares",
        step="compile",
        statuses=(_S.PROBLEM_CHANGED,),
    ),
    Defence(
        name="jailed compiler",
        what="what the compiler refuses, or ends it, is the program's failure",
        step="compile",
        statuses=(_S.COMPILE_FAILED, _S.COMPILE_TIMEOUT, _S.COMPILER_CRASHED),
    ),
    Defence(
        name="live kernel",
        what="the compiled program holds a Pallas kernel whose result is used",
        step="kernel",
        statuses=(_S.NOT_A_KERNEL,),
    ),
    Defence(
        name="no host",
        what="the compiled program runs nothing on the host",
        step="kernel",
        statuses=(_S.HOST_CALLBACK,),
    ),
    Defence(
        name="inputs of one sign",
        what="regions of one sign, near and far from zero, are checked, too",
        step="correctness",
        statuses=(_S.WRONG_VALUES, _S.NOT_FINITE),
        said=("signed inputs",),
    ),
    Defence(
        name="finite",
        what="no NaN or infinity where the reference has none",
        step="correctness",
        statuses=(_S.NOT_FINITE,),
    ),
    Defence(
        name="weak problems",
        what="a problem that constants or a copy of an input would pass is refused",
        step="correctness",
        statuses=(_S.WEAK_PROBLEM,),
    ),
    Defence(
        name="stable reference",
        what="a problem whose own reference cannot be told from noise is refused",
        step="correctness",
        statuses=(_S.INFRASTRUCTURE,),
        said=("no fault of the kernel's",),
    ),
    Defence(
        name="mixed inputs",
        what="large, tiny, equal, zero and integer regions are checked, too",
        step="correctness",
        statuses=(_S.WRONG_VALUES,),
        said=("mixed inputs",),
    ),
    Defence(
        name="sides of a rounding",
        what="no element is rounded to the other side of a tie that is far from its value",
        step="correctness",
        statuses=(_S.WRONG_VALUES,),
        said=("rounded to the wrong side",),
    ),
    Defence(
        name="probes",
        what="a few rows are made large, and the output has to move as the reference does",
        step="correctness",
        statuses=(_S.WRONG_VALUES, _S.INSENSITIVE),
        said=("probe",),
    ),
    Defence(
        name="common factor",
        what="a factor that all elements share is no rounding",
        step="correctness",
        statuses=(_S.WRONG_VALUES,),
        said=("by a common factor",),
    ),
    Defence(
        name="rows",
        what="rows, slices and the whole output are compared beside single elements",
        step="correctness",
        statuses=(_S.WRONG_VALUES,),
        said=("a row is off as a whole", "the output is off as a whole", "of axis"),
    ),
    Defence(
        name="allowance",
        what="each element may be off by what honest arithmetic loses in it",
        step="correctness",
        statuses=(_S.WRONG_VALUES,),
    ),
    Defence(
        name="bounds",
        what="every window, load, store and copy is inside its array",
        step="correctness",
        statuses=(_S.OUT_OF_BOUNDS,),
    ),
    Defence(
        name="unwritten memory",
        what="executed again with other contents of memory that was never written",
        step="correctness",
        statuses=(_S.MEMORY_HAZARD,),
        said=("uninitialised_memory",),
    ),
    Defence(
        name="step order",
        what="executed again with the steps of parallel grid dimensions in another order",
        step="correctness",
        statuses=(_S.MEMORY_HAZARD,),
        said=("order_of_parallel_steps",),
    ),
    Defence(
        name="late copies",
        what="executed again with copies that arrive at their wait, and what they read watched until then",
        step="correctness",
        statuses=(_S.MEMORY_HAZARD,),
        said=("read_before_wait", "source_overwritten", "target_overwritten"),
    ),
    Defence(
        name="promises",
        what="what a kernel promises the compiler is checked wherever it is executed",
        step="correctness",
        statuses=(_S.MEMORY_HAZARD,),
        said=("false_promise",),
    ),
    Defence(
        name="windows read ahead",
        what="executed again with windows that the pipeline read before earlier steps were written back",
        step="correctness",
        statuses=(_S.MEMORY_HAZARD,),
        said=("window_race",),
    ),
    Defence(
        name="chips that run ahead",
        what="what a chip writes into another's memory is ordered with what that one does there, by signals and waits",
        step="correctness",
        statuses=(_S.MEMORY_HAZARD,),
        said=("chips_race",),
    ),
    Defence(
        name="semaphores",
        what="every wait is signalled, and every semaphore is back at zero",
        step="correctness",
        statuses=(_S.MEMORY_HAZARD, _S.DEADLOCK),
        said=("wait_without_start", "dma_never_waited", "negative_amount"),
    ),
    Defence(
        name="other hazards",
        what="further ways in which memory is misused",
        step="correctness",
        statuses=(_S.MEMORY_HAZARD, _S.DEADLOCK, _S.NON_DETERMINISTIC),
    ),
    Defence(
        name="inputs kept",
        what="no input is written that is not aliased to an output",
        step="correctness",
        statuses=(_S.INPUTS_CHANGED,),
    ),
    Defence(
        name="defined scalars",
        what="no scalar is used whose value on a TPU is not known",
        step="correctness",
        statuses=(_S.CANNOT_VERIFY,),
        said=("undefined_scalar",),
    ),
    Defence(
        name="known operations",
        what="an operation that cannot be executed for its values is refused by name",
        step="correctness",
        statuses=(_S.CANNOT_VERIFY, _S.HOST_CALLBACK),
    ),
    Defence(
        name="known control flow",
        what="loops and branches depend on what the judge knows, or are refused",
        step="schedule",
        statuses=(_S.SCHEDULE_UNKNOWN, _S.WRONG_VALUES, _S.CANNOT_VERIFY),
    ),
    Defence(
        name="deadlocks",
        what="chips that wait for what never comes",
        step="schedule",
        statuses=(_S.DEADLOCK,),
    ),
    Defence(
        name="other draws",
        what="the kernel does with other values of what steers it what it does with the public ones",
        step="control",
        statuses=(_S.CONTROL_FLOW_DIFFERS,),
        said=("it seems to know the inputs",),
    ),
    Defence(
        name="same control flow",
        what="the modelled run and the execution for values take the same branches, turns and copies",
        step="control",
        statuses=(_S.CONTROL_FLOW_DIFFERS, _S.CANNOT_VERIFY),
    ),
    Defence(
        name="roofline",
        what="nothing is faster than the chip",
        step="roofline",
        statuses=(_S.INVALID,),
    ),
    Defence(
        name="written output",
        what="a run moves at least the bytes of its outputs",
        step="audit",
        statuses=(_S.INVALID,),
    ),
    Defence(
        name="timed values",
        what="every timed output is checked: the same bits for the same inputs, and right",
        step="measure",
        statuses=(
            _S.WRONG_VALUES,
            _S.NON_DETERMINISTIC,
            _S.NOT_FINITE,
            _S.CANNOT_VERIFY,
            _S.INVALID,
            _S.INPUTS_CHANGED,
        ),
    ),
    # What leaves no trace in a verdict, because it has no effect; and what the loop refuses around one.
    Defence(name="neutral text", what="names and places are the judge's tokens, so that text says nothing"),
    Defence(name="one scalar arithmetic", what="executor and machine compute scalars by one definition"),
    Defence(name="all of the program", what="what XLA does beside a kernel is timed with it"),
    Defence(name="compiled memory", what="donation and aliases as the compiler made them, copies included"),
    Defence(name="isolated start", what="`python -I -S`, a shell that reads no variable: no code of the caller's"),
    Defence(name="served sources", what="modules of the judge's come from sources that were read and hashed"),
    Defence(name="kernel names", what="no kernel file is named like a module"),
    Defence(name="protected files", what="the judge's files equal HEAD, and nothing but the kernel differs"),
    Defence(name="ledger chain", what="every row holds the hash of the one before, and names commits that resolve"),
    Defence(name="canonical lock", what="a problem lock has the bytes that the judge writes"),
    Defence(name="plain git", what="git runs without hooks, filters and programs of the repository's configuration"),
    Defence(name="regular files", what="regular files are read, by descriptor: no link is followed, no pipe awaited"),
    Defence(name="origin", what="references and rows carry a code that only the judge's key makes"),
)

BY_NAME = {one.name: one for one in DEFENCES}


def caught_by(steps: Sequence[Step]) -> str:
    """Name of the defence whose refusal decided a verdict; ``""`` where none did."""
    failed = next((step for step in steps if step.status is not Status.PASS), None)
    if failed is None:
        return ""
    return next((one.name for one in DEFENCES if one.refuses(failed)), "")
