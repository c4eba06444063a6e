"""Every benchmark is a command of the same form, and takes nothing from another command."""

import importlib
from pathlib import Path

import pytest

import benchmarks
from tests.imports import Module

TOP = Path(benchmarks.__file__).parent
MODULES = {path.stem: path.stem for path in TOP.glob("*.py") if path.stem != "__init__"}
MODULES |= {path.parent.name: f"{path.parent.name}.__main__" for path in TOP.glob("*/__main__.py")}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_command_writes_json(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [name, "--help"])
    module = importlib.import_module(f"benchmarks.{MODULES[name]}")
    with pytest.raises(SystemExit, match="0"):
        module.main()
    assert "--json FILE" in capsys.readouterr().out
    assert f"python -m benchmarks.{name}" in module.__doc__
    assert "[--json FILE]" in module.__doc__


def test_commands_share_libraries_alone():
    """A module of a command's folder is that command's; what is in ``lib`` takes nothing from any."""
    taken = []
    for path in TOP.rglob("*.py"):
        own = path.relative_to(TOP).parts[0].removesuffix(".py")
        rooms = {name.split(".")[1] for name in Module(path).imports if name.startswith("benchmarks.")}
        taken += [(str(path), room) for room in rooms - {own, "lib"}]
    assert taken == []
