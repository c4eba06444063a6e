"""The frozen values on the arrows between the rooms: one file per arrow. Imports nothing of ours.

Units are in the field names. Bytes are bytes, not KiB; cycles are cycles of the TensorCore clock.
"""

from ratchet.values.artefact import ArraySpec, Artefact, Mesh
from ratchet.values.blame import Blame, LineCost, RegionCost, StepKind
from ratchet.values.explanation import Explanation, Limit, OpKind, OpShare
from ratchet.values.loss import Loss
from ratchet.values.omission import Omission
from ratchet.values.place import Place, SourceLine
from ratchet.values.points import Literal, Point, SweepResult
from ratchet.values.program import (
    Copy,
    Footprint,
    Program,
    Remedy,
    Saving,
    Vmem,
    VmemAllocation,
    VmemBuffer,
    VmemUse,
)
from ratchet.values.row import Decision, Fidelity, Row
from ratchet.values.samples import Launch, Paired, Samples
from ratchet.values.status import Refusal, Status
from ratchet.values.timeline import LinkUse, OpCost, Span, SpanKind, Timeline
from ratchet.values.verdict import (
    MEASURED,
    SCHEMA_VERSION,
    SCORED,
    Against,
    Band,
    Bar,
    Claim,
    Conditions,
    Earlier,
    Parity,
    ProblemCost,
    Score,
    Step,
    Verdict,
)
