"""The Action's own shell steps, run in a sample repository: one regression caught, one let through by its share."""

import os
import re
import subprocess
import textwrap

import pytest

from ratchet.values.status import Status
from tests.workspaces import HERE

DOCS = HERE / "docs" / "ci.md"
KERNELS = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def bell(x_ref, o_ref, rounds):
    y = x_ref[...]
    for _ in range(rounds):
        y = jnp.exp(-y * y)
    o_ref[...] = y


def call(x, rounds, rows, name):
    window = pl.BlockSpec((rows, 128), lambda i: (i, 0))
    return pl.pallas_call(lambda a, b: bell(a, b, rounds), out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=x.shape[0] // rows, in_specs=[window], out_specs=window, name=name)(x)


def attend(x):
    return call(x, ROUNDS, 256, "attend")


def norm(x):
    return call(x, 2, NORM_ROWS, "norm")
"""
LIST = """
[[tool.ratchet.ci]]
target = "kernels:attend"
inputs = ["f32[4096,128]"]

[[tool.ratchet.ci]]
target = "kernels:norm"
inputs = ["f32[4096,128]"]
allowed_share = 0.15  # it runs once a request
"""
BEFORE, AFTER = {"ROUNDS": "24", "NORM_ROWS": "1024"}, {"ROUNDS": "40", "NORM_ROWS": "512"}
IDENTITY = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]


def step(name):
    """The shell text of one step of the Action."""
    text = (HERE / "action" / "action.yml").read_text().partition(f"- name: {name}\n")[2].partition("    - name: ")[0]
    run = text.partition("      run: ")[2]
    return textwrap.dedent(run.removeprefix("|\n"))


def written(kernels):
    return re.sub(r"\b(ROUNDS|NORM_ROWS)\b", lambda found: kernels[found[0]], KERNELS)


@pytest.fixture
def sample(tmp_path):
    """A repository whose last commit changes two kernels."""
    root = tmp_path / "a sample"
    root.mkdir()
    (root / "pyproject.toml").write_text(LIST)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    for kernels, message in ((BEFORE, "base"), (AFTER, "change both")):
        (root / "kernels.py").write_text(written(kernels))
        subprocess.run(["git", "add", "-A"], cwd=root, check=True)
        subprocess.run(["git", *IDENTITY, "commit", "-qm", message], cwd=root, check=True)
    return root


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_regression_is_caught_and_a_small_one_is_let_through(sample, tmp_path):
    """The steps of a runner, whose ``ratchet`` is this clone's. The comment is the one in the documentation."""
    runner, programs = tmp_path / "runner", tmp_path / "bin"
    runner.mkdir()
    programs.mkdir()
    (programs / "ratchet").write_text(f'#!/bin/sh\nexec "{HERE}/ratchet.sh" "$@"\n')
    (programs / "ratchet").chmod(0o755)
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(runner),
        "GITHUB_OUTPUT": str(runner / "outputs"),
        "GITHUB_STEP_SUMMARY": str(runner / "summary"),
        "BASE": "HEAD^",
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
    environment = {**os.environ, **variables}
    compare = [*shell, step("Compare")]
    done = subprocess.run(compare, cwd=sample, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outputs = dict(line.split("=", 1) for line in (runner / "outputs").read_text().splitlines())
    comment = (runner / "ratchet-ci.md").read_text()
    assert (runner / "summary").read_text() == comment
    rows = {line.split("`")[1]: line.split("|")[-2].strip() for line in comment.splitlines() if line.startswith("| `")}
    assert rows == {"kernels:attend": "**slower**", "kernels:norm": "same"}
    assert outputs == {
        "markdown": str(runner / "ratchet-ci.md"),
        "junit": str(runner / "ratchet-ci.xml"),
        "code": str(Status.REGRESSED.exit_code),
    }
    assert comment.strip() in DOCS.read_text()
    ended = subprocess.run([*shell, step("Outcome")], env={**environment, "CODE": outputs["code"]}, check=False)
    assert ended.returncode == Status.REGRESSED.exit_code
