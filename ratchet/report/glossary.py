"""The words of a report that not every reader knows."""

from __future__ import annotations

WORDS = {
    "modelled": "Computed from the compiler's own schedule for the chip. No device was timed.",
    "measured": "Timed on a device, in several processes.",
    "latency": "Time of one run of the compiled program, from its first instruction to its last.",
    "band": "Where the measured latency is nine times in ten, by the model's errors on published timings.",
    "roofline": "The least time that the problem's floating-point operations at peak rate, or its inputs and outputs "
    "at full memory bandwidth, take on this chip. Nothing can be faster.",
    "floor": "The roofline's least time for this problem, in milliseconds.",
    "regime": "What bounds a program: the matrix units, the vector units, the latency of DMAs or memory bandwidth.",
    "kept": "The experiment was better, so its commit is on the branch.",
    "reverted": "The experiment was correct but not better, so the kernel file went back to what it was.",
    "failed": "The experiment has no latency: it does not compile, computes something wrong, or could not be judged.",
    "baseline": "The kernel that was in place, judged as it is: the first one, or again after the judge changed.",
    "series": "Experiments whose latencies may be compared: same evaluator, chip, compiler, judge and problem.",
    "seal": "A digest of every file that a verdict follows from. Another seal means another judge.",
    "evidence": "What the judge left on the disk of one experiment: compiled program, timeline, trace.",
    "bundle": "The instructions that a TPU core issues in one cycle. An empty one waits for a result.",
    "DMA": "A copy between memories that runs beside the program.",
    "HBM": "The chip's main memory.",
    "VMEM": "The fast memory that the vector and matrix units work on.",
    "MXU": "A matrix unit: it multiplies matrices.",
    "grid step": "One turn of a Pallas kernel's pipeline: it works on one block of each operand.",
    "window": "The block of an operand that a grid step works on, in VMEM.",
    "spill": "A vector register stored to memory because too many values are alive.",
    "allowance": "How far one element of the output may be from the float64 reference.",
}
