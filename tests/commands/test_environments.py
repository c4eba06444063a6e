"""``ratchet setup --jax``: trusted once, and from then on by hash."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ratchet.commands import environments, options
from ratchet.commands.cli import main
from ratchet.process.boot import bootstrap, home
from ratchet.values.status import Refusal, Status

HASH = hashlib.sha256(b"a wheel").hexdigest()
LINES = f"jax==9.9 --hash=sha256:{HASH}\nlibtpu==0.9 --hash=sha256:{HASH}\n"


def unjudged(*_, **__):
    pytest.fail("nothing is judged")


@pytest.fixture
def private(tmp_path, monkeypatch):
    monkeypatch.setattr(home, "private_folder", lambda: tmp_path / "private")
    return tmp_path / "private" / "environments"


class Pip:
    """Stands for venv and pip: writes the report that pip writes, and keeps what it was asked for."""

    def __init__(self):
        self.calls = []
        self.fails = False
        self.hashes = {"sha256": HASH}

    def __call__(self, *command):
        command = [str(part) for part in command]
        self.calls.append(command)
        if "venv" in command:
            subprocess.run(["mkdir", "-p", f"{command[-1]}/bin"], check=True)
        elif self.fails:
            raise subprocess.CalledProcessError(1, command)
        elif "--report" in command:
            found = [("libtpu", "0.9"), ("jax", "9.9")]
            install = [
                {"metadata": {"name": n, "version": v}, "download_info": {"archive_info": {"hashes": self.hashes}}}
                for n, v in found
            ]
            with open(command[command.index("--report") + 1], "w", encoding="utf-8") as file:
                json.dump({"install": install}, file)


@pytest.fixture
def pip(monkeypatch):
    stub = Pip()
    monkeypatch.setattr(bootstrap, "call", stub)
    monkeypatch.setattr(environments, "_pip", stub)
    return stub


def setup(*words):
    return main(["setup", "--jax", "9.9", *words], unjudged)


def test_the_index_is_trusted_once_and_its_hashes_are_kept(private, pip, capsys):
    assert setup("--python", "python-of-mine") == 0
    venv, install = pip.calls
    assert venv[:3] == ["python-of-mine", "-m", "venv"]
    assert "jax[tpu]==9.9" in install
    assert "--require-hashes" not in install
    kept = private / "jax-9.9.requirements.txt"
    assert kept.read_text() == LINES
    assert environments.environment_of("9.9") == private / "jax-9.9"
    said = capsys.readouterr()
    assert "trusted, this once" in said.err
    assert str(kept) in said.err
    assert setup() == 0
    assert len(pip.calls) == 2, "it is there"


def test_a_second_set_up_is_by_hash(private, pip, capsys):
    setup()
    shutil.rmtree(private / "jax-9.9")
    capsys.readouterr()
    assert setup() == 0
    assert "--require-hashes" in pip.calls[-1]
    assert "trusted" not in capsys.readouterr().err
    assert (private / "jax-9.9" / environments.LOCK).read_text() == LINES


def test_a_lock_of_the_users_takes_the_place_of_trust(private, pip, tmp_path, capsys):
    lock = tmp_path / "a lock"
    lock.write_text(f"# by another tool\njax[tpu]==9.9 \\\n    --hash=sha256:{HASH}\n")
    assert setup("--lock", str(lock)) == 0
    assert "--require-hashes" in pip.calls[-1]
    assert "trusted" not in capsys.readouterr().err
    assert setup() == 0
    assert len(pip.calls) == 2, "the lock that was given is kept"
    lock.write_text(LINES)
    assert setup("--lock", str(lock)) == 0
    assert len(pip.calls) == 4, "another lock makes it anew"


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("jax==9.8 --hash=sha256:0\n", Status.USAGE, "has no line jax==9.9"),
        ("jax==9.9.1 --hash=sha256:0\n", Status.USAGE, "has no line jax==9.9"),
        (None, Status.NOT_FOUND, "cannot be read"),
    ],
)
def test_a_lock_that_is_none_is_refused(private, pip, tmp_path, capsys, text, status, said):
    lock = tmp_path / "lock"
    if text is not None:
        lock.write_text(text)
    assert setup("--lock", str(lock)) == status.exit_code
    assert said in capsys.readouterr().err
    assert not pip.calls


def test_what_cannot_be_made_leaves_what_was_there(private, pip, capsys, tmp_path):
    pip.hashes = {}
    assert setup() == Status.INFRASTRUCTURE.exit_code
    assert "no hash of" in capsys.readouterr().err, "a file without a hash is no lock"
    pip.hashes = {"sha256": HASH}
    pip.fails = True
    assert setup() == Status.INFRASTRUCTURE.exit_code
    assert "another Python, which --python names" in capsys.readouterr().err
    with pytest.raises(Refusal, match="makes it"):
        environments.environment_of("9.9")
    pip.fails = False
    setup()
    pip.fails = True
    lock = tmp_path / "lock"
    lock.write_text(LINES.replace(HASH, HASH[::-1]))
    capsys.readouterr()
    assert setup("--lock", str(lock)) == Status.INFRASTRUCTURE.exit_code
    assert f"{lock} has the hashes of" in capsys.readouterr().err
    assert (private / "jax-9.9" / environments.LOCK).read_text() == LINES


THERE = "(from versions: 0.0.1, 0.0.43.2, 0.0.45, 0.0.50rc1, 0.0.52)"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            f"satisfies the requirement libtpu==0.0.44 {THERE}",
            "the package index has no libtpu 0.0.44, its neighbours are 0.0.43.2 and 0.0.45",
        ),
        (
            f"satisfies the requirement libtpu==0.0.60 {THERE}",
            "the package index has no libtpu 0.0.60, its neighbours are 0.0.52",
        ),
        (
            "require a different python version: 0.12.0 Requires-Python >=3.12; 0.12.0.1 Requires-Python >=3.12\n"
            "satisfies the requirement jax[tpu]==0.12.0.1 (from versions: 0.9.0, 0.10.2)",
            "jax 0.12.0.1 needs Python >=3.12: name one with --python",
        ),
        ("satisfies the requirement jax==0.1 (from versions: none)", "the package index has no jax: is it reachable?"),
        ("No space left on device", ""),
    ],
)
def test_why_a_version_cannot_be_had_is_one_line(said, reason):
    """From what pip 23 and 26 say."""
    assert environments.unavailable(f"ERROR: Could not find a version that {said}") == reason


def test_another_libtpu_than_that_of_jax_is_an_environment_of_its_own(private, pip):
    assert main(["setup", "--jax", "9.9+libtpu0.9"], unjudged) == 0
    assert {"jax==9.9", "libtpu==0.9"} <= set(pip.calls[-1])
    assert environments.environment_of("9.9+libtpu0.9") == private / "jax-9.9+libtpu0.9"
    with pytest.raises(Refusal, match="makes it"):
        environments.environment_of("9.9")


@pytest.mark.parametrize("text", ["9.9+", "9.9+libtpu", "9.9+jax1", "../9", "9.9 ", "९.९", ""])
def test_what_is_no_version_is_refused(private, pip, capsys, text):
    assert main(["setup", "--jax", text, "--lock", "a lock"], unjudged) == Status.USAGE.exit_code
    assert ("is no version of JAX" if text else "that --jax names") in capsys.readouterr().err


def wheel(folder, name, version, content="pass"):
    """An empty package that pip installs."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: tpu\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)  # of no time, so that its hash is the same again
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(text)}")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")


@pytest.mark.slow
def test_pip_itself_refuses_a_file_that_was_changed(private, tmp_path, monkeypatch, capfd):
    """With the installed pip, and a folder of wheels in place of an index."""
    for name, version in (("jax", "9.9"), *((name, "1.0") for name in environments.OTHER)):
        wheel(tmp_path, name, version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    python = getattr(sys, "_base_executable", sys.executable)
    assert setup("--python", python) == 0
    assert len((private / "jax-9.9" / environments.LOCK).read_text().splitlines()) == 1 + len(environments.OTHER)
    shutil.rmtree(private / "jax-9.9")
    wheel(tmp_path, "jax", "9.9", content="changed = True")
    assert setup("--python", python) == Status.INFRASTRUCTURE.exit_code
    assert "has the hashes of" in capfd.readouterr().err
    wheel(tmp_path, "jax", "9.9")
    assert setup("--python", python) == 0


@pytest.mark.parametrize("words", [["--jax", "9.9"], ["--jax=9.9"]])
def test_a_command_goes_on_under_the_packages_of_another_jax(private, pip, monkeypatch, words):
    setup()
    became = []
    monkeypatch.setattr(os, "execve", lambda *given: became.append(given))
    environments.go_on_under("9.9", ["explain", "k.py", *words, "--json"])
    ((python, command, variables),) = became
    folder = private / "jax-9.9"
    assert command == [python, "-I", "-S", str(home.START), "under", str(folder), "explain", "k.py", "--json"]
    assert variables[home.ENVIRONMENT] == str(folder)
    monkeypatch.setattr(sys, "prefix", str(folder))
    environments.go_on_under("9.9", ["explain", "k.py", *words])
    assert len(became) == 1, "it is there already"


@pytest.mark.parametrize("name", ["explain k.py", "fit k.py A=1", "tune k.py A=1", "across k.py", "judge", "ci"])
def test_whatever_compiles_takes_another_jax(private, name, capsys):
    assert main([*name.split(), "--jax", "9.9"], unjudged) == Status.NOT_FOUND.exit_code
    assert "`./ratchet.sh setup --jax 9.9` makes it" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["explain k.py", "fit k.py A=1", "tune k.py A=1", "ci", "judge"])
def test_a_users_repository_has_the_jax_that_it_has_installed(private, pip, tmp_path, monkeypatch, capsys, name):
    asked = options.ratchet(name.split())
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".venv" / "lib" / "python3.13" / "site-packages" / "jax-9.9.dist-info").mkdir(parents=True)
    assert environments.of_repository(asked) == "", "a clone has its own"
    monkeypatch.setattr(home, "INSTALLED", True)
    monkeypatch.setenv(home.ENVIRONMENT, str(tmp_path / "own"))
    targets = name != "judge"
    assert environments.of_repository(asked) == ""
    assert ("this repository has jax 9.9, and here the judge's own" in capsys.readouterr().err) is targets
    setup()
    assert environments.of_repository(asked) == ("9.9" if targets else "")
    monkeypatch.setenv(home.ENVIRONMENT, str(private / "jax-9.9"))
    for one in ("jax-9.9", "libtpu-0.9"):
        (private / "jax-9.9" / "lib" / "python3.13" / "site-packages" / f"{one}.dist-info").mkdir(parents=True)
    assert environments.of_repository(asked) == "", "it is there already"


def test_what_set_up_downloads_with_a_uv_of_its_own_does_not_stay(private, tmp_path, monkeypatch, capsys):
    own = tmp_path / "an environment"
    monkeypatch.setattr(home, "environment", lambda: own)
    monkeypatch.setattr(bootstrap, "prewarm", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("UV_CACHE_DIR", "")  # so that what is set here is taken back
    monkeypatch.delenv("UV_CACHE_DIR")
    codes = [69, 0]

    def make(venv, _lock):
        fetched = Path(os.environ["UV_CACHE_DIR"])
        assert fetched.parent == venv.parent
        fetched.mkdir(exist_ok=True)
        return codes.pop(0)

    monkeypatch.setattr(bootstrap, "main", make)
    assert main(["setup"], unjudged) == 69
    assert list(tmp_path.glob("*.packages")), "to go on from"
    assert main(["setup"], unjudged) == 0
    assert not list(tmp_path.glob("*.packages"))
    assert capsys.readouterr().out == f"the judge's environment is {own}\n"
