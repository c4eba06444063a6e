"""The configuration of a kernel's call: the one spelling that is known, and nothing else."""

import json

import pytest

from ratchet.tpu.mlir.kernel_config import check_executed, read, write
from ratchet.values.status import Refusal, Status
from tests.refusals import refused

CALL = {
    "body": "aGk=",
    "has_communication": False,
    "vmem_limit_bytes": 5,
    "cost_estimate": {"flops": 1.5, "transcendentals": None},
    "collective_id": 3,
    "allow_input_fusion": [True, False],
}
AROUND = {
    "device_type": "DEVICE_TYPE_X",
    "scoped_memory_configs": [{"memory_space": 1, "offset": 0, "size": 77}],
    "flag_configs": [{"flag_type": "xla_tpu_x", "value": {"boolean_value": True}}],
    "sparse_core_config": {"comp_env": {"backend_opt_level": "O2"}, "core_ids": ["0"], "tiling": "TILING_COMPACT"},
}


def text(call: dict[str, object] | None = None, **around: object) -> str:
    return json.dumps({"custom_call_config": {**CALL, **(call or {})}, **around})


def test_what_is_read_is_written_again():
    body, rest = read(text(**AROUND))
    assert body == b"hi"
    assert rest == {"custom_call_config": {key: value for key, value in CALL.items() if key != "body"}, **AROUND}
    assert read(write(b"ho", rest)) == (b"ho", rest)
    assert json.loads(write(b"hi", rest)) == json.loads(text(**AROUND))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("[]", "cannot be read"),
        ("{", "cannot be read"),
        ("{}", "cannot be read"),
        (text({"body": "aGk"}), "cannot be read"),
        (text({"body": "a Gk="}), "cannot be read"),
        (text({"body": 3}), "cannot be read"),
        (text({"cost_estimate": float("nan")}), "NaN is no number"),
        (text({"cost_estimate": float("-inf")}), "-Infinity is no number"),
        ('{"custom_call_config": {"body": "aGk=", "body": "aG8="}}', "a key is repeated"),
        ("[" * 100_000, "cannot be read"),
        (text(vmem_limit_bytes=5), "the key 'vmem_limit_bytes', which is not known"),
        (text({"device_type": "TPU"}), "the key 'device_type', which is not known"),
        (text({"Body": ""}), "the key 'Body', which is not known"),
        (text(customCallConfig={"body": "aGk="}), "the key 'customCallConfig', which is not known"),
        (text(device_type="a b"), "the text 'a b', wanted a plain word"),
        (text(device_type=""), "the text '', wanted"),
        (text(device_type="x" * 81), "wanted a plain word"),
        (text({"cost_estimate": {"two words": 1}}), "the key 'two words', which is not known"),
        (text({"cost_estimate": [{"flops": 1}]}), "cost_estimate is .*another type"),
        (text({"collective_id": True}), "collective_id is True, .*another type"),
        (text({"has_communication": 1}), "has_communication is 1, .*another type"),
        (text({"allow_input_fusion": [1]}), "allow_input_fusion is 1, .*another type"),
        (text({"output_memory_space_colors": [{"colour": 1}]}), "the key 'colour', which is not known"),
        (text(scoped_memory_configs=[{"memory_space": 1, "at": 7}]), "the key 'at', which is not known"),
    ],
)
def test_anything_else_is_refused(wrong, said):
    with refused(Status.CANNOT_VERIFY, said):
        read(wrong)


def test_a_word_has_eighty_letters_at_most():
    assert read(text(device_type="x" * 80))[1]["device_type"] == "x" * 80


def test_what_is_quoted_from_it_is_short():
    for wrong in (text(**{"k" * 200: 1}), text(device_type="-" * 200)):
        with pytest.raises(Refusal) as caught:
            read(wrong)
        assert 80 <= max(len(word) for word in caught.value.message.split("'")) <= 85


SAME = {"serialization_format": 1, "needs_layout_passes": True}


def test_a_configuration_without_a_meaning_of_its_own_is_executed():
    check_executed(read(text(SAME, scoped_memory_configs=[{"memory_space": 1, "offset": 0, "size": 77}]))[1])
    flag = {"flag_type": "XLA_TPU_FORCE_LP_LLO_SCHEDULER", "value": {"boolean_value": True}}
    check_executed(read(text(SAME, flag_configs=[flag]))[1])


@pytest.mark.parametrize("passes", [{}, {"needs_layout_passes": False}, {"needs_layout_passes": True}])
def test_how_a_sparse_core_lays_memory_out_changes_no_value(passes):
    around = {"device_type": "DEVICE_TYPE_SPARSECORE", "sparse_core_config": {"tiling": "TILING_COMPACT"}}
    check_executed(read(text({"serialization_format": 1, **passes}, **around))[1])


@pytest.mark.parametrize(
    ("call", "around", "said"),
    [
        ({}, {}, "needs_layout_passes = None"),
        ({**SAME, "needs_layout_passes": False}, {}, "needs_layout_passes = False"),
        ({**SAME, "needs_hlo_passes": True}, {}, "needs_hlo_passes = True"),
        ({**SAME, "serialization_format": 2}, {}, "serialization_format = 2"),
        (SAME, {"device_type": "DEVICE_TYPE_TENSORCORE"}, "device_type = DEVICE_TYPE_TENSORCORE"),
        ({**SAME, "needs_hlo_passes": True}, {"device_type": "DEVICE_TYPE_SPARSECORE"}, "needs_hlo_passes = True"),
        (SAME, {"sparse_core_config": {"tiling": "TILING_COMPACT"}}, "sparse_core_config"),
        (SAME, {"megachip_parallelism_config": {"cores": ["0"]}}, "megachip_parallelism_config"),
        (SAME, {"flag_configs": AROUND["flag_configs"]}, "the flag xla_tpu_x"),
    ],
)
def test_what_changes_how_a_module_is_read_is_not_executed(call, around, said):
    with refused(Status.CANNOT_VERIFY, said):
        check_executed(read(text(call, **around))[1])
