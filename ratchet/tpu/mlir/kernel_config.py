"""The ``backend_config`` of a kernel's custom call: read once, checked against what is known, written anew."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from ratchet.values.status import Refusal, Status

_CALL = frozenset(
    {
        "active_core_count", "allow_input_fusion", "body", "collective_id", "cost_estimate", "disable_bounds_checks",
        "disable_semaphore_checks", "has_communication", "input_memory_space_colors", "internal_scratch_in_bytes",
        "needs_hlo_passes", "needs_layout_passes", "output_memory_space_colors", "serialization_format",
        "shape_invariant_numerics", "skip_device_barrier", "vmem_limit_bytes",
    }
)  # fmt: skip
_AROUND = frozenset(
    {
        "custom_call_config", "device_type", "flag_configs", "megachip_parallelism_config", "scoped_memory_configs",
        "sparse_core_config",
    }
)  # fmt: skip
"""Keys that the locked jax writes (``CustomCallBackendConfig.to_json``); the compiler reads other spellings, too."""
_WORD = re.compile(r"[A-Za-z0-9_]{1,80}")


def read(text: str) -> tuple[bytes, dict[str, Any]]:
    """The serialised Mosaic module of a call, and its configuration without it.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for anything but the one spelling that the locked jax writes: an unknown or repeated
            key, a value that is neither a number, a truth value nor a plain word.
    """
    try:
        config = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
        call = config["custom_call_config"]
        body = base64.b64decode(call["body"], validate=True)
    except (KeyError, TypeError, ValueError, RecursionError, binascii.Error) as error:
        raise _refusal(f"it cannot be read ({type(error).__name__}: {str(error)[:80]!r})") from None
    unknown = [key for known, part in ((_AROUND, config), (_CALL, call)) for key in part if key not in known]
    if unknown:
        raise _refusal(f"it has the key {unknown[0][:80]!r}, which is not known")
    rest = {**config, "custom_call_config": {key: value for key, value in call.items() if key != "body"}}
    _check(rest)
    return body, rest


def write(body: bytes, config: Mapping[str, Any]) -> str:
    """The text of a ``backend_config``: ``config`` of :func:`read` with ``body`` in it."""
    call = {"body": base64.b64encode(body).decode(), **config["custom_call_config"]}
    return json.dumps({**config, "custom_call_config": call})


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is repeated")
    return fields


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _check(value: object) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _check(key)
            _check(inner)
    elif isinstance(value, list):
        for inner in value:
            _check(inner)
    elif isinstance(value, str) and not _WORD.fullmatch(value):
        raise _refusal(f"it holds the text {value[:80]!r}, wanted a plain word")


def _refusal(what: str) -> Refusal:
    return Refusal(
        Status.CANNOT_VERIFY, f"the configuration of a tpu_custom_call: {what}; export it with the locked jax"
    )
