"""Every benchmark is a command of the same form, and takes nothing from another command."""

import ast
import importlib
from pathlib import Path

import pytest

import benchmarks

FILES = sorted(path for path in Path(benchmarks.__file__).parent.glob("*.py") if path.stem != "__init__")
NAMES = [path.stem for path in FILES]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_writes_json(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [name, "--help"])
    module = importlib.import_module(f"benchmarks.{name}")
    with pytest.raises(SystemExit, match="0"):
        module.main()
    assert "--json FILE" in capsys.readouterr().out
    assert f"python -m benchmarks.{name}" in module.__doc__
    assert "[--json FILE]" in module.__doc__


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_commands_share_libraries_alone(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "benchmarks":
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks."):
            imported.add(node.module.split(".")[1])
    assert not imported & set(NAMES)
