"""A child that the system ends, as it does when memory is short: the verdict says so, the next one has a new child."""

import os
import signal

import pytest

from prepare import judge
from ratchet.exam.judge import asking
from ratchet.process.sandbox.child import Child, resident_bytes
from ratchet.values.status import Status
from tests.exam.judge.programs import freeze, request_of
from tests.kernels import LAYERNORM

ENDINGS = {
    "ratchet.exam.candidate.worker": Status.IMPORT_FAILED,
    "ratchet.tpu.compiler.worker": Status.COMPILER_CRASHED,
    "ratchet.exam.judge.values_worker": Status.CANNOT_VERIFY,
    "ratchet.exam.judge.schedule_worker": Status.INFRASTRUCTURE,
}


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(module, marks=() if module == asking.WORKER else pytest.mark.slow)  # a verdict each
        for module in ENDINGS
    ],
)
def test_a_child_that_is_killed_is_a_verdict(tmp_path, workers, monkeypatch, module):
    freeze(tmp_path, LAYERNORM)
    modules, wanted, ask = {}, Child._wanted, Child.ask

    def remember(self, name):
        modules[self] = name
        return wanted(self, name)

    def killed(self, request, limits):
        if modules.get(self) == module:
            self._await_walls()
            os.killpg(self._process.pid, signal.SIGKILL)
        return ask(self, request, limits)

    monkeypatch.setattr(Child, "_wanted", remember)
    for _, child in workers._children.values():
        child.close()  # those of this test are new, so that their modules are known
    if workers._next is not None:
        workers._next.close()
    workers._next = None
    request = request_of(tmp_path, LAYERNORM)
    with monkeypatch.context() as patch:
        patch.setattr(Child, "ask", killed)
        verdict = judge(request, workers=workers)
    assert verdict.status is ENDINGS[module], verdict.reason
    assert verdict.score is None
    assert all(resident_bytes(child._process.pid) == 0 for child, name in modules.items() if name == module)
    again = judge(request, workers=workers)
    assert again.status is Status.PASS, again.reason
