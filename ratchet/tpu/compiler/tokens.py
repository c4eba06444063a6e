"""Puts the judge's tokens in the place of the author's names and source places, before a program is compiled.

What an author writes as text (file names, scopes, function names, metadata) comes back in the compiler's texts, next to
what those texts say of the schedule. So no such text is given to the compiler: every operation gets the place
``"t":n:1``, unique for each, every name a word of the judge's. :class:`~ratchet.values.tokens.TokenTable` maps them
back. All else of a program stays: operations, types, constants, and the numbers that configure a kernel. Text of an
unknown kind is refused. A function that has a name for the compiler (``composite``) is called by its body, and what may
be inexact by more than usual is refused: compiler and executor have to compute the same.
"""

from __future__ import annotations

import re
from typing import Any

from jax import export

from ratchet.tpu import exporting
from ratchet.tpu.mlir import kernel_config
from ratchet.tpu.mlir.bindings import body_of, ir, mosaic_module, rebuilt, shardings_of, stablehlo_of, string
from ratchet.tpu.mlir.calls import give_kernels_calls_of_their_own, target, walk
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import SOURCE_FILE, Source, TokenTable

_WORD = re.compile(r"[\w.\-]{0,80}", re.ASCII)
_PLAIN = re.compile(r"""(?:[\w.\-+*=<>\[\]{}(),:#!?@ |]|"[\w.\-]*")*""", re.ASCII)
"""What the text of types and of attributes of dialects is made of: no delimiter of a comment or of an instruction."""
_STEERING = {
    "xla_allow_dce_side_effecting_op": ("true",),
    "_xla_buffer_placement": ("device",),
}  # fmt: skip
"""Frontend attributes that change what is compiled, with the values that are supported. Others are notes and go."""
_NOTES = ("message", "tag", "label", "msg")
"""Attributes of Mosaic operations that hold a text for people."""
_DROPPED = ("jax.result_info", "jax.arg_info")


def tokenise(program: bytes) -> tuple[export.Exported, TokenTable]:
    """An exported TPU program with tokens for all names and places, and the table that maps them back.

    Args:
        program: a serialised ``jax.export`` artefact.

    Returns:
        The program to compile: the same operations, inputs and outputs, in the same order; trees are flat.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for bytes that are no program and for text in a place that is not known,
            ``HOST_CALLBACK`` where the program asks for the host.
    """
    try:
        return _tokenised(program)
    except Refusal:
        raise
    except Exception as error:  # flatbuffers and MLIR raise nearly anything on corrupt bytes
        what = f"the artefact cannot be read: {type(error).__name__}: {error!s:.300}"
        raise Refusal(Status.CANNOT_VERIFY, what) from None


def _tokenised(program: bytes) -> tuple[export.Exported, TokenTable]:
    exported = exporting.read(program)
    for sharding in shardings_of(exported):
        for axis in sharding.mesh.axis_names:
            _word(str(axis), "an axis of the mesh")
    module = stablehlo_of(exported)
    tokens = _Tokens()
    with module.context, ir.Location.unknown():
        _Program(tokens).rewrite(module.operation)
    return rebuilt(exported, module), tokens.table()


class _Tokens:
    """Hands out tokens and remembers what they replace."""

    def __init__(self) -> None:
        self._sources: list[Source | None] = []
        self._around: list[int] = []
        self._names: dict[str, str] = {}
        self._known: dict[str, dict[str, str]] = {}

    def place(self, location: ir.Location, around: int) -> ir.Location:
        """The next operation's place, inside of operation ``around``."""
        self._sources.append(_source(location))
        self._around.append(around)
        return ir.Location.file(SOURCE_FILE, len(self._sources) - 1, 1)

    @property
    def latest(self) -> int:
        """Number of the latest operation; -1 before the first."""
        return len(self._sources) - 1

    def name(self, kind: str, text: str) -> str:
        """The token of a name: the same for the same name of a kind."""
        known = self._known.setdefault(kind, {})
        if text not in known:
            known[text] = f"{kind}_{len(known)}"
            self._names[known[text]] = _shown(text)
        return known[text]

    def fresh(self, kind: str, text: str) -> str:
        """A token that nothing else has: it tells calls apart, in the program and in what the compiler makes of it."""
        known = self._known.setdefault(kind, {})
        token = f"{kind}_{len(known)}"
        known[f"{token} of a call"] = token  # no name of JAX's begins with a token: tokens are made here
        self._names[token] = _shown(text)
        return token

    def table(self) -> TokenTable:
        return TokenTable(sources=tuple(self._sources), around=tuple(self._around), names=dict(self._names))


def _source(location: Any) -> Source | None:
    """The innermost source place of a location."""
    match location:
        case ir.FileLineColLoc():
            return _shown(location.filename), int(location.start_line), int(location.start_col)
        case ir.NameLoc():
            return _source(location.child_loc)
        case ir.CallSiteLoc():
            return _source(location.callee) or _source(location.caller)
        case ir.FusedLoc():
            return next((place for inner in location.locations if (place := _source(inner))), None)
    return None


def _shown(text: str) -> str:
    """Text of the author's for a reader: one line of bounded length."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def _scope(location: Any) -> str:
    """What JAX calls an operation: its scopes and its primitive."""
    return str(location.name_str) if isinstance(location, ir.NameLoc) else ""


class _Rewriter:
    """Rewrites one module in place; heirs know where its text is."""

    function = ""
    """Name of the operation that defines a function."""

    def __init__(self, tokens: _Tokens) -> None:
        self.tokens = tokens
        self._symbols: dict[str, str] = {}
        self._attributes: dict[tuple[str, ir.Attribute], ir.Attribute | None] = {}
        self._types: set[ir.Type] = set()

    def rewrite(self, module: ir.Operation) -> None:
        self._name_functions(module)
        self._operation(module)

    def _name_functions(self, module: ir.Operation) -> None:
        for view in module.regions[0].blocks[0].operations:
            op = view.operation
            if op.name == self.function:
                name = string(op, "sym_name")
                self._symbols[name] = name if name == "main" else self.tokens.name("f", name)

    def _operation(self, op: ir.Operation, around: int = -1) -> None:
        _word(op.name, "an operation")
        op.location = self.location(op, around)
        own = self.tokens.latest
        for name in list(op.attributes):
            _word(name, "an attribute")
            before = op.attributes[name]
            after = self.attribute(op, name, before)
            if after is None:
                del op.attributes[name]
            elif after != before:
                op.attributes[name] = after
        for value in op.results:
            self._type(value.type)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(ir.Location.unknown())
                    self._type(argument.type)
                for view in block.operations:
                    self._operation(view.operation, own)

    def location(self, op: ir.Operation, around: int) -> ir.Location:
        """The token of an operation's place."""
        return self.tokens.place(op.location, around)

    def attribute(self, op: ir.Operation, name: str, attribute: ir.Attribute) -> ir.Attribute | None:
        """What ``attribute`` becomes; None if it goes."""
        del op
        key = name, attribute
        if key not in self._attributes:
            self._attributes[key] = self._rewritten(name, attribute)
        return self._attributes[key]

    def _rewritten(self, name: str, attribute: ir.Attribute) -> ir.Attribute | None:
        match attribute:
            case ir.StringAttr():
                text = self.string(name, str(attribute.value))
                return None if text is None else ir.StringAttr.get(text)
            case ir.FlatSymbolRefAttr():
                return ir.FlatSymbolRefAttr.get(self._symbol(str(attribute.value)))
            case ir.ArrayAttr():
                items = [self._rewritten(name, item) for item in attribute]
                return ir.ArrayAttr.get([item for item in items if item is not None])
            case ir.DictAttr():
                return ir.DictAttr.get(self._entries(attribute))
            case ir.TypeAttr():
                self._type(attribute.value)
            case ir.DenseElementsAttr():
                self._type(attribute.type)
            case ir.DenseResourceElementsAttr():
                raise _refusal("a constant outside the program's own text", name)
            case _:
                _plain(str(attribute), f"attribute {name}")
        return attribute

    def _entries(self, attribute: ir.DictAttr) -> dict[str, ir.Attribute]:
        attributes = {}
        for entry in attribute:  # type: ignore[attr-defined]
            _word(entry.name, "an attribute")
            if (value := self._rewritten(entry.name, entry.attr)) is not None:
                attributes[entry.name] = value
        return attributes

    def _symbol(self, name: str) -> str:
        return self._symbols[name] if name in self._symbols else _word(name, "a symbol")

    def _type(self, type_: ir.Type) -> None:
        if type_ not in self._types:
            _plain(str(type_), "a type")
            self._types.add(type_)

    def string(self, name: str, text: str) -> str | None:
        """What a string becomes; None if it goes."""
        if name == "sym_name":
            return self._symbol(text)
        return _word(text, f"attribute {name}")


class _Program(_Rewriter):
    """The StableHLO module around the kernels."""

    function = "func.func"

    def __init__(self, tokens: _Tokens) -> None:
        super().__init__(tokens)
        self._bodies: dict[bytes, bytes] = {}

    def rewrite(self, module: ir.Operation) -> None:
        for op in [op for op in walk(module) if op.name == "stablehlo.composite"]:
            _take_apart(op)
        give_kernels_calls_of_their_own(module)
        super().rewrite(module)

    def location(self, op: ir.Operation, around: int) -> ir.Location:
        """Place, scope and a word that XLA makes its own names of: which kernel it is, or what kind of operation."""
        scope = _scope(op.location)
        if "kernel_name" in op.attributes:
            word = self._kernel_token(string(op, "kernel_name"))
            return ir.Location.name(f"{self.tokens.fresh('op', scope)}/{word}", super().location(op, around))
        word = op.name.rpartition(".")[2]
        name = f"{self.tokens.name('op', scope)}/{word}" if scope else word
        return ir.Location.name(name, super().location(op, around))

    def _kernel_token(self, name: str) -> str:
        return self.tokens.name("kernel", name)

    def attribute(self, op: ir.Operation, name: str, attribute: ir.Attribute) -> ir.Attribute | None:
        if name == "mhlo.frontend_attributes":
            return _frontend(attribute)
        if name == "result_accuracy" and "<TOLERANCE>" in str(attribute):
            raise Refusal(
                Status.CANNOT_VERIFY,
                f"{op.name} may be off by {attribute!s:.150}: no host computes it as a TPU does; wanted no tolerance",
            )
        if name == "backend_config" and target(op) == "tpu_custom_call":
            return ir.StringAttr.get(self._kernel(str(ir.StringAttr(attribute).value)))
        return super().attribute(op, name, attribute)

    def _rewritten(self, name: str, attribute: ir.Attribute) -> ir.Attribute | None:
        if name == "mhlo.frontend_attributes":  # of an argument or a result
            return _frontend(attribute)
        return super()._rewritten(name, attribute)

    def string(self, name: str, text: str) -> str | None:
        if name in _DROPPED:
            return None
        if name == "kernel_name":
            return self._kernel_token(text)
        if name in ("mhlo.sharding", "mhlo.layout_mode"):
            return _plain(text, f"attribute {name}")
        return super().string(name, text)

    def _kernel(self, text: str) -> str:
        """A kernel's configuration with a rewritten body; equal bodies stay equal, or XLA could not merge calls."""
        body, config = kernel_config.read(text)
        if body not in self._bodies:
            self._bodies[body] = _rewritten_body(body, self.tokens)
        return kernel_config.write(self._bodies[body], config)


class _Kernel(_Rewriter):
    """The serialised Mosaic module of one kernel."""

    function = "stable_mosaic.func.func"

    def string(self, name: str, text: str) -> str | None:
        return self.tokens.name("m", text) if name in _NOTES else super().string(name, text)


def _take_apart(op: ir.Operation) -> None:
    """Call a composite's body in its place: XLA takes some by their names, whatever their bodies are."""
    call = ir.Operation.create(
        "func.call",
        [value.type for value in op.results],
        list(op.operands),
        {"callee": op.attributes["decomposition"]},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    for old, new in zip(op.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def _rewritten_body(body: bytes, tokens: _Tokens) -> bytes:
    module = mosaic_module(body)
    with module.context, ir.Location.unknown():
        _Kernel(tokens).rewrite(module.operation)
        return body_of(module)


def _frontend(attribute: ir.Attribute) -> ir.Attribute | None:
    kept: dict[str, ir.Attribute] = {}
    for entry in ir.DictAttr(attribute):  # type: ignore[attr-defined]
        value = str(ir.StringAttr(entry.attr).value)
        if value in _STEERING.get(entry.name, ()):
            kept[entry.name] = entry.attr
        elif entry.name in _STEERING or entry.name.startswith("_xla"):
            raise Refusal(
                Status.HOST_CALLBACK,
                f"the program asks XLA for {entry.name[:80]!r} = {value[:80]!r}; wanted a kernel on the chip alone",
            )
    return ir.DictAttr.get(kept) if kept else None


def _word(text: str, what: str) -> str:
    if not _WORD.fullmatch(text):
        raise _refusal(text, what)
    return text


def _plain(text: str, what: str) -> str:
    if not _PLAIN.fullmatch(text):
        raise _refusal(text, what)
    return text


def _refusal(text: str, what: str) -> Refusal:
    return Refusal(
        Status.CANNOT_VERIFY,
        f"the program has {what} {text[:80]!r}, which no version of JAX known here writes; use plain words for names",
    )
