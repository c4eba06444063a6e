"""``ratchet doctor``: what is lost is said, with what to do; the exit code says whether a kernel can be judged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.text import Text

from ratchet.commands import doctor, options
from ratchet.commands.doctor import Finding, Health, doctor_document, doctor_text
from ratchet.process import key
from ratchet.process.boot import home
from ratchet.values.status import Status
from tests.loop.stage import Stage

SOME = (
    Finding(name="python", health=Health.OK, what="3.12"),
    Finding(name="jail", health=Health.LESS, what="landlock missing\x1b[2J", todo="Linux 5.13 " * 12),
    Finding(name="disk", health=Health.MISSING, what="0.1 GiB free", todo="free 1.9 GiB there"),
)


def by_name(check: Iterator[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in check}


def test_each_line_says_what_to_do() -> None:
    assert doctor_text(SOME[:1]).split("\n") == ["ok       python  3.12", "all is well"]
    text = doctor_text(SOME)
    assert "less     jail    landlock missing\n" in text
    assert "-> free 1.9 GiB there" in text
    assert text.endswith("no kernel can be judged here: disk")
    assert doctor_text(SOME[:2]).endswith("kernels can be judged here; less than there could be: jail")
    for width in (40, 80):
        assert max(map(len, doctor_text(SOME, width=width).split("\n")[:-1])) <= width
        assert Text.from_ansi(doctor_text(SOME, width=width, colour=True)).plain == doctor_text(SOME, width=width)


def test_the_exit_code_and_the_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: iter(SOME[:2]),))
    assert doctor.doctor_command(options.ratchet(["doctor"])) == 0
    assert "less     jail" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "CHECKS", (lambda: iter(SOME),))
    assert doctor.doctor_command(options.ratchet(["doctor", "--json"])) == Status.INFRASTRUCTURE.exit_code
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["can_judge"], doctor_document(SOME[:2])["can_judge"]) == (False, True)
    assert [one["health"] for one in document["findings"]] == ["ok", "less", "missing"]
    assert document["findings"][0]["todo"] is None
    assert printed.err == "INFRASTRUCTURE: no kernel can be judged here: disk\n"


def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = {finding.name: finding for check in (doctor.python, doctor.size, doctor.jail) for finding in check()}
    assert list(found) == ["python", "machine", "cores", "memory", "disk", "temporary", "jail"]
    assert found["python"].health is Health.OK
    total, free = doctor.memory()
    assert 0 < free <= total
    assert all(wall in found["jail"].what for wall in ("namespaces", "landlock", "seccomp"))
    assert all(one.todo for one in found.values() if one.health is not Health.OK)


def test_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "memory", lambda: (8 << 30, 1 << 30))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    found = by_name(doctor.size())
    assert [found[name].health for name in ("cores", "memory", "disk")] == [Health.LESS, Health.LESS, Health.MISSING]
    assert found["disk"].todo.startswith("free ")


def test_an_environment_that_is_not_the_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(home, "environment", lambda: tmp_path)
    found = by_name(doctor.packages())
    assert found["environment"].health is Health.MISSING
    assert "not as requirements.lock says" in found["environment"].what
    assert found["environment"].todo
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name in ("libtpu", "ray") else "1")
    found = by_name(doctor.packages())
    assert (found["compiler"].health, found["extras"].health) == (Health.MISSING, Health.LESS)
    assert "libtpu missing" in found["compiler"].what


def test_a_device_that_jax_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.devices, "tpu", lambda: "")
    monkeypatch.setattr(doctor.devices, "gpu", lambda: "NVIDIA H100")
    monkeypatch.setattr(doctor.devices, "_installed", lambda *_: [])
    found = by_name(doctor.attached())
    assert found["TPU"].what.startswith("none, and none is needed")
    assert (found["GPU"].health, found["GPU"].what) == (Health.LESS, "NVIDIA H100")
    assert "pip install" in found["GPU"].todo


def test_repositories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def look(root: Path | None) -> dict[str, Finding]:
        monkeypatch.setattr(home, "repository", lambda _: root)
        return by_name(doctor.history())

    assert look(None)["repository"].health is Health.LESS
    stage = Stage.new(tmp_path / "repository")
    assert look(stage.root)["git"].health is look(stage.root)["ledger"].health is Health.OK
    stage.ledger.write_text("nothing\n")
    broken = look(stage.root)["ledger"]
    assert broken.health is Health.MISSING
    assert "line 1" in broken.what
    assert "rebuild" in broken.todo
    stage.git("checkout", "-q", "--detach")
    assert "detached" in look(stage.root)["git"].what
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    assert look(stage.root)["git"].todo == "install git"


def test_a_machine_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*, make: bool) -> key.Key:
        assert not make
        raise key.NoKey("there is none")

    monkeypatch.setattr(home, "repository", lambda _: None)
    monkeypatch.setattr(key, "load", none)
    found = by_name(doctor.history())["key"]
    assert (found.health, found.what) == (Health.LESS, "there is none")
