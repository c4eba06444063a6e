"""What the patterns share: a file with an edit made, and statements that move as they are written. Pure."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from ratchet.advise.advice import Edit, Rewrite
from ratchet.kernelfile.program import Kernel, Ref, is_call, parts, program_id, same
from ratchet.kernelfile.syntax import CLAIMS, Change, File, assignments, changed, first_line, tree
from ratchet.values import Literal

INDENT = "    "


def made(
    file: File,
    edit: Edit,
    changes: Collection[Change],
    *,
    lines: tuple[int, ...] = (),
    subject: str = "",
    point: Mapping[str, Literal] | None = None,
    factor: float = 1.0,
) -> Iterator[Rewrite]:
    """The file with an edit made; nothing where two of its changes overlap, or the result is no Python."""
    try:
        after = changed(file.source, changes)
        tree(after)
    except (ValueError, SyntaxError):
        return
    yield Rewrite(edit=edit, after=after, lines=lines, subject=subject, point=point or {}, factor=factor)


def runs_when(node: ast.AST) -> ast.expr | None:
    """The condition of ``@pl.when(condition)`` over a function without parameters, or of ``pl.when(condition)(f)``."""
    match node:
        case ast.FunctionDef(decorator_list=[ast.Call(args=[condition]) as when]) if is_call(when, "when"):
            return condition if not node.args.args else None
        case ast.Expr(value=ast.Call(func=ast.Call(args=[condition]) as when, args=[_])) if is_call(when, "when"):
            return condition
    return None


def unguarded(file: File, node: ast.stmt) -> set[Change]:
    """What makes a guarded statement run always, where it is."""
    end = file.span(node)[1]
    if isinstance(node, ast.FunctionDef):
        call = f"\n\n{' ' * node.col_offset}{node.name}()"
        decorators = Change(start=file.line_start(first_line(node)), end=file.line_start(node.lineno), text="")
        return {decorators, Change(start=end, end=end, text=call)}
    assert isinstance(node, ast.Expr)
    assert isinstance(node.value, ast.Call)
    return {file.replaced(node.value.func, ""), Change(start=end, end=end, text="()")}


def deleted(file: File, node: ast.stmt) -> Change:
    """A statement gone with its lines."""
    end = file.line_start((node.end_lineno or node.lineno) + 1)
    return Change(start=file.line_start(node.lineno), end=end, text="")


def indented(file: File, statements: Sequence[ast.stmt], head: str) -> set[Change]:
    """Statements that follow each other one margin further in, behind ``head``."""
    start, end = first_line(statements[0]), statements[-1].end_lineno or statements[-1].lineno
    changes = {Change(start=file.line_start(start), end=file.line_start(start), text=head + INDENT)}
    for line in range(start + 1, end + 1):
        at = file.line_start(line)
        if file.source[at : at + 1] not in (b"\n", b"\r", b""):
            changes.add(Change(start=at, end=at, text=INDENT))
    return changes


def movable(file: File, *nodes: ast.stmt) -> bool:
    """Whether lines of statements are their own, and none of them is inside of a text."""
    for node in nodes:
        start, end = file.line_start(first_line(node)), file.line_start((node.end_lineno or node.lineno) + 1)
        texts = (one for one in ast.walk(node) if isinstance(one, ast.Constant | ast.JoinedStr))
        docstring = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        split = any(one.lineno != one.end_lineno for one in texts if one is not docstring)
        behind = file.source[file.span(node)[1] : end].strip()
        if split or file.source[start : start + node.col_offset].strip() or not (behind or b"#").startswith(b"#"):
            return False
    return True


def free_name(file: File, wanted: str) -> str:
    """A name that the file does not use."""
    used: set[str] = set()
    for node in ast.walk(file.tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                used.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                used.add(name)
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name


def places(node: ast.stmt) -> list[tuple[str, int]]:
    """Names that a statement gives to places in the grid, where it does nothing else."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
        return []
    pairs = [(name, program_id(value)) for name, value in assignments([node])]
    found = [(name, at) for name, at in pairs if at is not None]
    return found if len(found) == len(parts(node.targets[0])) else []


def written(texts: Sequence[str]) -> str:
    """A tuple of expressions."""
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def without_dimension(kernel: Kernel, at: int) -> set[Change] | None:
    """A grid without one of its dimensions, where the call and its author have it; None where it is not written out."""
    file, semantics = kernel.file, kernel.semantics
    if not kernel.grid_is_written or semantics is None:
        return None
    rest = [file.text(one) for number, one in enumerate(kernel.grid) if number != at]
    changes = {file.replaced(kernel.grid_node, written(rest))}
    for said in claims(kernel):
        kept = [file.text(one) for number, one in enumerate(said.elts) if number != at]
        changes.add(file.replaced(said, f"[{', '.join(kept)}]"))
    if semantics.elts:
        kept = [file.text(one) for number, one in enumerate(semantics.elts) if number != at]
        changes.add(file.replaced(semantics, written(kept)))
    return changes


def claims(kernel: Kernel) -> Iterator[ast.Tuple | ast.List]:
    """Where the author says the call's grid once more."""
    function = kernel.file.functions.get(CLAIMS)
    for node in ast.walk(function) if function else ():
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            named = isinstance(key, ast.Constant) and key.value == "grid" and len(parts(value)) == len(kernel.grid)
            if named and isinstance(value, ast.Tuple | ast.List) and all(map(same, value.elts, kernel.grid)):
                yield value


def index_without(kernel: Kernel, ref: Ref, at: int) -> Iterator[Change]:
    """An index map of a grid that has no dimension ``at``, where the block has all that it walked there."""
    if ref.index is not None:
        names = [one.arg for number, one in enumerate(ref.index.args.args) if number != at]
        side = ref.side(at)
        sides = ["0" if number == side else kernel.file.text(one) for number, one in enumerate(parts(ref.index.body))]
        yield kernel.file.replaced(ref.index, f"lambda {', '.join(names)}: {written(sides)}")


def added(file: File, call: ast.Call, text: str) -> Change:
    """One more keyword of a call."""
    at = file.span(call)[1] - 1
    comma = "" if file.source[:at].rstrip().endswith((b",", b"(")) else ", "
    return Change(start=at, end=at, text=comma + text)
