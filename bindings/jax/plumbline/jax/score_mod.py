"""Attention whose scaled scores pass through a callback, computed by XLA.

`score_mod(graph, score, tensors)` gets the scores [batch, heads, q, kv] in float32 and returns them changed, of the
same shape, by any JAX code; `graph` is jax.numpy. Its gradient is JAX's, unless `score_mod_bprop(graph, d_score,
tensors)` gives it, in which `tensors` also has "score", the scores before the change.
"""
import jax
import jax.numpy as jnp
import numpy as np

from .types import QKVLayout


def check_score_mod(score_mod, companions, return_max_logit):
    """Whether there is a score_mod. ValueError for companions without it, and for max_logit with it."""
    given = [name for name, value in companions.items() if value is not None]
    if score_mod is None:
        if given:
            raise ValueError(f"{', '.join(given)}: got a value, want None without score_mod")
        return False
    if return_max_logit:
        raise ValueError("return_max_logit: got True, want False with score_mod")
    return True


def _tensors(name, tensors):
    """Arrays (not differentiated) and constants by name."""
    taken = {}
    for key, value in (tensors or {}).items():
        if not isinstance(key, str):
            raise ValueError(f"{name}: got the key {key!r}, want a string")
        if isinstance(value, (bool, int, float, np.generic)):
            taken[key] = value
        elif np.ndim(value) == 0:
            raise ValueError(f"{name}[{key!r}]: got an array without dimensions, want a number or an array of rank 1 or more")
        else:
            taken[key] = jax.lax.stop_gradient(value)
    return taken


def _modify(score, score_mod, score_mod_bprop, tensors, bprop_tensors):
    if score_mod_bprop is None:
        return score_mod(jnp, score, tensors)
    arrays = {k: v for k, v in tensors.items() if isinstance(v, jax.Array)}
    bprop_arrays = {k: v for k, v in bprop_tensors.items() if isinstance(v, jax.Array)}

    @jax.custom_vjp
    def modified(score, arrays, bprop_arrays):
        del bprop_arrays
        return score_mod(jnp, score, {**tensors, **arrays})

    def backward(saved, d_score):
        score, bprop_arrays = saved
        return score_mod_bprop(jnp, d_score, {**bprop_tensors, **bprop_arrays, "score": score}), None, None

    modified.defvjp(lambda score, arrays, bprop: (modified(score, arrays, bprop), (score, bprop)), backward)
    return modified(score, arrays, bprop_arrays)


def attention_with_score_mod(qkv, score_mod, companions, scaling_factor, qkv_layout, refused):
    """softmax(score_mod(scale * q k)) v of separate BSHD arrays of float16 or bfloat16 (or float32)."""
    given = [name for name, value in refused.items() if value is not None]
    if given:
        raise ValueError(f"{', '.join(given)}: got a value, want none with score_mod")
    if qkv_layout != QKVLayout.BSHD_BSHD_BSHD:
        raise ValueError(f"qkv_layout: got {qkv_layout.name}, want BSHD_BSHD_BSHD with score_mod")
    q, k, v = qkv
    group = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x.astype(jnp.float32), group, axis=2) for x in (k, v))
    score = scaling_factor * jnp.einsum("bihd,bjhd->bhij", q.astype(jnp.float32), k)
    tensors = _tensors("score_mod_tensors", companions["score_mod_tensors"])
    bprop_tensors = _tensors("score_mod_bprop_tensors", companions["score_mod_bprop_tensors"])
    score = _modify(score, score_mod, companions["score_mod_bprop"], tensors, bprop_tensors)
    out = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(score, axis=-1), v)
    return out.astype(q.dtype)
