"""What fused_attn refuses before anything is computed."""
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .types import AttnBiasType, AttnSoftmaxType, QKVLayout

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)


class Sizes(NamedTuple):
    batch: int
    q_tokens: int
    kv_tokens: int
    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int


def unpack(qkv, layout):
    """q, k and v as arrays of their own."""
    if layout.is_qkvpacked():
        return tuple(qkv[0][..., member, :, :] for member in range(3))
    if layout.is_kvpacked():
        return (qkv[0],) + tuple(qkv[1][..., member, :, :] for member in range(2))
    return tuple(qkv)


def _check_ranks(qkv, layout):
    packed = 4 - layout.arrays()
    for n, x in enumerate(qkv):
        members = packed if n == len(qkv) - 1 and packed > 1 else 0
        want = 5 if members else 4
        assert x.ndim == want, f"qkv[{n}]: got shape {x.shape}, want {want} dimensions ({layout.name})"
        assert not members or x.shape[2] == members, f"qkv[{n}]: got shape {x.shape}, want axis 2 of {members}"


def check_call(qkv, bias, attn_bias_type, layout):
    """The sizes of a call whose arrays fit together."""
    if not isinstance(layout, QKVLayout):
        raise ValueError(f"qkv_layout: got {layout!r}, want a QKVLayout")
    assert len(qkv) == layout.arrays(), f"qkv: got {len(qkv)} arrays, want {layout.arrays()} ({layout.name})"
    _check_ranks(qkv, layout)
    packed = 4 - layout.arrays()
    q, k, v = qkv[0], qkv[min(1, len(qkv) - 1)], qkv[-1]
    for x in qkv[1:]:
        assert x.dtype == q.dtype, f"dtype of k and v: got {x.dtype}, want {q.dtype} as q"
        assert x.shape[0] == q.shape[0], f"batch of k and v: got {x.shape[0]}, want {q.shape[0]} as q"
    assert k.shape[1] == v.shape[1], f"sequence of v: got {v.shape[1]}, want {k.shape[1]} as k"
    assert k.shape[-2] == v.shape[-2], f"heads of v: got {v.shape[-2]}, want {k.shape[-2]} as k"
    assert q.shape[-1] == k.shape[-1], f"head size of k: got {k.shape[-1]}, want {q.shape[-1]} as q"
    assert packed == 3 or q.shape[-2] % k.shape[-2] == 0, f"heads of q: got {q.shape[-2]}, want a multiple of {k.shape[-2]}"
    if q.dtype not in DTYPES:
        raise ValueError(f"unsupported backend: dtype {q.dtype}, want float32, bfloat16 or float16")
    sizes = Sizes(q.shape[0], q.shape[1], k.shape[1], q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1])
    _check_bias(bias, attn_bias_type, q.dtype, sizes)
    return sizes


def _check_bias(bias, attn_bias_type, dtype, sizes):
    if attn_bias_type == AttnBiasType.NO_BIAS:
        assert bias is None, "bias: got one, want None (NO_BIAS)"
        return
    assert bias is not None, f"bias: got None, want an array ({attn_bias_type.name})"
    assert bias.dtype == dtype, f"dtype of bias: got {bias.dtype}, want {dtype} as q"
    fits = (bias.ndim == 4 and bias.shape[0] in (1, sizes.batch) and bias.shape[1] in (1, sizes.heads)
            and bias.shape[2:] == (sizes.q_tokens, sizes.kv_tokens))
    assert fits, (f"bias: got shape {bias.shape}, want [1 or {sizes.batch}, 1 or {sizes.heads}, {sizes.q_tokens}, "
                  f"{sizes.kv_tokens}]")


def resolve_softmax_offset(offset, softmax_type, heads):
    """Sink logits [1, heads, 1, 1]; zeros where the softmax is off by one, empty for the vanilla one."""
    if softmax_type == AttnSoftmaxType.LEARNABLE_SOFTMAX:
        assert offset is not None, "softmax_offset: got None, want float32 [1, heads, 1, 1] (LEARNABLE_SOFTMAX)"
    elif offset is None:
        shape = (0,) if softmax_type == AttnSoftmaxType.VANILLA_SOFTMAX else (1, heads, 1, 1)
        return jnp.zeros(shape, jnp.float32)
    assert offset.dtype == jnp.float32, f"dtype of softmax_offset: got {offset.dtype}, want float32"
    want = (0,) if softmax_type == AttnSoftmaxType.VANILLA_SOFTMAX else (1, heads, 1, 1)
    assert offset.shape == want, f"softmax_offset: got shape {offset.shape}, want {want} ({softmax_type.name})"
    return offset


def check_seed(seed, dropout):
    """uint32 [2], or None where nothing is dropped."""
    if dropout == 0.0:
        return None
    assert seed is not None, f"seed: got None, want two words for dropout {dropout}"
    seed = jnp.asarray(seed)
    if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    if seed.dtype != jnp.uint32:
        warnings.warn(f"fused_attn: seed is {seed.dtype}, want uint32; it is cast", UserWarning, stacklevel=3)
        seed = seed.astype(jnp.uint32)
    assert seed.size >= 2, f"seed: got {seed.size} words, want at least 2"
    return seed.reshape(-1)[:2]
