"""What is judged in a repository of the user's: ``[tool.ratchet]`` of its ``pyproject.toml``, or options that say it.

[tool.ratchet]
kernel = "pkg.kernels:fn"
reference = "pkg.reference:fn"
source = "src"               # the folder of the package; default: src, else the folder of pyproject.toml
editable = "src/pkg/kernels.py"  # what an experiment may change; default: the kernel's own file
include = ["src/pkg/*.json"] # files that a module reads, or imports by a computed name
python = "/opt/jax/bin/python"  # the Python that traces the kernel, with another JAX; default: the judge's
max_slowdown = 0.02          # no problem may get slower by more than this share

[tool.ratchet.problems.prefill]
inputs = ["bf16[2048,1024]", "bf16[1024]"]   # or "pkg.inputs:make", a function of a PRNG key
options = { causal = true }  # keyword arguments of kernel and reference
chip = "v6e"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.exam.candidate import configuration, target
from ratchet.exam.candidate.target import Case, Target
from ratchet.process import paths
from ratchet.process.boot import children
from ratchet.values.status import Refusal, Status

FILE = configuration.FILE
SLOWDOWN = 0.02
_KEYS = ("kernel", "reference", "source", "editable", "include", "python", "max_slowdown", "problems", "ci")


@dataclass(frozen=True, kw_only=True)
class Project:
    """One kernel with its reference and its problems."""

    root: Path
    """Top of the repository."""
    source: Path
    """The folder that the user's modules are below."""
    kernel: Target
    reference: Target
    cases: tuple[Case, ...]
    editable: str
    """The one file that an experiment may change, relative to ``root``."""
    include: tuple[str, ...] = ()
    """Patterns of further files, relative to ``root``."""
    python: str = ""
    max_slowdown: float = SLOWDOWN

    def plain(self) -> dict[str, Any]:
        """All that a verdict depends on, except for files."""
        cases = [{**dataclasses.asdict(case), "options": dict(case.options)} for case in self.cases]
        for case in cases:
            del case["mesh"], case["splits"]  # a project has none
        return {"kernel": str(self.kernel), "reference": str(self.reference), "cases": cases, "python": self.python}


def read(root: Path) -> Project | None:
    """The project of a repository; None where its ``pyproject.toml`` names no kernel.

    Raises:
      Refusal: ``USAGE`` or ``NOT_FOUND`` with what is wrong in the table.
    """
    table, where, needed = configuration.table(root), f"{FILE}: [tool.ratchet]", ("kernel", "reference", "problems")
    if unknown := sorted(set(table) - set(_KEYS)):
        raise Refusal(Status.USAGE, f"{where} has {', '.join(unknown)}; it knows {', '.join(_KEYS)}")
    missing = [key for key in needed if key not in table]
    if len(missing) == len(needed):
        return None
    if missing:
        raise Refusal(Status.USAGE, f"{where} lacks {', '.join(missing)}")

    def given(key: str, default: Any, wanted: str, fits: Callable[[Any], bool]) -> Any:
        value = table.get(key, default)
        if not fits(value):
            raise Refusal(Status.USAGE, f"{where}: {key} is {value!r:.40}, wanted {wanted}")
        return value

    keys = ("kernel", "reference", "source", "editable", "python")
    texts = {key: given(key, "", "text", lambda value: isinstance(value, str)) for key in keys}
    if texts["python"]:
        texts["python"] = children.outside(texts["python"], root)
    tables = "tables [tool.ratchet.problems.NAME]"
    problems = given("problems", {}, tables, lambda value: isinstance(value, Mapping))
    return of_parts(
        **texts,
        cases=target.cases_of(problems, f"{where} problems"),
        root=root,
        include=tuple(given("include", [], "a list of patterns", _are_texts)),
        max_slowdown=float(given("max_slowdown", SLOWDOWN, configuration.SHARE, configuration.is_share)),
    )


def of_parts(  # noqa: PLR0913 - one name for each key of the table
    *,
    kernel: str,
    reference: str,
    cases: tuple[Case, ...],
    root: Path,
    source: str = "",
    editable: str = "",
    include: tuple[str, ...] = (),
    python: str = "",
    max_slowdown: float = SLOWDOWN,
) -> Project:
    """The project of a kernel and a reference by name. Raises as ``read``."""
    if spread := [case.name for case in cases if case.mesh]:
        what = f"case {spread[0]!r:.60} has a mesh, and a project's kernel is judged on one chip"
        raise Refusal(Status.USAGE, f"{what}: wanted a kernel file that declares one in get_tiling_meta()")
    folders = (root / source,) if source else (root / "src", root)
    named = target.parse(kernel, folders=folders)
    if named.source is None or not named.source.is_relative_to(root.resolve()):
        looked = " and ".join(str(folder) for folder in folders)
        raise Refusal(Status.NOT_FOUND, f"{kernel} is in no file below {looked}: name its folder as `source`")
    top = root.resolve()
    stem = named.source / named.module.replace(".", "/")
    own = stem.with_suffix(".py") if paths.is_file(stem.with_suffix(".py")) else stem / "__init__.py"
    changed = (top / editable).resolve() if editable else own
    if not changed.is_relative_to(top) or not paths.is_file(changed):
        raise Refusal(Status.NOT_FOUND, f"there is no file {editable}: `editable` is one file of the repository")
    return Project(
        root=top,
        source=named.source,
        kernel=named,
        reference=target.parse(reference, folders=(named.source, *folders)),
        cases=cases,
        editable=changed.relative_to(top).as_posix(),
        include=include,
        python=python,
        max_slowdown=max_slowdown,
    )


def described(project: Project, case: Case) -> dict[str, Any]:
    """One problem as plain JSON, as the process that holds the reference reads it."""
    generator = target.parse_generator(case.generator, project.kernel) if case.generator else None
    inputs = case.generator or " ".join(map(str, case.inputs))
    options = "".join(f", {name}={value!r}" for name, value in sorted(case.options.items()))
    return {
        "name": f"{project.kernel.attribute}_{case.name}",
        "description": f"{project.kernel} against {project.reference} for {inputs}{options}",
        "reference": [project.reference.module, project.reference.attribute],
        "generator": [generator.module, generator.attribute] if generator else None,
        "inputs": [{"shape": list(spec.shape), "dtype": spec.dtype} for spec in case.inputs],
        "options": dict(case.options),
    }


def _are_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(one, str) for one in value)
