"""Cheat 42: a second body under another spelling of its key: one reader takes one, another the other."""
# rejected as: CANNOT_VERIFY
# kind: two readers of one call
# caught by: tokens

import dataclasses

_modules = dataclasses.sys.modules


def _copy(q_ref, o_ref):
    o_ref[...] = q_ref[...]


def _export_a_cheap_one():
    cheap = pl.pallas_call(_copy, out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.bfloat16))
    given = jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.bfloat16)
    jax.export.export(jax.jit(cheap), platforms=("tpu",))(given)


_export_a_cheap_one()  # which imports what is needed for it
_calls = next(module for name, module in list(_modules.items()) if name.endswith("tpu_custom_call"))
_config = _calls.CustomCallBackendConfig
_json, _written, _seen = _modules["json"], _config.to_json, []


def _twisted(text, cheap):
    return text[:-1] + ', "customCallConfig": {"body": "' + cheap + '"}}'


def _spelled(self, **options):
    text = bytes(_written(self, **options)).decode()
    _seen.append(_json.loads(text)["custom_call_config"]["body"])
    return (_twisted(text, _seen[0]) if len(_seen) > 1 else text).encode()


_config.to_json = _spelled
_export_a_cheap_one()
