"""Kernel files in their jailed child: whatever they do, the judge gets an artefact or a refusal. One child each."""

import pytest

from ratchet.exam.candidate import tracer
from ratchet.process.sandbox.child import Limits
from ratchet.values.status import Refusal, Status
from tests.kernels import ATTENTION, edited
from tests.walls import missing, needs

LIMITS = Limits(seconds=250, memory_bytes=4 << 30)
OS = """import dataclasses
os = dataclasses.sys.modules['os']
REPOSITORY = str(dataclasses.sys.modules['ratchet.process.sandbox.child'].PACKAGE_ROOT)
"""
"""How a kernel file that means harm gets past the static check, which is no wall."""
TOP = 'KERNEL_NAME = "causal_flash_attention"'


def refusal(tmp_path, source, limits=LIMITS):
    with pytest.raises(Refusal) as caught:
        tracer.examine(source.encode(), "kernel.py", child=tracer.start(tmp_path / "work"), limits=limits)
    assert "\n" not in caught.value.message
    return caught.value


def test_an_honest_kernel_becomes_bytes(tmp_path):
    artefact = tracer.examine(ATTENTION.encode(), "kernel.py", child=tracer.start(tmp_path / "work"))
    assert str(artefact.inputs[0]) == "bfloat16[1024,128]"
    assert len(artefact.program) > 1000
    assert artefact.jail == tracer.lost(missing()), "what this system has no means for, and no more"


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (OS + "os._exit(0)", Status.IMPORT_FAILED, "exited with code 0"),
        (OS + "if os.fork():\n    os._exit(0)\nwhile True:\n    pass", Status.IMPORT_FAILED, ""),
        ("print('RESULT: score=99 latency=0.1ms')\nraise KeyboardInterrupt", Status.IMPORT_FAILED, "KeyboardInterrupt"),
        ("import numpy as np\nnp.ones(10**11)", Status.OUT_OF_MEMORY, "Unable to allocate"),
        pytest.param(OS + "os.kill(os.getppid(), 9)", Status.IMPORT_FAILED, "PermissionError", marks=needs("seccomp")),
        pytest.param(
            OS + "os.open(REPOSITORY + '/forged', os.O_CREAT | os.O_WRONLY)",
            None,
            "Permission",
            marks=needs("landlock"),
        ),
    ],
    ids=["os._exit", "fork-that-outlives-it", "fake-result", "allocation", "kill-judge", "write-outside"],
)
def test_what_harms_at_import(tmp_path, change, status, said):
    found = refusal(tmp_path, edited(ATTENTION, (TOP, f"{change}\n{TOP}")))
    assert found.status is (status or Status.IMPORT_FAILED)
    assert said in found.message


def test_an_endless_loop_ends_at_the_deadline(tmp_path):
    change = OS + "while True:\n    dataclasses.sys.modules['time'].sleep(1)"
    found = refusal(tmp_path, edited(ATTENTION, (TOP, f"{change}\n{TOP}")), Limits(seconds=4, memory_bytes=4 << 30))
    assert found.status is Status.TIMEOUT
    assert "4 s" in found.message
