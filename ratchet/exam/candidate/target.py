"""A TARGET: any function of the user's, with the inputs that it is exported for.

``pkg.kernels:fn``, or ``path/file.py:fn`` for a file of no package. A file without ``:fn`` is a kernel file: its
``kernel_fn`` and its ``generate_inputs``. Inputs are ``bf16[1024,256]`` each, or a function ``pkg.mod:fn`` of a PRNG
key that returns them (pytrees too), or a table of named cases in a TOML file:

    [prefill]
    inputs = ["bf16[16,2048,128]", "bf16[16,2048,128]"]
    options = { causal = true }     # keyword arguments of the function
    chip = "v6e"

    [layer]
    inputs = ["bf16[2048@chip,1024]", "bf16[1024,16384@chip]"]  # rows of the one, columns of the other
    mesh = { chip = 8 }

A target is imported in a jail, where of the user's own files only those are that it imports by name.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ratchet.exam.candidate import configuration, tracer
from ratchet.exam.candidate.arrays import Split, axes, check_mesh, split_array
from ratchet.exam.candidate.contract import OPTIONAL
from ratchet.exam.candidate.source_closure import SourceClosure, check_tops, closure_of, work_tree
from ratchet.exam.problem import mesh as meshes
from ratchet.exam.problem import problem
from ratchet.process import paths
from ratchet.process.boot.installed import sources_of
from ratchet.process.sandbox import interpreter as interpreters
from ratchet.process.sandbox.child import Child, Limits, packages
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.values import ArraySpec, Artefact, Mesh
from ratchet.values.status import Refusal, Status

WORKER = "ratchet.exam.candidate.target_worker"
ARCHIVE, SPARE = "tree.zip", "spare.zip"
SERIALISER = "flatbuffers"
"""What JAX writes programs with, plain Python. It comes without it, so that the judge's own goes along as a spare."""
KERNEL, GENERATOR = "kernel_fn", "generate_inputs"
"""What a kernel file calls its function and its generator."""
_STABLEHLO = {"0.10.2": "1.17.0", "0.12.0.1": "1.22.0"}
"""The newest StableHLO that a JAX reads; of others, the oldest is read."""
_KEYS = ("inputs", "options", "chip", "mesh")
"""What the table of a case may hold."""
_LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True)
class Target:
    """A function by the name of its module."""

    module: str
    attribute: str
    """Dots allowed: ``Class.method``."""
    source: Path | None
    """The folder that the module's own files are below; None where the module is an installed package's."""

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a target is exported for: its positional arguments, keyword arguments and a chip."""

    name: str = ""
    inputs: tuple[ArraySpec, ...] = ()
    generator: str = ""
    """Instead of ``inputs``: a function of a PRNG key, ``pkg.mod:fn``, or ``fn`` of the target's own module."""
    options: Mapping[str, Any] = field(default_factory=dict)
    chip: str = V5E.name
    mesh: Mapping[str, int] = field(default_factory=dict)
    """Sizes by axis, of a program on a slice; a kernel file has its own."""
    splits: tuple[Split, ...] = ()
    """For each of ``inputs``, how it lies on the mesh. Those of a generator are whole on each chip."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """What a captured call says of itself beside these."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A program that left the jail, and what it was made of."""

    program: bytes
    """``jax.export`` artefact for platform ``tpu``; its leaves in order."""
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    files: Mapping[str, str]
    """SHA-256 by path in the source folder, of all files that were in the jail: the target can have read no others."""
    imported: tuple[str, ...]
    """Those of them that were imported, as the jail reports it."""
    jax_version: str
    """Of the JAX that exported it, as the jail reports it."""
    jail: str
    """``""`` if all walls held, else what is missing, in words."""
    seconds: float
    mesh: Mesh = Mesh()  # noqa: RUF009 - a frozen value

    def artefact(self, name: str) -> Artefact:
        """What the compiler room takes."""
        return Artefact(
            kernel_name=name,
            problem_description="",
            flops=0,
            tiling_meta={},
            inputs=self.inputs,
            outputs=self.outputs,
            mesh=self.mesh,
            program=self.program,
            reference_sha256="",
            inputs_sha256="",
            jail=self.jail,
            seconds=self.seconds,
        )


def newest_stablehlo() -> str:
    """The newest StableHLO that the judge's JAX reads. A newer JAX is asked to write this one."""
    return _STABLEHLO.get(metadata.version("jax"), min(_STABLEHLO.values()))


def parse(text: str, *, folders: Sequence[Path] = ()) -> Target:
    """Read a TARGET. Modules are looked for in ``folders``, by default ``src`` and the current folder.

    Raises:
      Refusal: ``USAGE`` for what is no target, ``NOT_FOUND`` where there is no such file or module.
    """
    where, _, attribute = text.rpartition(":") if ":" in text else (text, "", KERNEL)
    is_file = where.endswith(".py")
    if is_file:
        root, name = paths.of(where)
        file = root.path.resolve() / name
        if not root.is_file(name):
            raise Refusal(Status.NOT_FOUND, f"there is no file {where}: name one as path/file.py:function")
        module, folder = _module_of(file)
        source: Path | None = folder
    else:
        module, source = where, _source_of(where, folders or (Path.cwd() / "src", Path.cwd()))
    wanted = "wanted package.module:function, path/file.py:function, or a kernel file"
    if where and source is None and paths.is_folder(where):
        raise Refusal(Status.USAGE, f"{where!r:.80} is a folder: {wanted} in it, such as {Path(where, 'kernel.py')}")
    names = (() if is_file else module.split("."), attribute.split("."))  # a file may be called 1st.py
    if not all(name.isidentifier() for each in names for name in each):
        raise Refusal(Status.USAGE, f"{text!r:.80} is no target: {wanted}")
    return Target(module=module, attribute=attribute, source=source)


def cases(path: Path) -> tuple[Case, ...]:
    """The named cases of a TOML file: one table each, in their order.

    Raises:
      Refusal: ``NOT_FOUND``, or ``USAGE`` with what is wrong in which table.
    """
    try:
        document = tomllib.loads(paths.read(path).decode())
    except OSError as error:
        raise Refusal(Status.NOT_FOUND, f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refusal(Status.USAGE, f"{path} is no TOML: {error}") from None
    return cases_of(document, str(path))


def cases_of(document: Mapping[str, Any], where: str) -> tuple[Case, ...]:
    """The same of tables that were read; ``where`` is said in messages. Raises as ``cases``."""
    if not document:
        raise Refusal(Status.USAGE, f'{where} has no case: wanted a table such as [small] with inputs = ["f32[8,128]"]')
    if odd := [name for name, table in document.items() if not isinstance(table, Mapping)]:
        message = f"{where}: {odd[0]!a:.60} is outside of a table: wanted each case as [name]"
        raise Refusal(Status.USAGE, message)
    return tuple(_case(name, table, f"{where}: [{name}]") for name, table in document.items())


def inline(
    inputs: Sequence[str], *, chip: str = V5E.name, options: Mapping[str, Any] | None = None, mesh: str = ""
) -> Case:
    """The case of ``--input bf16[8,128] --input …``, or of one ``--input pkg.mod:fn``; ``mesh`` as ``chip=8``.

    Raises:
      Refusal: as ``arrays.split_array``, ``axes`` and ``check_mesh``.
    """
    generator = inputs[0] if len(inputs) == 1 and "[" not in inputs[0] else ""
    case = Case(generator=generator, chip=_chip(chip, "--chip"), options=options or {})
    return _with_arrays(case, () if generator else inputs, axes(mesh) if mesh else {})


def _with_arrays(case: Case, inputs: Sequence[str], mesh: Mapping[str, int]) -> Case:
    read = [split_array(text) for text in inputs]
    specs, splits = tuple(spec for spec, _ in read), tuple(split for _, split in read)
    check_mesh(mesh, specs, splits)
    return replace(case, inputs=specs, mesh=mesh, splits=splits if mesh else ())


def closure(*targets: Target, others: Mapping[str, bytes] | None = None) -> SourceClosure:
    """The user's own files that ``targets`` of one source folder import, from the work tree.

    Raises:
      Refusal: as ``ratchet.exam.candidate.source_closure.closure_of`` and ``check_tops``.
    """
    source = targets[0].source
    if source is None:
        return SourceClosure(files=dict(others or {}))
    more = {**configuration.included(source), **(others or {})}
    gathered = closure_of(work_tree(source), [target.module for target in targets], more)
    check_tops(gathered, packages())
    return gathered


def export(
    target: Target,
    case: Case,
    *,
    files: SourceClosure | None = None,
    python: str | Path | None = None,
    limits: Limits = tracer.LIMITS,
) -> Exported:
    """Import ``target`` in a jail, trace it for ``case`` and export it for the case's chip.

    Args:
      files: What it may import of the user's; by default what it names in the work tree now.
      python: Another interpreter, with another JAX; its packages are the ones that are imported then.

    Raises:
      Refusal: ``IMPORT_FAILED``, ``CONTRACT``, ``LOWERING_FAILED`` and so on, with file and line of the user's code;
        ``TIMEOUT`` or ``OUT_OF_MEMORY`` beyond ``limits``.
    """
    generator = parse_generator(case.generator, target) if case.generator else None
    if files is None:
        others = () if generator is None or generator.source != target.source else (generator,)
        files = closure(target, *others)
    interpreter = interpreters.find(python) if python else None
    if target.source is None and interpreter is None:
        _check_installed(target)
    request = {
        "target": [target.module, target.attribute],
        "generator": [generator.module, generator.attribute] if generator else None,
        "inputs": [{"shape": list(spec.shape), "dtype": spec.dtype} for spec in case.inputs],
        "options": dict(case.options),
        "chip": case.chip,
        "mesh": dict(case.mesh),
        "input_shardings": case.splits,
        "meta": OPTIONAL if target.attribute == KERNEL else "",
        "stablehlo": newest_stablehlo(),
        "archive": ARCHIVE,
        "spare": SPARE,
        "memory_bytes": limits.memory_bytes,
    }
    with (
        tempfile.TemporaryDirectory(prefix="ratchet-") as folder,
        Child(WORKER, directory=Path(folder, "target"), walls=tracer.WALLS, interpreter=interpreter) as child,
    ):
        jail, name = tracer.lost(child.missing), str(target)
        child.folder.write(ARCHIVE, files.zipped())
        child.folder.write(SPARE, _serialiser().zipped())
        child.folder.write(tracer.REQUEST, json.dumps(request).encode())
        ending = child.ask(child.directory, limits)
        child.end()  # from here on nothing can change what it left
        if ending.how != "answered":
            raise tracer.ended(ending, name, limits)
        record = tracer.read_record(child.folder, name)
        with tracer.complete(name, "record"):
            inputs = problem.specs(record["inputs"])
            return Exported(
                program=child.folder.read("kernel.bin", tracer.MAX_PROGRAM_BYTES),
                inputs=inputs,
                mesh=meshes.read(record, inputs),
                outputs=problem.specs(record["outputs"]),
                files=files.sha256,
                imported=tuple(path for path in files.files if path in record["imported"]),
                jax_version=f"{record['jax_version']:.40}",
                jail=jail,
                seconds=ending.seconds,
            )


def parse_generator(text: str, target: Target) -> Target:
    """The generator that a case names: of the target's own module where it names none. Raises as ``parse``."""
    if ":" not in text and not text.endswith(".py"):
        text = f"{target.module}:{text}"
    return parse(text, folders=(target.source,) if target.source else ())


def _serialiser() -> SourceClosure:
    return SourceClosure(files=sources_of(SERIALISER, packages()))


def _case(name: str, table: Mapping[str, Any], where: str) -> Case:
    if not name or "/" in name or not name.isprintable() or name in (".", "..") or len(name.encode()) > _LONGEST_NAME:
        message = f"{where[:120]!a} is no name of a case: wanted one that a folder can have"
        raise Refusal(Status.USAGE, message)
    if unknown := sorted(set(table) - set(_KEYS)):
        raise Refusal(Status.USAGE, f"{where} has {unknown[0]!r:.40}; a case knows {', '.join(_KEYS)}")
    inputs = table.get("inputs")
    generator = inputs if isinstance(inputs, str) else ""
    if not generator and not (isinstance(inputs, list) and all(isinstance(one, str) for one in inputs)):
        message = (
            f'{where}: inputs is {inputs!r:.60}, wanted a list such as ["bf16[1024,256]"] or "package.module:function"'
        )
        raise Refusal(Status.USAGE, message)
    options = table.get("options", {})
    if not isinstance(options, Mapping):
        raise Refusal(Status.USAGE, f"{where}: options is {options!r:.60}, wanted keyword arguments as a table")
    if odd := [key for key, value in options.items() if not _is_plain(value)]:
        message = f"{where}: options: {odd[0]} is {options[odd[0]]!r:.60}, wanted numbers, texts, truth values or lists"
        raise Refusal(Status.USAGE, message)
    mesh = table.get("mesh", {})
    if not isinstance(mesh, Mapping) or not all(type(size) is int and size > 0 for size in mesh.values()):
        raise Refusal(Status.USAGE, f"{where}: mesh is {mesh!r:.60}, wanted sizes by axis, such as {{ chip = 8 }}")
    chip = _chip(table.get("chip", V5E.name), where)
    case = Case(name=name, generator=generator, options=dict(options), chip=chip)
    return _with_arrays(case, () if generator else inputs or [], dict(mesh))


def _is_plain(value: object) -> bool:
    """Whether JSON can carry it into the jail: of what TOML knows, dates and times cannot be."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, bool | int | float | str)


def _chip(name: Any, where: str) -> str:
    if not isinstance(name, str) or name not in CHIPS:
        raise Refusal(Status.USAGE, f"{where}: {name!r:.40} is no chip that is known, wanted one of {', '.join(CHIPS)}")
    return str(name)


def _module_of(file: Path) -> tuple[str, Path]:
    """The module that a file is, and the folder above its outermost package. Raises Refusal ``USAGE``."""
    if "." in file.stem:
        raise Refusal(Status.USAGE, f"{file.name!r:.80} cannot be imported, for the dot in its name: rename it")
    folder, parts = file.parent, [] if file.stem == "__init__" else [file.stem]
    while paths.is_file(folder / "__init__.py"):
        folder, parts = folder.parent, [folder.name, *parts]
    return ".".join(parts), folder


def _check_installed(target: Target) -> None:
    """Raises Refusal ``NOT_FOUND`` for a module that none of the judge's packages holds: without a jail, at once."""
    top = target.module.partition(".")[0]
    if top not in sys.stdlib_module_names and PathFinder.find_spec(top, list(packages())) is None:
        what = f"there is no module {target.module} here or in src, and the judge's Python has none"
        raise Refusal(Status.NOT_FOUND, f"{what}: name a file as path/file.py:{target.attribute}")


def _source_of(module: str, folders: Sequence[Path]) -> Path | None:
    """The first folder that holds a module's file; None where none does."""
    stem = module.replace(".", "/")
    for folder in folders:
        if any(paths.is_file(folder / path) for path in (f"{stem}.py", f"{stem}/__init__.py")):
            return folder.resolve()
    return None
