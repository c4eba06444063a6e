"""The configuration of a kernel's call: the one spelling that is known, and nothing else."""

import json

import pytest

from ratchet.tpu.mlir.kernel_config import read, write
from ratchet.values.status import Refusal, Status
from tests.refusals import refused

CALL = {
    "body": "aGk=",
    "has_communication": False,
    "vmem_limit_bytes": 5,
    "cost_estimate": {"flops": [1.5, None]},
    "collective_id": 3,
    "allow_input_fusion": [True, False],
}
AROUND = {
    "device_type": "DEVICE_TYPE_X",
    "scoped_memory_configs": [{"memory_space": 1, "offset": 0, "size": 77}],
    "flag_configs": [{"flag_type": "xla_tpu_x", "value": {"boolean_value": True}}],
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
        (text({"cost_estimate": {"two words": 1}}), "the text 'two words', wanted"),
        (text({"cost_estimate": [{"a": ["b c"]}]}), "the text 'b c', wanted"),
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
