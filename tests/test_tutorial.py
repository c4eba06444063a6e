"""The first block of docs/your-repository.md, executed: from an empty folder to a kept experiment.

Nothing is taken from this clone's environment: building the wheel fetches setuptools, and the judge's packages are
downloaded, as the machine has its package index configured.
"""

import os
import shutil
import subprocess

import pytest

from ratchet.exam.candidate import target
from tests.workspaces import HERE

PAGE = HERE / "docs" / "your-repository.md"
IDENTITY = {
    f"GIT_{who}_{what}": "user@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
PYTHONS = [python for python in os.environ.get("RATCHET_PYTHONS", "").split(os.pathsep) if python]


def commands():
    """The first block, and the clone's own name in it."""
    text = PAGE.read_text()
    return text.partition("```sh ")[2].partition("\n")[2].partition("```")[0]


def test_the_page_has_the_commands_that_are_promised():
    assert "pip install CLONE" in commands()
    assert "ratchet init\n" in commands()
    assert commands().count('.venv/bin/ratchet "') == 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_from_an_empty_folder_to_a_kept_experiment(tmp_path):
    clone, folder = tmp_path / "clone", tmp_path / "an empty folder"
    subprocess.run(["git", "clone", "-q", HERE, clone], check=True)
    folder.mkdir()
    script = "set -eu\n" + commands().replace("CLONE", str(clone))
    environment = {**os.environ, **IDENTITY, "RATCHET_ENVIRONMENT": str(tmp_path / "an environment")}
    shell = [shutil.which("bash"), "-c", script]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT:")]
    assert [line.rpartition("decision=")[2] for line in results] == ["baseline", "kept"]
    log = subprocess.run(["git", "log", "--format=%s"], cwd=folder, capture_output=True, text=True, check=True)
    assert log.stdout.splitlines()[0].startswith("experiment: 64 rows")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PYTHONS, reason="RATCHET_PYTHONS names Pythons with another JAX each, with colons between")
@pytest.mark.parametrize("python", PYTHONS)
def test_another_jax_exports_what_this_one_executes(python, tmp_path):
    import numpy as np

    from ratchet.tpu.mosaic import run

    file = tmp_path / "crossing.py"
    shutil.copy2(HERE / "examples" / "first.py", file)
    made = target.export(target.parse(f"{file}:kernel_fn"), target.inline(["generate_inputs"]), python=python)
    x = np.random.default_rng(0).normal(size=(256, 1024)).astype(np.float32)
    result = run.load(made.program).check([x])
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    assert np.allclose(np.asarray(result.outputs[0]), weights / weights.sum(axis=1, keepdims=True), atol=1e-6)
    assert result.findings == ()
