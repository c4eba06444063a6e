"""The Action's own shell steps, run in a sample repository: one regression caught, one let through by its share."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from ratchet.values.status import Status
from ratchet.view.changes import MARKER
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
SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]


def step(name):
    """One step of the Action."""
    steps = yaml.safe_load((HERE / "action" / "action.yml").read_text())["runs"]["steps"]
    return next(one for one in steps if one["name"] == name)


def written(kernels):
    """The source of two kernels: how often the first computes, and how many rows the second takes at once."""
    return re.sub(r"\b(ROUNDS|NORM_ROWS)\b", lambda found: kernels[found[0]], KERNELS)


def committed(root, message, files):
    """A commit of these files in a repository, which is made where there is none."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for name, text in files.items():
        (root / name).write_text(text)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-qm", message]):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def sample(tmp_path):
    """A repository whose last commit changes two kernels."""
    root = tmp_path / "a sample"
    root.mkdir()
    committed(root, "base", {"pyproject.toml": LIST, "kernels.py": written(BEFORE)})
    committed(root, "change both", {"kernels.py": written(AFTER)})
    return root


class Api(http.server.BaseHTTPRequestHandler):
    """Comments of pull request 7 of ``a/b``, as the API of GitHub keeps them."""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        asked = {name: int(value) for name, value in (part.split("=") for part in query.split("&"))}
        first = (asked["page"] - 1) * asked["per_page"]
        self.answer(path, "/repos/a/b/issues/7/comments", 200, self.server.comments[first : first + asked["per_page"]])

    def do_POST(self):
        if self.server.denied:
            return self.answer(self.path, self.path, self.server.denied, {"message": "Resource not accessible"})
        number = len(self.server.comments) + 1
        self.server.comments.append({"id": number, "body": self.content()["body"]})
        return self.answer(self.path, "/repos/a/b/issues/7/comments", 201, {"id": number})

    def do_PATCH(self):
        number = int(self.path.rpartition("/")[2])
        if self.server.denied or number in self.server.of_others:
            return self.answer(self.path, self.path, self.server.denied or 403, {})
        self.server.comments[number - 1] = {"id": number, "body": self.content()["body"]}
        return self.answer(self.path, f"/repos/a/b/issues/comments/{number}", 200, {"id": number})

    def content(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, path, wanted, code, content):
        self.server.asked.append((self.command, path, self.headers["Authorization"]))
        data = json.dumps(content).encode()
        self.send_response(code if path == wanted else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    """A server on the loopback device."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        server.comments, server.asked, server.denied, server.of_others = [], [], 0, ()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def comment(api, tmp_path):
    """Runs the step *Comment* with a table."""

    def run(table, token="a token"):
        (tmp_path / "ratchet-ci.md").write_text(f"{MARKER}\n{table}\n", encoding="utf-8")
        variables = {
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_API_URL": f"http://127.0.0.1:{api.server_address[1]}",
            "GITHUB_REPOSITORY": "a/b",
            "GITHUB_ACTION_PATH": str(HERE / "action"),
            "PYTHON": sys.executable,
            "PULL": "7",
            "GH_TOKEN": token,
            "no_proxy": "127.0.0.1",
        }
        command = [*SHELL, step("Comment")["run"]]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run


def test_a_comment_is_posted_once_and_then_edited(api, comment):
    api.comments += [{"id": number + 1, "body": f"a review, {MARKER} in its middle"} for number in range(100)]
    assert comment("one `‹` | é") == ""
    assert [one["body"] for one in api.comments[100:]] == [f"{MARKER}\none `‹` | é\n"]
    api.comments += [{"id": number + 102, "body": None} for number in range(150)]
    assert comment("two") == ""
    assert len(api.comments) == 251
    assert api.comments[100]["body"] == f"{MARKER}\ntwo\n"
    assert {authorization for _, _, authorization in api.asked} == {"Bearer a token"}


def test_a_comment_of_another_is_left_alone(api, comment):
    api.comments.append({"id": 1, "body": f"{MARKER} mine"})
    api.of_others = (1,)
    comment("ours")
    assert [one["body"] for one in api.comments] == [f"{MARKER} mine", f"{MARKER}\nours\n"]


def test_the_token_of_a_job_edits_no_comment_of_a_person(api, comment):
    """Who wrote a comment could change what it says later."""
    api.comments += [{"id": one, "body": MARKER, "user": {"type": kind}} for one, kind in ((1, "User"), (2, "Bot"))]
    comment("ours", token="ghs_of_a_job")
    assert [one["body"] for one in api.comments] == [MARKER, f"{MARKER}\nours\n"]


@pytest.mark.parametrize("code", [401, 403, 404, 500])
def test_what_may_not_be_posted_is_a_warning(api, comment, code):
    api.denied = code
    said = comment("a table")
    assert said.startswith("::warning title=ratchet ci::")
    assert len(said.splitlines()) == 1
    assert ("pull-requests: write" in said) is (code != 500)
    assert not api.comments


def test_no_token_and_no_server_are_a_warning(api, comment):
    assert "in the summary of the job only" in comment("a table", token="")
    assert not api.asked
    api.shutdown()
    api.server_close()
    assert "the comment was not posted" in comment("a table")


def test_a_table_that_is_too_long_is_cut_at_the_end_of_a_line(api, comment):
    comment("\n".join("| a row |" for _ in range(10_000)))
    body = api.comments[0]["body"]
    assert len(body) < 65_536
    assert body.endswith("| a row |\n\n(The rest is in the summary of the job.)")


KEPT = ("PIP_", "UV_", "SSL_", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY")
"""Beginnings of variables by which a package index is reached."""


class Runner:
    """Runs the Action's steps in order, as they are, in folders where there is nothing yet.

    ``actions/cache`` is the runner's own: here a folder that is put back under an equal key.
    """

    def __init__(self, sample, root, caches):
        self.sample, self.temp, self.caches = sample, root / "a runner", caches
        self.action, self.home = root / "an action", root / "nobody's home"
        subprocess.run(["git", "clone", "-q", HERE, self.action], check=True)
        python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        self.inputs = {"python": python, "package": "", "base": "HEAD^"}
        for folder in (self.temp, self.home, caches):
            folder.mkdir(exist_ok=True)
        self.files = {name: self.temp / name for name in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT")}
        self.files["GITHUB_STEP_SUMMARY"] = self.temp / "summary"
        for file in self.files.values():
            file.touch()

    def outputs(self, name="GITHUB_OUTPUT"):
        return dict(line.split("=", 1) for line in self.files[name].read_text().splitlines())

    def value(self, text):
        """What an expression of a step is: an input's, or what an earlier step wrote."""
        return {**self.inputs, **self.outputs()}.get(text.strip("${} ").rpartition(".")[2], "")

    def run(self, name, **more):
        added = self.files["GITHUB_PATH"].read_text().splitlines()
        variables = {
            **{name: value for name, value in os.environ.items() if name.startswith(KEPT)},
            "HOME": str(self.home),
            "PATH": os.pathsep.join([*added, "/usr/bin", "/bin"]),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_ACTION_PATH": str(self.action / "action"),
            **{name: str(file) for name, file in self.files.items()},
            **self.outputs("GITHUB_ENV"),
            **{variable: self.value(text) for variable, text in step(name)["env"].items()},
        }
        return subprocess.run(
            [*SHELL, step(name)["run"]],
            cwd=self.sample,
            env={**variables, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    def key(self):
        """The step *Key*; returns its outputs."""
        done = self.run("Key")
        assert done.returncode == 0, done.stderr
        return self.outputs()

    def install(self):
        """The steps *Cache* and *Install*; returns what the second printed."""
        made = self.key()
        kept, folder = self.caches / made["key"], Path(made["folder"])
        if kept.exists():
            kept.rename(folder)
        done = self.run("Install")
        assert done.returncode == 0, done.stderr
        return done.stderr


def test_the_cache_is_that_of_the_lock_and_the_python(sample, tmp_path):
    runner = Runner(sample, tmp_path, tmp_path / "caches")
    first = runner.key()
    assert re.fullmatch(r"ratchet-[0-9a-f]{16}-[0-9a-f]{16}", first["key"])
    assert runner.outputs("GITHUB_ENV") == {}, "later steps keep their caches"
    assert runner.key() == first
    with (runner.action / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    assert runner.key()["key"] != first["key"]
    assert all(f"steps.key.outputs.{name} }}}}" in (HERE / "action" / "action.yml").read_text() for name in first)


@pytest.mark.parametrize("package", ["none", ""])
def test_what_was_set_up_before_is_found_where_nothing_is_installed(sample, tmp_path, package):
    """The step *Compare* alone, with a `ratchet` that says where it looks for its environment."""
    runner = Runner(sample, tmp_path, tmp_path / "caches")
    program = tmp_path / "bin" / "ratchet"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "in $XDG_CACHE_HOME"\n')
    program.chmod(0o755)
    runner.files["GITHUB_PATH"].write_text(f"{program.parent}\n")
    assert step("Key")["if"] == step("Install")["if"] == "inputs.package != 'none'"
    theirs = "/a cache of the job's"
    expected = theirs if package == "none" else runner.key()["folder"]
    assert runner.run("Compare", XDG_CACHE_HOME=theirs).stdout == f"in {expected}\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_regression_is_caught_and_a_small_one_is_let_through(sample, tmp_path):
    """From nothing: its own revision is installed, its environment made, kept and used again. Fetches packages.

    The comment is the one in the documentation.
    """
    runner = Runner(sample, tmp_path, tmp_path / "caches")
    assert "installing the locked packages" in runner.install()
    done = runner.run("Compare")
    assert done.returncode == 0, done.stderr
    comment = (runner.temp / "ratchet-ci.md").read_text()
    assert runner.files["GITHUB_STEP_SUMMARY"].read_text() == comment
    rows = {line.split("`")[1]: line.split("|")[-2].strip() for line in comment.splitlines() if line.startswith("| `")}
    assert rows == {"kernels:attend": "**slower**", "kernels:norm": "same"}
    outputs = runner.outputs()
    assert (outputs["markdown"], outputs["junit"], outputs["code"]) == (
        str(runner.temp / "ratchet-ci.md"), str(runner.temp / "ratchet-ci.xml"), str(Status.REGRESSED.exit_code)
    )  # fmt: skip
    assert comment.strip() in DOCS.read_text()
    assert runner.run("Outcome", CODE=outputs["code"]).returncode == Status.REGRESSED.exit_code
    Path(outputs["folder"]).rename(runner.caches / outputs["key"])
    shutil.rmtree(runner.temp / "ratchet")
    assert "installing" not in runner.install(), "the environment came from the cache"
    assert runner.run("Compare").returncode == 0
