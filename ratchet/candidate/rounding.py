"""What honest arithmetic may lose: the loss of every operation's result, beside its value in float64.

The loss of a value is the standard deviation of what all roundings before it add up to, to first order and as if they
were independent. It is the running error analysis of Wilkinson with variances in place of bounds (Higham, Accuracy and
Stability of Numerical Algorithms, chapter 3; Higham and Mary 2019 for the variances). It needs nothing but the exact
values: no host's arithmetic is in it. Counted are

* one rounding of every value to the dtype that the reference keeps it in, and at least to float32. That of an input
  too: a kernel may multiply before it subtracts, so that terms that cancel are judged by their size;
* the accumulation of a sum of n terms in float32 *in any order*. One after another, n terms of random signs lose
  ``u sqrt(n / 6 sum t^2)`` and terms of one sign ``u sqrt(n) |sum| / 3``, the most that an honest order does;
* the roundings of a sum's terms to a narrow dtype as they are, where equal terms make them add up;
* of a product, what its precision asks the matrix unit to leave out of a float32 operand;
* a factor that may be multiplied into an operand of a product before it, which is rounded again then.

A value that jumps (a comparison, a rounding to integers, an index) may jump where its argument is within ``NEAR``
losses of the place: that is the off-by-one which is nobody's fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

EPS32 = float(np.finfo(np.float32).eps)
TINY = float(np.finfo(np.float32).tiny)
RMS = 0.25
"""Standard deviation of a rounding over eps times the value: ulp / sqrt(12), where ulp is eps/2 to eps of the value."""
NEAR = 8.0
FUNCTION = 8.0
"""A float32 exponential, logarithm or root is exact to a few units in the last place, on a TPU as on a CPU."""
_PASSES = {"DEFAULT": 2.0**-7, "HIGH": 2.0**-15, "HIGHEST": EPS32}
"""Eps of what a product keeps of a float32 operand: one bfloat16, the sum of two, all of it."""


_LEAST = {
    float(jnp.finfo(dtype).eps): float(jnp.finfo(dtype).tiny)
    for dtype in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float16)
}
"""By eps, the smallest normal number of dtypes that have so few exponents that values below it are met."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value of the reference. The own rounding is counted where the value is used: an output's is the judge's."""

    v: Any
    """In float64; integers and booleans as they are."""
    s: Any = None
    """Its loss, without its own rounding. None: nothing."""
    eps: float = EPS32
    """Of its own rounding. 0.0: a float that holds an integer, of which ``s`` is what it may be off by."""
    exact: bool = False
    """An input, a constant, or picked from such: comparing two of them has one answer."""
    spread: bool = False
    """A scalar or a broadcast one: a factor that can be moved past a product."""
    early: Any = None
    """Variance of a product that is added where a factor follows it."""

    def __post_init__(self) -> None:
        for name in ("s", "early"):  # float32 takes half the memory, and a loss is no more exact
            if getattr(self, name) is not None:
                object.__setattr__(self, name, jnp.asarray(getattr(self, name), jnp.float32))


def is_float(dtype: Any) -> bool:
    """Whether a dtype is rounded to: floats, and complex numbers of them."""
    return jnp.issubdtype(dtype, jnp.inexact)


def wide(dtype: Any) -> Any:
    """float64, or complex numbers of it."""
    return jnp.dtype("complex128" if jnp.issubdtype(dtype, jnp.complexfloating) else "float64")


def eps_of(dtype: Any) -> float:
    """Eps of a float dtype, and at least that of float32."""
    return max(float(jnp.finfo(dtype).eps), EPS32) if is_float(dtype) else 0.0


def loss(value: Value) -> Any:
    """Standard deviation of what is lost in a value that is used, its own rounding included; 0 where it is infinite."""
    if not is_float(value.v.dtype):
        return jnp.zeros(jnp.shape(value.v)) if value.s is None else value.s
    own = RMS * value.eps * jnp.maximum(jnp.abs(value.v), _LEAST.get(value.eps, 0.0))
    return _finite(value.v, own if value.s is None else jnp.hypot(value.s, own))


def settled(value: Value, *, own: bool = True) -> Any:
    """The loss of a value that leaves: its own rounding counts as one to float32, or not at all."""
    if not own:
        return jnp.zeros(jnp.shape(value.v), jnp.float32) if value.s is None else value.s
    return jnp.asarray(loss(replace(value, eps=EPS32)), jnp.float64)


def _finite(v: Any, s: Any) -> Any:
    return jnp.where(jnp.isfinite(v), jnp.nan_to_num(s, nan=0.0, posinf=jnp.inf), 0.0)


def _var(value: Value) -> Any:
    return jnp.square(loss(value))


def apply(equation: Any, inputs: list[Value]) -> list[Value]:
    """The results of one equation of a jaxpr that has no inner one."""
    name = equation.primitive.name
    params = dict(equation.params)
    for key in ("new_dtype", "preferred_element_type", "dtype"):
        if params.get(key) is not None and is_float(params[key]):
            params[key] = wide(params[key])

    def bind(*arrays: Any) -> Any:
        if equation.primitive.name in _SCATTERS:  # its inner function is of the narrow dtype
            kept = {"dimension_numbers", "indices_are_sorted", "unique_indices", "mode"}
            return _SCATTERS[equation.primitive.name](*arrays, **{k: params[k] for k in kept})
        return equation.primitive.bind(*arrays, **params)

    eps = max((eps_of(out.aval.dtype) for out in equation.outvars), default=0.0)
    rule = _RULES.get(name)
    if rule is None and len(equation.outvars) == 1 and _elementwise(equation):
        rule = _differences
    found = (rule or _anything)(Node(bind=bind, name=name, eps=eps, equation=equation), inputs)
    return found if isinstance(found, list) else [found]


@dataclass(frozen=True, kw_only=True)
class Node:
    """An equation as its rule sees it."""

    bind: Callable[..., Any]
    name: str
    eps: float
    """Of the dtype that the reference gives its result."""
    equation: Any

    @property
    def params(self) -> Any:
        return self.equation.params


_SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter_add": lax.scatter_add,
    "scatter-mul": lax.scatter_mul,
    "scatter_mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter_min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
    "scatter_max": lax.scatter_max,
}


_RULES: dict[str, Callable[[Node, list[Value]], Value | list[Value]]] = {}


def _rule(*names: str) -> Any:
    def register(function: Any) -> Any:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _elementwise(equation: Any) -> bool:
    return equation.primitive.name in ELEMENTWISE


# --- places: the same numbers elsewhere -----------------------------------------------------------


_MOVED = {
    "dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1, "slice": 1, "reshape": 1, "transpose": 1,
    "broadcast_in_dim": 1, "squeeze": 1, "expand_dims": 1, "rev": 1, "copy": 1, "copy_p": 1, "split": 1,
    "stop_gradient": 1, "sharding_constraint": 1, "reduce_precision": 1,
}  # fmt: skip
"""How many of an operation's operands hold the numbers; the others say where."""


@_rule("concatenate", "pad", "optimization_barrier", *_MOVED)
def _places(node: Node, inputs: list[Value]) -> Value | list[Value]:
    count = _MOVED.get(node.name, len(inputs))
    held, where = inputs[:count], inputs[count:]
    out = node.bind(*(x.v for x in inputs)) if node.name != "reduce_precision" else inputs[0].v
    several = isinstance(out, list | tuple)
    outs = list(out) if several else [out]
    lost: list[Any] = [None] * len(outs)
    if any(x.s is not None for x in held):
        parts = [_zeros(x) for x in held]
        moved = parts[0] if node.name == "reduce_precision" else node.bind(*parts, *(x.v for x in where))
        lost = [jnp.nan_to_num(a) for a in (list(moved) if several else [moved])]
    unsure = [x.s for x in where if x.s is not None]
    if unsure:  # an index may be another
        off = _astray(node, unsure, outs[0])
        size = 2 * jnp.max(jnp.abs(jnp.where(jnp.isfinite(held[0].v), held[0].v, 0)).astype(jnp.float64))
        lost = [jnp.where(off, size, 0.0) + (0.0 if a is None else a) + 0 * o for a, o in zip(lost, outs, strict=True)]
    eps = max(x.eps for x in held)
    if node.name == "reduce_precision":
        eps = max(eps, 2.0 ** -node.params["mantissa_bits"])
    early = inputs[0].early
    if early is not None and node.name in ("reshape", "transpose", "slice", "squeeze", "expand_dims", "rev"):
        early = node.bind(early)
    elif node.name != "copy":
        early = None
    spread = (node.name == "broadcast_in_dim" and inputs[0].v.size < outs[0].size) or all(x.spread for x in held)
    exact = all(x.exact for x in inputs) and node.name != "reduce_precision"
    found = [Value(v=o, s=a, eps=eps, exact=exact, spread=spread, early=early) for o, a in zip(outs, lost, strict=True)]
    return found if several else found[0]


def _astray(node: Node, unsure: list[Any], out: Any) -> Any:
    """Which elements of what is taken by indices may be others."""
    if node.name != "gather":
        return jnp.any(jnp.stack([jnp.any(s > 0) for s in unsure]))
    off = jnp.any(unsure[0] > 0, axis=-1)
    for dimension in sorted(node.params["dimension_numbers"].offset_dims):
        off = jnp.expand_dims(off, dimension)
    return jnp.broadcast_to(off, jnp.shape(out))


@_rule("convert_element_type")
def _convert(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    from_float, to_float = is_float(x.v.dtype), is_float(node.equation.outvars[0].aval.dtype)
    out = node.bind(x.v)
    if from_float and not to_float:
        return _jump(node, inputs) if not x.exact else Value(v=out, exact=True)
    if to_float and from_float:
        narrower = node.eps > eps_of(node.equation.invars[0].aval.dtype)
        return replace(x, v=out, eps=max(x.eps, node.eps), exact=x.exact and not narrower)
    return replace(x, v=out, eps=node.eps if to_float and not x.exact else EPS32)


@_rule("select_n")
def _select(node: Node, inputs: list[Value]) -> Value:
    which, *cases = inputs
    out = node.bind(which.v, *(c.v for c in cases))
    lost = None
    if any(c.s is not None for c in cases):
        lost = node.bind(which.v, *(jnp.broadcast_to(_zeros(c), jnp.shape(out)) for c in cases))
    if which.s is not None:
        filled = [jnp.where(jnp.isfinite(c.v), c.v, 0).astype(jnp.float64) for c in cases]
        apart = jnp.max(jnp.stack(filled), axis=0) - jnp.min(jnp.stack(filled), axis=0)
        lost = (0.0 if lost is None else lost) + jnp.where(which.s > 0, apart, 0.0)
    early = next((c.early for c in cases if c.early is not None), None)
    return Value(
        v=out,
        s=lost,
        eps=max(c.eps for c in cases),
        exact=all(x.exact for x in inputs),
        spread=all(c.spread for c in cases),
        early=early,
    )


def _zeros(value: Value) -> Any:
    return jnp.zeros(jnp.shape(value.v), jnp.float32) if value.s is None else value.s


# --- arithmetic, element by element ---------------------------------------------------------------


def _own(node: Node, v: Any, variance: Any, inputs: Sequence[Value]) -> Value:
    spread = all(x.spread for x in inputs)
    return Value(v=v, s=_finite(v, jnp.sqrt(variance)) + TINY, eps=max(node.eps, EPS32), spread=spread)


def _whole(inputs: Sequence[Value]) -> bool:
    """Integers and booleans about which there is no doubt, and comparisons of what is exact."""
    return all(x.s is None and (x.exact or not is_float(x.v.dtype)) for x in inputs)


@_rule("neg")
def _negate(node: Node, inputs: list[Value]) -> Value:
    return replace(inputs[0], v=node.bind(inputs[0].v))


@_rule("add", "sub", "add_any")
def _add(node: Node, inputs: list[Value]) -> Value:
    out = node.bind(*(x.v for x in inputs))
    if not is_float(out.dtype):
        return _integer(node, inputs, out)
    return _own(node, out, sum(map(_var, inputs)), inputs)


@_rule("mul")
def _multiply(node: Node, inputs: list[Value]) -> Value:
    a, b = inputs
    out = node.bind(a.v, b.v)
    if not is_float(out.dtype):
        return _integer(node, inputs, out)
    variance = _var(_folded(a, b)) * jnp.square(b.v) + _var(_folded(b, a)) * jnp.square(a.v)
    return _own(node, out, _no_nan(variance), inputs)


def _folded(x: Value, factor: Value) -> Value:
    """``x`` with the operand of its product rounded again, if the factor can be multiplied into that."""
    if x.early is None or not (factor.spread or factor.v.size < x.v.size):
        return x
    return replace(x, s=jnp.sqrt(jnp.square(0.0 if x.s is None else x.s) + x.early))


def _no_nan(array: Any) -> Any:
    return jnp.where(jnp.isnan(array), 0.0, array)


@_rule("div")
def _divide(node: Node, inputs: list[Value]) -> Value:
    a, b = inputs
    if not is_float(a.v.dtype):
        return _integer(node, inputs, node.bind(a.v, b.v))
    out = node.bind(a.v, b.v)
    variance = (_var(_folded(a, b)) + _var(b) * jnp.square(out)) / jnp.square(b.v)
    return _own(node, out, _no_nan(variance), inputs)


@_rule("square")
def _square(node: Node, inputs: list[Value]) -> Value:
    return _multiply(replace(node, bind=lambda a, b: a * b), [inputs[0], inputs[0]])


@_rule("integer_pow")
def _power(node: Node, inputs: list[Value]) -> Value:
    """A product of several factors: it is rounded to its own dtype after each, as a chain of multiplications is."""
    found = _differences(node, inputs)
    if not is_float(found.v.dtype):
        return found
    between = max(abs(node.params["y"]).bit_length() + abs(node.params["y"]).bit_count() - 3, 0)
    own = between * jnp.square(RMS * found.eps * jnp.abs(found.v))
    return replace(found, s=_finite(found.v, jnp.hypot(_zeros(found), jnp.sqrt(own))))


@_rule("exp", "exp2")
def _exponential(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    scale = 1.0 if node.name == "exp" else math.log(2)
    # exp(x) = 2^(x log2 e): the argument is rounded once more. A large loss of it is no longer linear.
    spread = jnp.hypot(jnp.minimum(loss(x) * scale, 40.0), RMS * EPS32 * FUNCTION)
    wide = jnp.expm1(spread)
    return replace(_own(node, out, jnp.square(_no_nan(out * wide)), inputs), spread=x.spread)


ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp "
    "convert_element_type cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow "
    "is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter not or polygamma population_count pow "
    "real rem round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub "
    "tan tanh xor copy stop_gradient reduce_precision clz conj complex igamma igammac le_to lt_to eq_to".split()
)
"""Operations whose every element is of the elements at the same place."""

_SMOOTH = frozenset(
    "log log1p expm1 tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh sqrt rsqrt cbrt logistic erf erfc "
    "erf_inv lgamma digamma pow atan2".split()
)


def _differences(node: Node, inputs: list[Value]) -> Value:
    """Any function of one element of each operand: how far it moves if one of them moves by its loss."""
    out = node.bind(*(x.v for x in inputs))
    if _whole(inputs) and not is_float(out.dtype):
        return Value(v=out, exact=True)
    if not is_float(out.dtype):
        return _integer(node, inputs, out)
    variance: Any = jnp.square(RMS * EPS32 * FUNCTION * jnp.abs(out)) if node.name in _SMOOTH else 0.0
    for place, x in enumerate(inputs):
        if not is_float(x.v.dtype):
            continue
        step, far = loss(x), jnp.zeros(jnp.shape(out))
        for sign in (1, -1):
            moved = [y.v + sign * step if n == place else y.v for n, y in enumerate(inputs)]
            far = jnp.maximum(far, jnp.nan_to_num(jnp.abs(node.bind(*moved) - out)))
        variance = variance + jnp.square(far)
    return _own(node, out, variance, inputs)


@_rule("max", "min", "clamp")
def _pick(node: Node, inputs: list[Value]) -> Value:
    out = node.bind(*(x.v for x in inputs))
    if _whole(inputs):
        return Value(v=out, exact=all(x.exact for x in inputs), spread=all(x.spread for x in inputs))
    inexact = [x for x in inputs if not x.exact]
    sure = [replace(x, eps=0.0) if x.exact else x for x in inputs]
    lost = jnp.zeros(jnp.shape(out))
    for place, x in enumerate(sure):
        if x.exact:
            continue
        for sign in (1, -1):
            step = (sign * loss(replace(x, eps=0.0))).astype(x.v.dtype)
            moved = [y.v + step if n == place else y.v for n, y in enumerate(sure)]
            lost = jnp.maximum(lost, jnp.nan_to_num(jnp.abs(node.bind(*moved) - out)).astype(jnp.float64))
    return Value(v=out, s=_finite(out, lost), eps=max(x.eps for x in inexact))


@_rule("real", "imag")
def _part(node: Node, inputs: list[Value]) -> Value:
    return Value(v=node.bind(inputs[0].v), s=loss(inputs[0]))


@_rule("abs")
def _absolute(node: Node, inputs: list[Value]) -> Value:
    return replace(inputs[0], v=node.bind(inputs[0].v), early=None)


def _jump(node: Node, inputs: list[Value]) -> Value:
    """A function with steps: it may be off by a step where its argument is near to one."""
    (x,) = inputs
    out = node.bind(x.v)
    if x.exact or (x.s is None and not is_float(x.v.dtype)):
        return Value(v=out, exact=True, eps=0.0)
    if not x.eps:
        return replace(x, v=out)
    near = NEAR * loss(x)
    high, low = (node.bind(x.v + sign * near).astype(jnp.float64) for sign in (1, -1))
    far = jnp.abs(high - low)  # what an integer makes of NaN and infinity is nobody's business
    return Value(v=out, s=jnp.where(jnp.isfinite(x.v), far, 0.0 if is_float(out.dtype) else jnp.inf), eps=0.0)


_RULES |= dict.fromkeys(("floor", "ceil", "round", "sign", "is_finite"), _jump)


@_rule("lt", "le", "gt", "ge", "eq", "ne", "lt_to", "le_to", "eq_to")
def _compare(node: Node, inputs: list[Value]) -> Value:
    a, b = inputs
    out = node.bind(a.v, b.v)
    if _whole(inputs) or node.equation.invars[0] is node.equation.invars[1]:
        return Value(v=out, exact=True)
    apart = jnp.abs(a.v.astype(jnp.float64) - b.v.astype(jnp.float64))
    near = NEAR * jnp.hypot(loss(a), loss(b)) if is_float(a.v.dtype) else loss(a) + loss(b)
    return Value(v=out, s=jnp.where(apart <= near, 1.0, 0.0) * (near > 0))


@_rule("and", "or", "xor", "not")
def _logic(node: Node, inputs: list[Value]) -> Value:
    out = node.bind(*(x.v for x in inputs))
    if _whole(inputs):
        return Value(v=out, exact=True)
    return Value(v=out, s=sum(_zeros(x) for x in inputs) + jnp.zeros(jnp.shape(out)))


def _integer(node: Node, inputs: list[Value], out: Any) -> Value:
    """Integer arithmetic: exact, unless an operand may be another integer."""
    if _whole(inputs):
        return Value(v=out, exact=True)
    lost: Any = jnp.zeros(jnp.shape(out))
    for place, x in enumerate(inputs):
        if x.s is None or x.v.dtype == bool:
            continue
        step = jnp.ceil(x.s).astype(x.v.dtype)
        for sign in (1, -1):
            moved = [y.v + sign * step if n == place else y.v for n, y in enumerate(inputs)]
            lost = jnp.maximum(lost, jnp.abs(node.bind(*moved).astype(jnp.float64) - out.astype(jnp.float64)))
    return Value(v=out, s=lost)


# --- sums and products ----------------------------------------------------------------------------


def _accumulated(out: Any, count: int, eps: float = EPS32) -> tuple[float, Any]:
    """Of a sum of ``count`` terms: the share of each term's square, and the variance beside, in the worst order."""
    return eps**2 * max(count, 2) / 24, jnp.square(eps * out) * count / 36


@_rule("reduce_sum", "cumsum", "reduce_window_sum")
def _sum(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    if not is_float(out.dtype):
        return Value(v=out, exact=True) if _whole(inputs) else Value(v=out, s=node.bind(_zeros(x)))
    count = _terms(node, x.v.shape)
    each, beside = _accumulated(out, count, EPS32 if node.name == "reduce_sum" else node.eps)
    squares = node.bind(jnp.where(jnp.isfinite(x.v), _var(x) + each * jnp.square(x.v), 0.0))
    if (off := _alike(x)) is not None:
        squares = _together(squares, jnp.square(node.bind(off)))
    return _own(node, out, jnp.maximum(squares, 0) + _no_nan(beside), inputs)


def _alike(x: Value) -> Any:
    """By how much a narrow dtype rounds each term; None for float32. Equal terms are all rounded the same way."""
    if x.eps <= EPS32 or x.exact:
        return None
    v = jnp.where(jnp.isfinite(x.v), x.v, 0.0)
    unit = x.eps * jnp.maximum(jnp.ldexp(1.0, jnp.frexp(v)[1] - 1), _LEAST.get(x.eps, 0.0))
    return jnp.round(v / unit) * unit - v


def _together(squares: Any, alike: Any) -> Any:
    """The variance of a sum: as of independent terms, unless what they add up to is more than chance makes of it."""
    return jnp.where(alike > 4 * squares, alike, squares)


def _terms(node: Node, shape: Sequence[int]) -> int:
    if node.name == "cumsum":
        return shape[node.params["axis"]]
    if node.name == "reduce_window_sum":
        return math.prod(node.params["window_dimensions"])
    return math.prod(shape[axis] for axis in node.params["axes"])


@_rule("dot_general", "conv_general_dilated")
def _product(node: Node, inputs: list[Value]) -> Value | list[Value]:
    a, b = (_operand(node, x, n) for n, x in enumerate(inputs))
    out = node.bind(a.v, b.v)
    if not is_float(out.dtype):
        return Value(v=out, exact=True) if _whole(inputs) else _anything(node, inputs)
    if node.name == "dot_general":
        (contracted, _), _ = node.params["dimension_numbers"]
        count = math.prod(a.v.shape[axis] for axis in contracted)
    else:
        features = node.params["dimension_numbers"].rhs_spec[0]
        count = b.v.size // b.v.shape[features]
    each, beside = _accumulated(out, count)
    a2, b2 = jnp.square(a.v), jnp.square(b.v)
    plain = [x.s is None and x.eps <= EPS32 for x in (a, b)]
    own = (RMS * EPS32) ** 2
    if all(plain):
        squares = (2 * own + each) * (terms := node.bind(a2, b2))
    elif plain[1]:
        squares = node.bind(_var(a) + (own + each) * a2, b2)
    elif plain[0]:
        squares = node.bind(a2, _var(b) + (own + each) * b2)
    else:
        squares = node.bind(_var(a) + each * a2, b2) + node.bind(a2, _var(b))
    for number, x in enumerate((a, b)):
        if (off := _alike(x)) is not None:
            moved = node.bind(off, b.v) if number == 0 else node.bind(a.v, off)
            squares = _together(squares, jnp.square(moved))
    found = _own(node, out, squares + beside, inputs)
    narrow = max(eps_of(v.aval.dtype) for v in node.equation.invars)
    if all(plain) and narrow > EPS32:
        return replace(found, early=2 * (RMS * narrow) ** 2 * terms, spread=False)
    return replace(found, spread=False)


def _operand(node: Node, x: Value, number: int) -> Value:
    """An operand of a product as the matrix unit takes it."""
    v = x.v.astype(jnp.float64) if is_float(node.equation.outvars[0].aval.dtype) else x.v
    if node.equation.invars[number].aval.dtype != jnp.float32:
        return replace(x, v=v)
    asked = node.params["precision"]
    asked = asked[number] if isinstance(asked, tuple) else asked
    eps = _PASSES.get(getattr(asked, "name", str(asked)), _PASSES["DEFAULT"])
    if eps <= EPS32 or (x.exact and x.eps > EPS32):
        return replace(x, v=v)
    kept = v.astype(jnp.bfloat16).astype(jnp.float64)
    kept = kept + (v - kept).astype(jnp.bfloat16) if eps < _PASSES["DEFAULT"] else kept
    lost = jnp.where(kept == v, 0.0, RMS * eps * jnp.abs(v))  # a narrow value in a wide dtype loses nothing
    return replace(x, v=v, s=jnp.hypot(_zeros(x), lost))


@_rule("scatter")
def _scatter(node: Node, inputs: list[Value]) -> Value:
    x, where, updates = inputs
    out = node.bind(x.v, where.v, updates.v)
    lost = None
    if x.s is not None or updates.s is not None:
        lost = node.bind(_zeros(x), where.v, _zeros(updates))
    if where.s is not None:
        size = jnp.max(jnp.abs(updates.v).astype(jnp.float64)) + jnp.max(jnp.abs(x.v).astype(jnp.float64))
        lost = _zeros(x) + jnp.where(jnp.any(where.s > 0), size, 0.0)
    return Value(v=out, s=lost, eps=max(x.eps, updates.eps), exact=all(y.exact for y in inputs))


@_rule("scatter-add", "scatter_add")
def _scatter_add(node: Node, inputs: list[Value]) -> Value:
    x, where, updates = inputs
    out = node.bind(x.v, where.v, updates.v)
    lost = jnp.zeros(jnp.shape(out))
    if is_float(out.dtype):
        count = max(2, updates.v.size // max(1, x.v.size // max(1, x.v.shape[0])))
        each, beside = _accumulated(out, count, node.eps)
        squares = node.bind(_var(x), where.v, _var(updates) + each * jnp.square(updates.v))
        lost = jnp.sqrt(squares + beside)
    elif not _whole([x, updates]):
        lost = node.bind(_zeros(x), where.v, _zeros(updates))
    if where.s is not None:  # each of these may go elsewhere
        lost = lost + jnp.sum(jnp.any(where.s > 0, axis=-1)) * jnp.max(jnp.abs(updates.v).astype(jnp.float64))
    if not is_float(out.dtype) and _whole(inputs):
        return Value(v=out, exact=True)
    return Value(v=out, s=lost, eps=max(node.eps, EPS32))


# --- order ----------------------------------------------------------------------------------------


@_rule("reduce_max", "reduce_min", "cummax", "cummin")
def _extreme(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    if x.s is None:
        return replace(x, v=out, early=None)
    sign = 1 if "max" in node.name else -1
    moved = node.bind(x.v + sign * jnp.asarray(loss(x), x.v.dtype))
    far = jnp.abs(moved - out).astype(jnp.float64)
    return Value(v=out, s=_finite(out, far), eps=x.eps)


@_rule("reduce_and", "reduce_or")
def _reduce_logic(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    return Value(v=out, exact=True) if x.s is None else Value(v=out, s=jnp.max(x.s, axis=node.params["axes"]))


@_rule("argmax", "argmin")
def _argument(node: Node, inputs: list[Value]) -> Value:
    (x,) = inputs
    out = node.bind(x.v)
    if x.exact or not is_float(x.v.dtype):
        return Value(v=out, exact=True)
    (axis,) = node.params["axes"]
    sign = 1 if node.name == "argmax" else -1
    near, place = NEAR * loss(x), lax.broadcasted_iota(jnp.int32, x.v.shape, axis)
    top = jnp.max(sign * x.v - near, axis=axis, keepdims=True)
    tied = sign * x.v + near >= top
    last = jnp.max(jnp.where(tied, place, -1), axis=axis)
    first = jnp.min(jnp.where(tied, place, x.v.shape[axis]), axis=axis)
    return Value(v=out, s=(last - first).astype(jnp.float64))


@_rule("top_k")
def _top(node: Node, inputs: list[Value]) -> list[Value]:
    (x,) = inputs
    values, indices = node.bind(x.v)
    if x.exact or not is_float(x.v.dtype):
        return [replace(x, v=values), Value(v=indices, exact=True)]
    lost = jnp.take_along_axis(loss(x), indices, axis=-1)
    ahead = jnp.take_along_axis(x.v, lax.top_k(x.v, min(values.shape[-1] + 1, x.v.shape[-1]))[1], axis=-1)
    return [replace(x, v=values, s=lost), Value(v=indices, s=_tied(ahead, lost, x.v.shape[-1]))]


def _tied(values: Any, lost: Any, size: int) -> Any:
    """By how much an index may differ: by anything where the next value is as large, along the last axis."""
    count = lost.shape[-1]
    wide = jnp.concatenate([lost, lost[..., -1:]], axis=-1)[..., : values.shape[-1]]
    close = jnp.abs(values[..., 1:] - values[..., :-1]) <= NEAR * (wide[..., 1:] + wide[..., :-1])
    edge = jnp.zeros((*close.shape[:-1], 1), bool)
    either = jnp.concatenate([edge, close], axis=-1) | jnp.concatenate([close, edge], axis=-1)
    return jnp.where(either[..., :count], float(size), 0.0)


@_rule("sort")
def _sort(node: Node, inputs: list[Value]) -> list[Value]:
    axis, keys = node.params["dimension"], node.params["num_keys"]
    outs = node.bind(*(x.v for x in inputs))
    if all(x.exact or not is_float(x.v.dtype) for x in inputs[:keys]) and all(x.s is None for x in inputs):
        return [replace(x, v=out) for x, out in zip(inputs, outs, strict=True)]
    place = lax.broadcasted_iota(jnp.int32, inputs[0].v.shape, axis)
    *_, order = lax.sort((*(x.v for x in inputs), place), dimension=axis, num_keys=keys, is_stable=True)
    lost = [jnp.take_along_axis(loss(x), order, axis=axis) for x in inputs]
    first = jnp.moveaxis(outs[0].astype(jnp.float64), axis, -1)
    unsure = jnp.moveaxis(_tied(first, jnp.moveaxis(lost[0], axis, -1), 1), -1, axis)
    found = []
    for number, (x, out, s) in enumerate(zip(inputs, outs, lost, strict=True)):
        size = 0.0 if number < keys else jnp.max(jnp.abs(x.v)).astype(jnp.float64)
        found.append(replace(x, v=out, s=s + size * unsure, exact=False))
    return found


# --- the rest -------------------------------------------------------------------------------------

DRAWS = 4
DEPTH = 4.0
"""Roundings one after another that an operation without a rule is granted."""


def _anything(node: Node, inputs: list[Value]) -> list[Value]:
    """An operation without a rule: its derivative along losses of random signs, in root mean square of a few draws."""
    outs = node.bind(*(x.v for x in inputs))
    several = isinstance(outs, list | tuple)
    outs = list(outs) if several else [outs]
    if not any(is_float(o.dtype) for o in outs):
        return [Value(v=o, exact=_whole(inputs), eps=max(node.eps, EPS32)) for o in outs]
    floats = [n for n, x in enumerate(inputs) if is_float(x.v.dtype)]

    def function(*arrays: Any) -> list[Any]:
        given = [arrays[floats.index(n)] if n in floats else x.v for n, x in enumerate(inputs)]
        found = node.bind(*given)
        return [o for o in (found if several else [found]) if is_float(o.dtype)]

    key, total = jax.random.key(0), None
    for draw in range(DRAWS):
        keys = jax.random.split(jax.random.fold_in(key, draw), len(floats))
        steps = [
            (loss(inputs[n]) * jax.random.rademacher(k, inputs[n].v.shape, jnp.float64)).astype(inputs[n].v.dtype)
            for n, k in zip(floats, keys, strict=True)
        ]
        _, moved = jax.jvp(function, [inputs[n].v for n in floats], steps)
        squares = [jnp.square(jnp.abs(m)) / DRAWS for m in moved]
        total = squares if total is None else [a + b for a, b in zip(total, squares, strict=True)]
    spread = iter(total or [])
    return [
        _own(node, o, DEPTH**2 * next(spread) + jnp.square(node.eps * jnp.max(jnp.abs(o), initial=0.0)), inputs)
        if is_float(o.dtype)
        else Value(v=o)
        for o in outs
    ]
