"""A minimal kernel for each operation of the dialects that Mosaic reads, as text: what ``benchmarks.dialect`` compiles.

Of an element-wise operation the operands are tried in several types. Of any other one there are lines in the file, of
which one has to compile; `` ;; `` stands for an end of line, and an empty one says that there is no kernel. In a line
``F`` ``I`` ``M`` ``B`` are vectors of f32, i32, i1 and bf16, ``RF`` … the same in memory, ``AT`` the indices of a first
element, ``X`` their types, ``L`` the lanes of a SparseCore. A kernel has ``%v %w`` (F), ``%n %m`` (I), ``%p`` (M),
``%b`` (B), memory ``%rv`` ``%rn`` ``%rb``, ``%hv`` in HBM and ``%rs`` of scalars, and the scalars ``%i`` (i32) ``%k``
(index) ``%t`` (i1) ``%f`` (f32). What is called ``%r`` is stored, so that nobody drops it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent.parent / "data" / "dialect_kernels.txt"
TENSOR_CORE, SPARSE_CORE = "tc", "sc_vector_subcore"
SUBCORES = 16
_SLICE = r"vector\.extract_strided_slice (%\w+) (\{[^}]*\}) : (\S+) to (\S+)"
_INSERT = r"vector\.insert_strided_slice (%\w+), (%\w+) (\{[^}]*\}) : (\S+) into (\S+)"
"""What is written in another way by each version of the bindings, and the same in the generic form."""
_ELEMENTS = {"F": "f32", "I": "i32", "M": "i1", "B": "bf16"}


@dataclass(frozen=True, kw_only=True)
class Core:
    """Where a kernel runs."""

    kind: str
    lanes: int
    """Of a vector on a SparseCore."""

    @property
    def shapes(self) -> dict[str, str]:
        if self.kind == TENSOR_CORE:
            return {"F": "8x128", "I": "8x128", "M": "8x128", "B": "16x128"}
        return {"F": f"{self.lanes}", "I": f"{self.lanes}", "M": f"{self.lanes}", "B": f"{2 * self.lanes}"}

    def vector(self, letter: str) -> str:
        return f"vector<{self.shapes[letter]}x{_ELEMENTS[letter]}>"

    def memory(self, letter: str, space: str = "vmem") -> str:
        return f"memref<{self.shapes[letter]}x{_ELEMENTS[letter]}, #tpu.memory_space<{space}>>"

    def expanded(self, text: str) -> str:
        """A line with its abbreviations written out."""
        scalar = self.kind != TENSOR_CORE
        text = re.sub(r"\bAT\b", "%c0" if scalar else "%c0, %c0", text)
        text = re.sub(r"\bL(?=x|\b)", str(self.lanes), text)
        text = re.sub(r"\bX\b", "index" if scalar else "index, index", text)
        text = re.sub(r"\bR([FIMB])\b", lambda m: self.memory(m[1]), text)
        text = re.sub(r"\bH([FIMB])\b", lambda m: self.memory(m[1], "hbm"), text)
        text = re.sub(_SLICE, r'"vector.extract_strided_slice"(\1) <\2> : (\3) -> \4', text)
        text = re.sub(_INSERT, r'"vector.insert_strided_slice"(\1, \2) <\3> : (\4, \5) -> \5', text)
        return re.sub(r"\b([FIMB])\b", lambda m: self.vector(m[1]), text)


_SMEM = "memref<8xi32, #tpu.memory_space<smem>>"
_FLOATS = "memref<8xf32, #tpu.memory_space<smem>>"
_OPERANDS = f"%hv: HF, %ho: HF, %rv: RF, %rn: RI, %rb: RB, %rs: {_SMEM}, %rf: {_FLOATS}"
_BEGIN = f"""
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %z = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %i = memref.load %rs[%c1] : {_SMEM}
    %f = memref.load %rf[%c1] : {_FLOATS}
    %k = arith.index_cast %i : i32 to index
    %t = arith.cmpi slt, %i, %z : i32
    %v = LOAD %rv[AT] : RF, F
    %w = arith.addf %v, %v : F
    %n = LOAD %rn[AT] : RI, I
    %m = arith.addi %n, %n : I
    %b = LOAD %rb[AT] : RB, B
    %p = arith.cmpi slt, %n, %m : I
"""


_OTHERS = {
    "@other": "  func.func private @other() {\n    return\n  }\n",
    "@numbers": f'  memref.global "private" constant @numbers : {_SMEM} = dense<1>\n',
}


def module(core: Core, body: str, result: str = "") -> str:
    """A kernel with ``body``, storing ``%r`` of the type ``result``."""
    others = "".join(text for name, text in _OTHERS.items() if name in body)
    load = r'"tpu.vector_load"(%\1, INDICES) <{operandSegmentSizes = array<i32: 1, RANK, 0>, strides = array<i32>}>'
    load = load.replace("INDICES", core.expanded("AT")).replace("RANK", "2" if core.kind == TENSOR_CORE else "1")
    text = _BEGIN + "\n".join([f"    {line.strip()}" for line in body.split(";;")] + list(stored(core, result)))
    text = core.expanded(re.sub(r"LOAD %(\w+)\[AT\] : (\w+), (\w+)", load + r" : (\2, X) -> \3", text))
    signature = core.expanded(_OPERANDS)
    if core.kind == TENSOR_CORE:
        kinds = "dimension_semantics = [], scalar_prefetch = 0 : i64, scratch_operands = 5 : i64"
        windows = ""
    else:
        semantics = "#tpu.dimension_semantics<core_parallel>, #tpu.dimension_semantics<subcore_parallel>"
        kinds = (
            f"dimension_semantics = [{semantics}], iteration_bounds = array<i64: 1, {SUBCORES}>, "
            "scalar_prefetch = 0 : i64, scratch_operands = 5 : i64"
        )
        whole = "{transform_indices = affine_map<(d0, d1) -> (0)>}"
        windows = f", window_params = [{whole}, {whole}]"
        signature = f"%core: i32, %subcore: i32, {signature}"
    attributes = f"{kinds}, tpu.core_type = #tpu.core_type<{core.kind}>{windows}"
    function = f"func.func @k({signature}) attributes {{{attributes}}} {{{text}\n    func.return\n  }}"
    return f"module {{\n{others}  {function}\n}}"


def stored(core: Core, result: str) -> Iterator[str]:
    """Lines that store ``%r``; nothing for a type that none is known for."""
    name = "%r"
    if result in (core.vector("M"), "i1", "index"):
        wide = core.vector("I") if result == core.vector("M") else "i32"
        yield f"    %rw = arith.{'index_cast' if result == 'index' else 'extui'} %r : {result} to {wide}"
        result, name = wide, "%rw"
    if result == core.memory("F"):
        yield "    %rw = LOAD %r[AT] : RF, F"
        result, name = core.vector("F"), "%rw"
    for letter, memory in (("F", "rv"), ("I", "rn"), ("B", "rb")):
        if result == core.vector(letter):
            sizes = f"1, 1, {2 if core.kind == TENSOR_CORE else 1}, 0"
            attributes = f"operandSegmentSizes = array<i32: {sizes}>, strides = array<i32>, add = false"
            yield f'    "tpu.vector_store"({name}, %{memory}, AT) <{{{attributes}}}> : ({letter}, R{letter}, X) -> ()'
    if result in ("i32", "f32"):
        memory, type_ = ("rs", _SMEM) if result == "i32" else ("rf", _FLOATS)
        yield f"    memref.store {name}, %{memory}[%c0] : {type_}"


_UNARY = "F>F F>I I>F F>M M>I I>M I>I M>M f32>f32 i32>i32 f32>i32 i32>f32 i1>i32 i32>i1 i32>index index>i32 B>B f32>i1"
_NAMES = {"F": "vwv", "I": "nmn", "M": "ppp", "B": "bbb", "f32": "fff", "i32": "iii", "index": "kkk", "i1": "ttt"}
"""Of three operands of a type."""


@functools.cache
def written() -> dict[str, list[str]]:
    """What is tried of each operation that is not element-wise: the lines of the file."""
    found: dict[str, list[str]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, _, body = line.partition(" |")
            found.setdefault(name, []).append(body.strip())
    return found


def lines(operation: str) -> Iterator[str]:
    """What is tried of an operation, as bodies for ``module``."""
    if operation in written():
        yield from filter(None, written()[operation])
        return
    for pair in _UNARY.split():
        given, _, made = pair.partition(">")
        yield f'%r = "{operation}"(%{_NAMES[given][0]}) : ({given}) -> {made}'
    for type_, names in _NAMES.items():
        yield f'%r = "{operation}"(%{names[0]}, %{names[1]}) : ({type_}, {type_}) -> {type_}'
    yield f'%r = "{operation}"(%v, %n) : (F, I) -> F'
    for type_, (one, two, three) in _NAMES.items():
        yield f'%r = "{operation}"(%{one}, %{two}, %{three}) : ({type_}, {type_}, {type_}) -> {type_}'
