"""A jaxpr as data: written by the process that traced an author's function, read by one that never ran it.

The form is closed: variables with shapes and dtypes, JAX's own primitives by name, and parameters of a few kinds. What
is read is checked by JAX itself (``check_jaxpr``): every result is what its primitive makes of its operands. What
belongs to derivatives alone is left out.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import api, source_info_util
from jax._src import core as internal
from jax._src.interpreters import mlir, partial_eval
from jax._src.lax.control_flow import solves
from jax.extend import core

flattree: Any = None
if find_spec("jax._src.flattree"):  # from JAX 0.12 on
    flattree = import_module("jax._src.flattree")

_ENUMS: Mapping[str, type[enum.Enum]] = {
    one.__name__: one
    for one in (
        *([api.Inline] if hasattr(api, "Inline") else []),  # from JAX 0.11 on
        lax.AccuracyMode,
        lax.DotAlgorithmPreset,
        lax.FftType,
        lax.GatherScatterMode,
        lax.Precision,
        lax.RandomAlgorithm,
        lax.RoundingMethod,
    )
}
_TUPLES: Mapping[str, Any] = {
    one.__name__: one
    for one in (
        lax.ConvDimensionNumbers,
        lax.DotAlgorithm,
        lax.GatherDimensionNumbers,
        lax.ScatterDimensionNumbers,
        lax.RaggedDotDimensionNumbers,
        solves._LinearSolveTuple,
    )
}
_SCOPES = {one.__name__: one for one in (source_info_util.Scope, source_info_util.Transform)}
_TREES = getattr(flattree, "FlatTree", ())
"""Of the operands and results of a scan, from JAX 0.12 on; of each part, only how many it has is written."""
_HELD = {
    "jit": ("jaxpr", "name", "inline", "keep_unused"),
    **dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), ("call_jaxpr",)),
}
"""Parameters that are written of a call. The others say how it lies on devices, of which there is one, or what its
derivative is, and are those of another call."""
_LEFT_OUT = {"remat2": "policy", "reduce": "computation"}
"""Parameters that are functions: which values a derivative keeps, and what the jaxpr beside it says, too."""
_REFUSED = ("pallas_call", "ffi_call", "custom_call", "pure_callback", "io_callback", "debug_callback")
"""That call something whose meaning is elsewhere."""


class Unwritable(ValueError):
    """Something that has no place in the form. The message says what."""


def encode(closed: Any) -> bytes:
    """A closed jaxpr as JSON.

    Raises:
      Unwritable: for an effect, a primitive that calls out, or a parameter of another kind.
    """
    if getattr(closed, "is_high", False):
        closed = partial_eval.lower_jaxpr2(closed)
    writer = _Writer()
    top = writer.closed(closed)
    return json.dumps({"jaxprs": writer.jaxprs, "closed": writer.closed_ones, "top": top}).encode()


class _Writer:
    """Jaxprs are numbered by identity: two calls of one are one function in XLA's program."""

    def __init__(self) -> None:
        self.jaxprs: list[Any] = []
        self.closed_ones: list[Any] = []
        self._known: dict[tuple[str, int], int] = {}
        """By kind and identity: from JAX 0.12 on a jaxpr is also the closed one that holds it."""
        self._alive: list[Any] = []

    def closed(self, closed: Any) -> int:
        key = ("closed", id(closed))
        if key not in self._known:
            self._alive.append(closed)
            self.closed_ones.append([self.jaxpr(closed.jaxpr), [_array(const) for const in closed.consts]])
            self._known[key] = len(self.closed_ones) - 1
        return self._known[key]

    def jaxpr(self, jaxpr: Any) -> int:
        key = ("jaxpr", id(jaxpr))
        if key not in self._known:
            self._alive.append(jaxpr)
            self.jaxprs.append(_Body(self, jaxpr).document())
            self._known[key] = len(self.jaxprs) - 1
        return self._known[key]

    def value(self, value: Any) -> Any:
        """A parameter. Raises Unwritable."""
        if value is None or type(value) in (bool, int, str):
            return value
        for kinds, write in _WRITTEN:
            if isinstance(value, kinds):
                return write(self, value)
        return {"dtype": _dtype_name(value)}

    def fields(self, value: Any) -> Any:
        """A tuple, a list, or one of ``_TUPLES`` by its fields."""
        name = "" if type(value) in (tuple, list) else type(value).__name__
        if hasattr(value, "key_shape"):
            return {"random": value.name}
        if name and name not in _TUPLES:
            raise Unwritable(f"a parameter that is {name}")
        if dataclasses.is_dataclass(value):
            value = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return {"tuple": [name, *map(self.value, value)]}


def _whole(_: _Writer, sharding: Any) -> Any:
    if not sharding.mesh.empty:
        raise Unwritable("a sharding")
    return {"whole": len(sharding.spec)}


def _member(_: _Writer, value: enum.Enum) -> Any:
    if type(value).__name__ not in _ENUMS:
        raise Unwritable(f"a parameter that is {type(value).__name__}")
    return {"enum": [type(value).__name__, value.name]}


_WRITTEN: Sequence[tuple[Any, Callable[[_Writer, Any], Any]]] = (
    (float, lambda writer, value: {"float": float(value).hex()}),
    ((np.bool_, np.integer), lambda writer, value: value.item()),
    ((np.generic, np.ndarray, jax.Array), lambda writer, value: {"array": _array(value)}),
    (core.ClosedJaxpr, lambda writer, value: {"closed": writer.closed(value)}),
    (core.Jaxpr, lambda writer, value: {"jaxpr": writer.jaxpr(value)}),
    (enum.Enum, _member),
    ((tuple, list, lax.RaggedDotDimensionNumbers), _Writer.fields),
    (jax.sharding.NamedSharding, _whole),
    (_TREES, lambda _, tree: {"parts": [len(part) for part in tree.unpack()]}),
)


class _Body:
    """One jaxpr being written."""

    def __init__(self, writer: _Writer, jaxpr: Any) -> None:
        self._writer, self._jaxpr = writer, jaxpr
        self._avals: list[Any] = []
        self._numbers: dict[Any, Any] = {}
        self._equations: list[Any] = []

    def document(self) -> dict[str, Any]:
        jaxpr = self._jaxpr
        constants, inputs = [[self._new(var) for var in some] for some in (jaxpr.constvars, jaxpr.invars)]
        self._walk()
        outputs = [self._atom(atom) for atom in jaxpr.outvars]
        return {
            "avals": self._avals,
            "consts": constants,
            "inputs": inputs,
            "equations": self._equations,
            "outputs": outputs,
        }

    def _new(self, var: Any) -> int:
        self._avals.append(_aval(var.aval))
        self._numbers[var] = len(self._avals) - 1
        return len(self._avals) - 1

    def _atom(self, atom: Any) -> Any:
        if isinstance(atom, core.Literal):
            return {"literal": _array(atom.val, atom.aval), "aval": _aval(atom.aval)}
        return self._numbers[atom]

    def _walk(self) -> None:
        for equation in self._jaxpr.eqns:
            names = [[type(one).__name__, one.name] for one in equation.source_info.name_stack.stack]
            name, ins = equation.primitive.name, [self._atom(atom) for atom in equation.invars]
            if equation.effects or name in _REFUSED:
                raise Unwritable(f"{name}, which does more than compute a value of its operands")
            params = {
                key: self._writer.value(value)
                for key, value in equation.params.items()
                if key in _HELD.get(name, (key,)) and key != _LEFT_OUT.get(name)
            }
            self._equations.append([name, ins, [self._new(var) for var in equation.outvars], params, names])


def _aval(aval: Any) -> list[Any]:
    return [list(aval.shape), _dtype_name(aval.dtype), bool(aval.weak_type)]


def _is_key(dtype: Any) -> bool:
    return dtype is not None and hasattr(dtype, "_impl") and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def _dtype_name(dtype: Any) -> str:
    if _is_key(dtype):
        return f"key:{dtype._impl.name}"
    try:
        return str(jnp.dtype(dtype).name)
    except TypeError:
        raise Unwritable(f"a parameter that is {type(dtype).__name__}") from None


def _array(value: Any, aval: Any = None) -> list[Any]:
    """Shape, dtype and bytes. A key array is written as what it is made of."""
    dtype = aval.dtype if aval is not None else getattr(value, "dtype", None)
    if _is_key(dtype):
        return [None, _dtype_name(dtype), _array(jax.random.key_data(value))]
    array = np.asarray(value, dtype)
    return [list(array.shape), array.dtype.name, base64.b64encode(array.tobytes()).decode()]


def decode(data: bytes) -> Any:
    """A closed jaxpr from what ``encode`` writes.

    Raises:
      ValueError: for something else, or equations that do not fit each other.
    """
    try:
        closed = _Reader(json.loads(data)).top()
        internal.check_jaxpr(closed.jaxpr)
    except Exception as error:  # JAX raises nearly anything
        raise ValueError(f"no jaxpr: {type(error).__name__}: {error}") from None
    return closed


@functools.cache
def _primitives() -> Mapping[str, Any]:
    """JAX's own, by name."""
    tables = [mlir._lowerings, *mlir._platform_specific_lowerings.values()]
    return {primitive.name: primitive for table in tables for primitive in table}


@functools.cache
def _key_type(name: str) -> Any:
    return jax.random.key(0, impl=name).dtype


class _Reader:
    def __init__(self, document: Any) -> None:
        self._document = document
        self._jaxprs: dict[int, Any] = {}
        self._closed: dict[int, Any] = {}

    def top(self) -> Any:
        return self._closed_one(self._document["top"])

    def _closed_one(self, number: int) -> Any:
        if number not in self._closed:
            jaxpr, consts = self._document["closed"][number]
            self._closed[number] = core.ClosedJaxpr(self._jaxpr(jaxpr), [_array_of(const) for const in consts])
        return self._closed[number]

    def _jaxpr(self, number: int) -> Any:
        if number not in self._jaxprs:
            document = self._document["jaxprs"][number]
            variables = [core.Var(_aval_of(aval)) for aval in document["avals"]]
            equations = [self._equation(variables, one) for one in document["equations"]]
            constants, inputs = [[variables[n] for n in document[key]] for key in ("consts", "inputs")]
            outputs = [_atom_of(variables, atom) for atom in document["outputs"]]
            names = internal.DebugInfo("jaxpr", "", ("",) * len(inputs), ("",) * len(outputs))
            self._jaxprs[number] = core.Jaxpr(constants, inputs, outputs, equations, debug_info=names)
        return self._jaxprs[number]

    def _equation(self, variables: Sequence[Any], document: Any) -> Any:
        name, ins, outs, params, names = document
        if name in _REFUSED:
            raise ValueError(f"{name} calls out")
        params = {key: self._value(value) for key, value in params.items()}
        if name in _HELD:
            params = _of_call(name, len(ins), len(outs)) | params
        if name in _LEFT_OUT:
            params[_LEFT_OUT[name]] = None
        if "update_jaxpr" in params and not _updates(params["update_jaxpr"], name):
            raise ValueError(f"{name} with a function of its own")
        atoms = [_atom_of(variables, atom) for atom in ins]
        stack = source_info_util.NameStack(tuple(_SCOPES[kind](named) for kind, named in names))
        where = source_info_util.SourceInfo(None, stack)
        made = [variables[n] for n in outs]
        return internal.new_jaxpr_eqn(atoms, made, _primitives()[name], params, internal.no_effects, where)

    def _value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, held),) = value.items()
        return _KINDS[kind](self, held)

    def _tuple(self, held: Any) -> Any:
        name, *values = held
        made = tuple(map(self._value, values))
        return _TUPLES[name](*made) if name else made


_KINDS: Mapping[str, Any] = {
    "array": lambda reader, held: _array_of(held),
    "closed": _Reader._closed_one,
    "dtype": lambda reader, held: _dtype_of(held),
    "enum": lambda reader, held: _ENUMS[held[0]][held[1]],
    "float": lambda reader, held: float.fromhex(held),
    "jaxpr": _Reader._jaxpr,
    "parts": lambda reader, held: flattree.pack(tuple(map(flattree.nones, held))),
    "random": lambda reader, held: _key_type(held)._impl,
    "tuple": _Reader._tuple,
    "whole": lambda reader, held: jax.sharding.NamedSharding(
        jax.sharding.AbstractMesh((), ()), jax.sharding.PartitionSpec(*(None,) * held)
    ),
}


def _of_call(name: str, ins: int, outs: int) -> dict[str, Any]:
    """The parameters of a call that are not written: of ``jit`` those of an argument and a result, each as often."""
    call = _calls()[name]
    often = {"out_shardings": outs, "out_layouts": outs}
    return {
        key: value * often.get(key, ins) if name == "jit" and isinstance(value, tuple) and value else value
        for key, value in call.params.items()
    }


_UPDATES = {
    "scatter-add": "add",
    "scatter-sub": "sub",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}


def _updates(jaxpr: Any, name: str) -> bool:
    """Whether the function of a scatter is what its name says: they are read one for the other."""
    if jaxpr is None or name not in _UPDATES:
        return name == "scatter" and (jaxpr is None or (not jaxpr.eqns and list(jaxpr.outvars) == [jaxpr.invars[1]]))
    ((equation,), (out,)) = jaxpr.eqns, jaxpr.outvars
    what = (equation.primitive.name, list(equation.invars), list(equation.outvars))
    return what == (_UPDATES[name], list(jaxpr.invars), [out])


@functools.cache
def _calls() -> Mapping[str, Any]:
    """A call of each kind, of one operand and one result."""
    by_vectors, by_derivatives = jax.custom_jvp(jnp.sin), jax.custom_vjp(jnp.sin)
    by_vectors.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    by_derivatives.defvjp(lambda x: (x, x), lambda x, given: (given,))
    calls = jax.make_jaxpr(lambda x: (jax.jit(jnp.sin)(x), by_vectors(x), by_derivatives(x)))(jnp.float32(0)).jaxpr.eqns
    return {call.primitive.name: call for call in calls}


def _atom_of(variables: Sequence[Any], atom: Any) -> Any:
    if isinstance(atom, int):
        return variables[atom]
    aval = _aval_of(atom["aval"])
    value = _array_of(atom["literal"])
    return core.Literal(value.item() if aval.weak_type else value, aval)


def _aval_of(document: Any) -> Any:
    shape, dtype, weak = document
    return internal.ShapedArray(tuple(shape), _dtype_of(dtype), weak_type=weak)


def _dtype_of(name: str) -> Any:
    kind, _, impl = name.partition(":")
    return _key_type(impl) if kind == "key" else jnp.dtype(name)


def _array_of(document: Any) -> Any:
    shape, dtype, held = document
    if shape is None:
        return jax.random.wrap_key_data(_array_of(held), impl=_dtype_of(dtype)._impl.name)
    return np.frombuffer(base64.b64decode(held), jnp.dtype(dtype)).reshape(shape)
