"""Tab completion, in a real bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ratchet.commands.workspace import completion as script

BASH = shutil.which("bash")


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "ratchet.bash"
    path.write_text(script("bash"))
    return path


def completed(completion: Path, *words: str, folder: Path | None = None) -> list[str]:
    """What bash offers for the last of the words, asked as it asks on a tab."""
    if BASH is None:
        pytest.skip("no bash here")
    asked = """
source "$1"; shift
offer=$(complete -p "${1##*/}"); function=${offer##*-F }; function=${function%% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""
    command = [BASH, "--norc", "-c", asked, "bash", completion, *words]
    parsed = subprocess.run([BASH, "--norc", "-n", completion], capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize("program", ["./ratchet.sh", "ratchet", "/somewhere/ratchet.sh"])
def test_commands(completion: Path, program: str) -> None:
    assert completed(completion, program, "sta") == ["status"]
    assert {"log", "top", "show", "doctor", "completion", "search"} <= set(completed(completion, program, ""))


def test_options_and_their_choices(completion: Path) -> None:
    assert {"--json", "--watch", "--kernel"} <= set(completed(completion, "./ratchet.sh", "log", "--"))
    assert completed(completion, "./ratchet.sh", "search", "--how", "n") == ["neighbours"]
    assert {"v5e", "v6e"} <= set(completed(completion, "./ratchet.sh", "search", "--chip", ""))
    assert completed(completion, "./ratchet.sh", "completion", "z") == ["zsh"]


def test_files_with_spaces(completion: Path, tmp_path: Path) -> None:
    (tmp_path / "my kernel.py").touch()
    assert completed(completion, "./ratchet.sh", "log", "--kernel", "my", folder=tmp_path) == ["my kernel.py"]


def test_zsh_completes_both_names() -> None:
    text = script("zsh")
    assert text.startswith("#compdef ratchet ratchet.sh\n")
    assert "compdef _shtab_ratchet ratchet ratchet.sh\n" in text
    if zsh := shutil.which("zsh"):
        done = subprocess.run([zsh, "-n", "-c", text], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
