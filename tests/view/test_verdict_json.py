"""The JSON document, the schema that is shipped for it, and the hints in it."""

import dataclasses

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from jax.experimental import pallas as pl

from ratchet.tpu.exporting import exported, for_tpu, in_one_line, status_of
from ratchet.values import Decision, Parity, Step
from ratchet.values.loss import LossKind
from ratchet.values.omission import LinkModel, UndecidedBranches, Unmodelled
from ratchet.values.status import Status
from ratchet.view.document import dumps, plain
from ratchet.view.verdict_json import SCHEMA_PATH, hint
from tests.imports import OLDER_JAX
from tools import schema

from .timelines import VALIDATOR, document_of, row, timeline, verdict


def test_the_schema_is_one_and_has_the_words_of_the_code() -> None:
    VALIDATOR.check_schema(VALIDATOR.schema)
    assert SCHEMA_PATH.read_text() == schema.made(), "`python -m tools.schema` writes it"


def test_a_kept_kernel_modelled_and_measured() -> None:
    kept = verdict()
    incumbent = row(id="e0", commit="c0", evaluator="v5e-model", score="1000.5", median_ms="2.9")
    document = document_of(kept, id="e1", commit="c1", incumbent=incumbent)
    assert document["outcome"]["exit_code"] == 0
    assert document["outcome"]["incumbent"]["score"] == 1000.5
    assert document["verdict"]["score"]["kind"] == "modelled"
    assert document["verdict"]["timeline"]["kind"] == "modelled"
    assert document["verdict"]["timeline"]["span_count"] == len(kept.timeline.spans)
    assert "spans" not in document["verdict"]["timeline"]
    conditions = dataclasses.replace(kept.conditions, evaluator="tpu")
    measured = document_of(dataclasses.replace(kept, conditions=conditions))["verdict"]
    assert (measured["score"]["kind"], measured["timeline"]["evaluator"]) == ("measured", "v5e-model")


def test_every_field_of_a_verdict_is_in_the_document() -> None:
    fields = {field.name for field in dataclasses.fields(verdict())}
    # Two are under kernel; the losses are sentences about the timeline, the hint one about the reason.
    assert (fields - {"kernel_name", "source_sha256"}) | {"losses", "hint"} == set(document_of(verdict())["verdict"])


def test_every_kind_of_loss_and_omission_has_its_numbers_and_a_sentence() -> None:
    spare = (
        *Unmodelled,
        UndecidedBranches(fast_cycles=1, slow_cycles=2),
        LinkModel(link_bytes_per_s=45e9, hop_s=1e-6, source="timed"),
    )
    judged = verdict(timeline=dataclasses.replace(timeline(), not_modelled=spare))
    document = document_of(judged)
    losses = document["verdict"]["timeline"]["blame"]["losses"]
    assert {loss["kind"] for loss in losses} == {kind.value for kind in LossKind}
    assert losses[0]["where"] == "waits for window input 1"
    assert losses[1]["units"] == [{"unit": "XLU", "cycles": 656, "where": "kernel.py:3"}]
    assert len(document["verdict"]["losses"]) == len(losses)
    assert document["verdict"]["losses"][3].startswith("3 of 8 grid steps do no matrix work")
    assert [omission["kind"] for omission in document["verdict"]["timeline"]["not_modelled"]] == [
        *(one.value for one in Unmodelled), "undecided branches", "link model",
    ]  # fmt: skip
    assert len(document["verdict"]["notes"]) == len(judged.notes) + len(spare)


@pytest.mark.parametrize(
    ("of_the_turn", "why"),
    [("", "compile: used 40 MiB"), ("; the judge is to blame", "compile: used 40 MiB"), ("slow", "slow")],
)
def test_the_outcome_has_the_whole_reason_and_its_cause(of_the_turn: str, why: str) -> None:
    steps = (Step(name="compile", status=Status.VMEM_OVERFLOW, seconds=1.0, summary="used 40 MiB"),)
    judged = verdict(Status.VMEM_OVERFLOW, reason="compile: used 40 MiB", steps=steps)
    reason = of_the_turn if of_the_turn == "slow" else f"VMEM_OVERFLOW: compile: used 40 MiB{of_the_turn}"
    document = document_of(judged, outcome=Status.VMEM_OVERFLOW, decision=Decision.REVERTED, reason=reason)
    assert document["outcome"]["reason"] == reason
    assert document["outcome"]["why"] == why
    assert document["verdict"]["steps"][0]["summary"] == "", "it is the verdict's reason"


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_valid_document(status: Status) -> None:
    document_of(verdict(status), outcome=status, decision=Decision.REVERTED, id="e1")
    document_of(None, outcome=status, decision=None, reason="refused")


def test_numbers_that_json_lacks_become_null() -> None:
    parity = Parity(
        checks=(), worst_error=float("inf"), rms_error=float("nan"), floor_rms_error=0.1, module_version=9, seconds=1.0
    )
    judged = verdict(Status.NOT_FINITE, parity=parity)
    document = document_of(judged, outcome=Status.NOT_FINITE, decision="reverted", reason="\x1b[31m\ud800")
    assert document["verdict"]["parity"]["worst_error"] is None
    text = dumps(document)
    assert text.isascii()
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.update(extra=1),
        lambda document: document["outcome"].update(status="FINE"),
        lambda document: document["verdict"].update(score=None),
        lambda document: document["verdict"]["score"].pop("kind"),
    ],
)
def test_the_schema_refuses_a_wrong_document(spoil) -> None:
    document = document_of(verdict())
    spoil(document)
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(document)


def test_a_table_renames_leaves_out_and_adds_and_a_new_field_appears_by_itself() -> None:
    step = Step(name="compile", status=Status.PASS, seconds=1.5, summary="a kernel")
    assert plain(step) == {"name": "compile", "status": "PASS", "seconds": 1.5, "summary": "a kernel"}
    tables = {Step: {"step": "name", ...: ("summary",), "seconds": lambda one: -one.seconds, "code": lambda _: 0}}
    assert list(plain([step], tables)[0].items()) == [
        ("step", "compile"),
        ("status", "PASS"),
        ("seconds", -1.5),
        ("code", 0),
    ]


# --- hints: what Pallas and Mosaic really say ---


TABLE = np.arange(64 * 256, dtype=np.float32).reshape(64, 256)


def _store_a_scalar(x, o):
    o[0, 0] = jnp.sum(x[...])


def _capture(x, o):
    o[...] = x[...] + jnp.asarray(TABLE)


def _three_passes(x, o):
    o[...] = jnp.dot(jnp.dot(x[...], x[...].T, precision="high"), x[...])


def _narrow_sum(x, o):
    b = x[...].astype(jnp.bfloat16)
    o[...] = jax.lax.dot_general(b, b, (((0,), (0,)), ((), ())))[:64].astype(jnp.float32)


def _ask(x, o):
    if x[0, 0] > 0:
        o[...] = x[...]


def _sorted(x, o):
    o[...] = jnp.sort(x[...], 1)


@pytest.mark.parametrize(
    ("kernel", "width", "words"),
    [
        (_store_a_scalar, 256, "pltpu.SMEM"),
        (_capture, 256, "operand"),
        *([(_three_passes, 256, "HIGHEST")] if OLDER_JAX else []),  # later it lowers
        (_narrow_sum, 256, "preferred_element_type"),
        (_ask, 256, "pl.when"),
        (_sorted, 256, "bitonic"),
        (_sorted, 100, "multiples of 8 and 128"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_an_error_of_lowering_has_a_hint(kernel, width, words):
    spec = pl.BlockSpec((64, width), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    call = pl.pallas_call(kernel, out_shape=shape, grid=(4,), in_specs=[spec], out_specs=spec)
    with pytest.raises(Exception, match=r"\w") as caught, for_tpu():
        exported(call, [shape])
    assert words in hint(status_of(caught.value), in_one_line(caught.value))


def test_an_overflow_is_answered_with_the_commands_that_explain_it_and_the_unknown_with_nothing():
    assert hint(Status.COMPILE_FAILED, "the moon is in the wrong phase") == ""
    assert hint(Status.WRONG_VALUES, "captures constants") == ""
    said = hint(Status.VMEM_OVERFLOW, "the kernel needs 48.00MiB of VMEM, the limit is 16.00MiB")
    assert "ratchet explain FILE --vmem" in said
    assert "ratchet fit FILE" in said
