"""Every small fault that can be put into a Python source, as a replacement of a span of its text. Pure.

What is not mutated: annotations, strings and what is written into them, and decorators: a class that is not frozen
computes the same. A replacement that is no valid Python, or that changes nothing, is left out.
"""

from __future__ import annotations

import ast
import copy
import difflib
import random
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
"""A boundary shifted by one, and the opposite."""
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
WIDER = 3
"""By what a constant is multiplied."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault."""

    file: str
    what: str
    """Its kind: ``comparison``, ``constant``, ``call dropped``…"""
    line: int
    start: int
    """Where its span begins in the source, in characters."""
    end: int
    text: str
    """What is in the place of the span."""

    def applied(self, source: str) -> str:
        """The source with the fault."""
        return source[: self.start] + self.text + source[self.end :]

    def diff(self, source: str) -> str:
        """The lines that change, as a unified diff without context, numbered from the first."""
        first = source.rfind("\n", 0, self.start) + 1
        last = end if (end := source.find("\n", self.end)) >= 0 else len(source)
        before, after = source[first:last], source[first : self.start] + self.text + source[self.end : last]
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), self.file, self.file, n=0, lineterm="")
        return "\n".join(lines)


def mutants(source: str, file: str) -> tuple[Mutant, ...]:
    """All faults of one source, in the order of the text; ``file`` is its name."""
    return tuple(mutant for mutant in written(source, file) if is_python(mutant.applied(source)))


def written(source: str, file: str) -> tuple[Mutant, ...]:
    """The same, with those that are no Python: finding these out takes far longer."""
    finder = _Finder(source, file)
    finder.visit(ast.parse(source))
    unique = {(m.start, m.end, m.text): m for m in finder.made}
    return tuple(sorted(unique.values(), key=lambda m: (m.start, m.end, m.text)))


def is_python(source: str) -> bool:
    try:
        compile(source, "", "exec")
    except SyntaxError:
        return False
    return True


class _Finder(ast.NodeVisitor):
    """Walks what is executed and notes the faults."""

    def __init__(self, source: str, file: str) -> None:
        self._source, self._file = source, file
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = source.splitlines(keepends=True)
        self.made: list[Mutant] = []

    def _offset(self, line: int, column: int) -> int:
        """``column`` counts bytes of UTF-8."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _note(self, node: ast.expr | ast.stmt, what: str, *texts: str | ast.AST) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)
        for each in texts:
            text = each if isinstance(each, str) else f"({ast.unparse(each)})"
            if text != self._source[start:end]:
                self.made.append(Mutant(file=self._file, what=what, line=node.lineno, start=start, end=end, text=text))

    # --- expressions ---

    def visit_Compare(self, node: ast.Compare) -> None:
        for number, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                changed = copy.deepcopy(node)
                changed.ops[number] = other()
                self._note(node, "comparison", changed)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS and not isinstance(node.left, ast.JoinedStr):
            changed = copy.deepcopy(node)
            changed.op = OPERATORS[type(node.op)]()
            self._note(node, "operator", changed)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._note(node, "and/or", changed)
        for number in range(len(node.values)):
            rest = node.values[:number] + node.values[number + 1 :]
            self._note(node, "condition dropped", ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self._note(node, "negation dropped", node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._note(node, "truth value", repr(not value))
        elif isinstance(value, int):
            self._note(node, "constant", repr(value + 1), repr(value * WIDER), repr(value - 1))
        elif isinstance(value, float):
            self._note(node, "constant", repr(value * WIDER), repr(value / WIDER))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            self._note(node.func, "call swapped", CALLS[node.func.id])
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip: it only asserts
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """What is written into a text is for people."""

    # --- statements ---

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._note(node, "call dropped", "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._note(node, "raise dropped", "pass")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._note(node, "statement dropped", "pass")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        self._note(node.test, "branch never taken", "False")
        self._note(node.test, "branch always taken", "True")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._note(node, "loop ended", "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._note(node, "loop not ended", "continue")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
        body = node.body[1:] if _is_text(node.body[0]) else node.body
        generator = any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))
        if all(map(_is_declared, body)):
            return
        if nothing and not generator and not isinstance(body[0], ast.FunctionDef):
            self._note(body[0], "early return", "return")
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(default)
        for statement in body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef | ast.match_case) -> None:
        for statement in node.body:
            self.visit(statement)

    visit_match_case = visit_ClassDef


def _is_declared(statement: ast.stmt) -> bool:
    """``...``, a text, or the refusal of a method that others override."""
    return _is_text(statement) or ast.unparse(statement) == "raise NotImplementedError"


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def sampled(everything: list[Mutant], count: int, seed: int) -> tuple[Mutant, ...]:
    """``count`` of them at random, in random order: the first of them are a sample as well."""
    return tuple(random.Random(seed).sample(everything, min(count, len(everything))))
