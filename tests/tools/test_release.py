"""One version everywhere; a lock that holds what the project asks for; packages that build and install."""

import re
import shutil
import subprocess
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement

import ratchet
from tools import lock, package
from tools.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_there_is_one_version():
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", ratchet.__version__)
    assert f"\nversion: {ratchet.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_a_wheel_has_every_file_of_the_package():
    command = ["git", "ls-files", "ratchet", "pallas_flash"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    others = [name for name in tracked.split() if not name.endswith(".py")]
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    packages = [path.parent for path in ROOT.glob("*/**/__init__.py")]
    kept = {path for package in packages for pattern in patterns for path in package.glob(pattern)}
    assert [name for name in others if ROOT / name not in kept] == []
    assert others


def test_the_changelog_has_the_version_newest_first_with_dates():
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \((?:unreleased|\d{4}-\d\d-\d\d)\)", head) for head in heads), heads
    versions = [tuple(map(int, head.split()[0].split("."))) for head in heads]
    assert versions == sorted(set(versions), reverse=True)
    assert not any(head.endswith("(unreleased)") for head in heads[1:])
    assert heads[0].split()[0] == ratchet.__version__


def locked():
    """Name and version of what the lock pins; a name may have several, by marker."""
    lines = (ROOT / lock.LOCK).read_text().splitlines()
    pins = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^ ;\\]+)")
    return [(match[1], match[2]) for match in map(pins.match, lines) if match]


def test_the_lock_holds_what_the_project_asks_for():
    missing = []
    for name in lock.extras():
        for text in PROJECT["optional-dependencies"][name]:
            wanted = Requirement(text)
            versions = [version for one, version in locked() if one.lower().replace("_", "-") == wanted.name.lower()]
            if not any(wanted.specifier.contains(version, prereleases=True) for version in versions):
                missing.append(text)
    assert missing == []
    assert metadata.version("mkdocs-material") == dict(locked())["mkdocs-material"], "the site comes from it, too"
    assert set(lock.UNLOCKED) | set(lock.extras()) == set(PROJECT["optional-dependencies"])


def test_the_lock_pins_by_hash_says_no_host_and_is_made_for_all_extras_and_the_oldest_python():
    text = (ROOT / lock.LOCK).read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [entry.split()[0] for entry in entries if not entry.startswith("#") and "--hash=sha256:" not in entry] == []
    words = lock.command("uv", ["--upgrade"])
    assert [words[i + 1] for i, word in enumerate(words) if word == "--extra"] == lock.extras()
    assert words[words.index("--python-version") + 1] == "3.11"
    assert "--upgrade" in words
    assert words[-2:] == ["-o", "requirements.lock"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel of the tree, the sdist, and the wheel of the sdist."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_HTTP_TIMEOUT", "10")
        patch.setenv("UV_HTTP_RETRIES", "0")
        for options in (["--offline"], []):
            try:
                return package.build(tmp_path_factory.mktemp("packages"), *options)
            except subprocess.CalledProcessError as error:
                if "build-system.requires" not in error.stderr:
                    raise AssertionError(error.stderr) from None
    pytest.skip("setuptools, which builds the packages, is neither in uv's cache nor to be fetched")


@pytest.mark.slow
def test_the_wheel_of_the_sdist_is_that_of_the_tree(built):
    wheel, _, again = built
    assert f"-{ratchet.__version__}-" in wheel.name
    assert package.differences(wheel, again) == []
    assert "pallas_ratchet/requirements.lock" in package.contents(wheel)


def test_the_wheel_installs_alone_and_lays_out_a_workspace(built, tmp_path):
    command = package.install(built[0], tmp_path / "environment")
    done = subprocess.run([command, "init", tmp_path / "space"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "space" / "kernel.py").is_file()
    shutil.rmtree(tmp_path / "environment")
