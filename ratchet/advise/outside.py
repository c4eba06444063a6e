"""What XLA does around a kernel, done in it: transposed operands as they are, casts and factors by block. Pure.

An operation beside a kernel reads and writes its array in HBM once more. A product contracts either side of an operand,
and an elementwise operation costs nothing where the kernel waits for copies (``allow_input_fusion`` does it by hint).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import made, movable, written
from ratchet.kernelfile.program import PRODUCTS, Kernel, Ref, calls, is_call, is_part, is_whole, keyword, parts
from ratchet.kernelfile.syntax import Change, File, lines_of, names_in

_ELEMENTWISE = ("exp", "exp2", "log", "abs", "tanh", "sqrt", "square", "negative", "float32", "bfloat16")
_OPERATORS = (ast.Mult, ast.Add, ast.Sub, ast.Div)
_NARROW = ("bfloat16", "float16")


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Operands and a result that an operation goes with."""
    call, operands = kernel.applied, kernel.operands or {}
    if call is None or call.keywords or keyword(kernel.call, "input_output_aliases") is not None:
        return  # aliased ones have one dtype and shape
    for ref in kernel.refs if operands else ():
        if ref.role == "in" and ref.block is not None and ref.index is not None and _is_alone(kernel, ref):
            yield from _as_it_is(kernel, ref, operands[ref.name])
            yield from _operand(kernel, ref, operands[ref.name])
    yield from _result(kernel, call)


def _is_alone(kernel: Kernel, ref: Ref) -> bool:
    """Whether no other reference shares its block in the source."""
    common = [other for other in kernel.refs if other.spec is ref.spec or other.index is ref.index]
    return common == [ref] and not ref.shared and keyword(ref.spec, "memory_space") is None


def _as_it_is(kernel: Kernel, ref: Ref, operand: ast.expr) -> Iterator[Rewrite]:
    """``x.T`` as ``x``, with the other side of its blocks contracted."""
    file, array = kernel.file, _transposed(kernel.file, operand)
    if array is None or ref.block is None or len(ref.block) != 2 or ref.index is None:
        return
    sides = parts(ref.index.body)
    products = _products(kernel, ref)
    if products is None or len(sides) != 2 or not any(_imports_jax(one) for one in file.tree.body):
        return
    names = ", ".join(one.arg for one in ref.index.args.args)
    changes = {
        file.replaced(operand, file.text(array)),
        *(file.replaced(one, file.text(other)) for one, other in zip(ref.block, reversed(ref.block), strict=True)),
        file.replaced(ref.index, f"lambda {names}: {written([file.text(one) for one in reversed(sides)])}"),
        *(change for call, at in products for change in _contracted(file, call, at)),
    }
    yield from made(file, Edit.TRANSPOSE, changes, lines=lines_of(*(call for call, _ in products)), subject=ref.name)


def _transposed(file: File, node: ast.expr) -> ast.expr | None:
    """The array of ``x.T``, and of the same by a function of ``jax.numpy``."""
    match node:
        case ast.Attribute(value=array, attr="T"):
            return array
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name), keywords=[]) if module == file.numpy:
            texts = [ast.unparse(one) for one in node.args[1:]]
            if (name == "transpose" and len(node.args) == 1) or (name == "swapaxes" and sorted(texts) == ["0", "1"]):
                return node.args[0]
    return None


def _imports_jax(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and any(one.name == "jax" and one.asname is None for one in node.names)


def _products(kernel: Kernel, ref: Ref) -> list[tuple[ast.Call, int]] | None:
    """Products of all of a reference and something else, with its place in each; None for any other use."""
    uses = sum(isinstance(one, ast.Name) and one.id == ref.name for one in ast.walk(kernel.body))
    kinds = sum(
        isinstance(one, ast.Attribute) and one.attr == "dtype" and names_in(one) == {ref.name}
        for one in ast.walk(kernel.body)
    )
    found = [
        (call, at)
        for call in calls(kernel.body, *PRODUCTS)
        for at, one in enumerate(call.args[:2])
        if is_whole(one, (ref.name,)) and _dimensions(call) is not None
    ]
    twice = len({id(call) for call, _ in found}) < len(found)
    return found if found and len(found) + kinds == uses and not twice else None


def _dimensions(call: ast.Call) -> tuple[int, int] | None:
    """The side of each operand that a product of matrices contracts."""
    if is_call(call, "dot", "matmul"):
        return (1, 0) if len(call.args) == 2 else None
    try:
        over, batch = ast.literal_eval(call.args[2])
        ((first,), (second,)) = over
    except (ValueError, TypeError, IndexError):
        return None
    return (first, second) if not any(batch) and {first, second} <= {0, 1} else None


def _contracted(file: File, call: ast.Call, at: int) -> Iterator[Change]:
    """The same product of an operand that is the other way round."""
    sides = list(_dimensions(call) or (1, 0))
    sides[at] = 1 - sides[at]
    dimensions = f"((({sides[0]},), ({sides[1]},)), ((), ()))"
    if is_call(call, "dot_general"):
        yield file.replaced(call.args[2], dimensions)
    else:
        end = file.span(call.args[1])[1]
        yield file.replaced(call.func, "jax.lax.dot_general")
        yield Change(start=end, end=end, text=f", {dimensions}")


def _operand(kernel: Kernel, ref: Ref, operand: ast.expr) -> Iterator[Rewrite]:
    """``x.astype(T) * c`` as ``x``, and the same of what is read of each block."""
    file, array = kernel.file, _leaf(kernel, operand)
    uses = [one for one in ast.walk(kernel.body) if isinstance(one, ast.Name) and one.id == ref.name]
    reads = [one for one in ast.walk(kernel.body) if isinstance(one, ast.Subscript) and one.value in uses]
    loads = all(isinstance(one.ctx, ast.Load) for one in reads)
    if array is None or array is operand or not reads or len(reads) != len(uses) or not loads:
        return
    made_of = {one: f"({file.text(operand, [file.replaced(array, file.text(one))])})" for one in reads}
    changes = {file.replaced(operand, array.id), *(file.replaced(one, text) for one, text in made_of.items())}
    yield from made(file, Edit.FUSE, changes, lines=lines_of(*reads), subject=ref.name)


def _leaf(kernel: Kernel, node: ast.expr) -> ast.Name | None:
    """The one array that elementwise operations of constants make an operand of."""
    match node:
        case ast.Name():
            return node
        case ast.Call(func=ast.Attribute(value=array, attr="astype"), args=[dtype], keywords=[]):
            return _leaf(kernel, array) if not names_in(dtype) & _own(kernel) else None
        case ast.Call(args=[array], keywords=[]) if is_call(node, *_ELEMENTWISE):
            return _leaf(kernel, array)
        case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _OPERATORS):
            for array, constant in ((left, right), (right, left)):
                if kernel.known(constant):
                    return _leaf(kernel, array)
    return None


def _own(kernel: Kernel) -> set[str]:
    """Names that mean something in the host alone."""
    return {one.arg for one in kernel.host.args.args} | names_in(kernel.host, ast.Store)


def _result(kernel: Kernel, call: ast.Call) -> Iterator[Rewrite]:
    """``pallas_call(…)(x).astype(bfloat16)`` of a float32 result as a bfloat16 result."""
    file, shape = kernel.file, keyword(kernel.call, "out_shape")
    outputs = [ref for ref in kernel.refs if ref.role == "out"]
    casts = [
        node for node in ast.walk(kernel.host)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and node.func.attr == "astype" and node.func.value is call and len(node.args) == 1
    ]  # fmt: skip
    match shape:
        case ast.Call(args=[_, dtype]) if len(outputs) == len(casts) == 1 and is_call(shape, "ShapeDtypeStruct"):
            (ref,), (cast,) = outputs, casts
        case _:
            return
    stores = _stores(kernel, ref)
    narrow = ast.unparse(dtype).endswith("float32") and ast.unparse(cast.args[0]).endswith(_NARROW)
    if stores is None or not narrow or not movable(file, *stores):
        return
    changes = {
        file.replaced(dtype, file.text(cast.args[0])),
        Change(start=file.span(call)[1], end=file.span(cast)[1], text=""),
        *(
            file.replaced(one.value, f"({file.text(one.value)}).astype({ref.name}.dtype)")
            for one in stores
            if not names_in(one.value) & {ref.name}
        ),
    }
    yield from made(file, Edit.FUSE, changes, lines=lines_of(*stores), subject=ref.name)


def _stores(kernel: Kernel, ref: Ref) -> list[ast.Assign] | None:
    """The statements that store into a reference that nothing reads, and whose dtype no more than a last cast asks."""
    uses = sum(isinstance(one, ast.Name) and one.id == ref.name for one in ast.walk(kernel.body))
    found = [
        node for node in ast.walk(kernel.body)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and is_part(node.targets[0], (ref.name,))
    ]  # fmt: skip
    last = [[ast.unparse(one) for one in node.value.args] for node in found if is_call(node.value, "astype")]
    casts = last.count([f"{ref.name}.dtype"])
    return found if found and len(found) + casts == uses else None
