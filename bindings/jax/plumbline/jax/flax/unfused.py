"""Attention by XLA alone, for where the kernel is switched off: BSHD, a boolean mask or none, no context parallelism."""
import jax
import jax.numpy as jnp

from ..checks import unpack
from ..types import AttnBiasType, AttnSoftmaxType


def unfused_attention(qkv, layout, bias, mask, offset, dropout_key, attn_bias_type, attn_mask_type, softmax_type, scale,
                      dropout, window, float32_logits):
    q, k, v = unpack(qkv, layout)
    group = q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, group, axis=2), jnp.repeat(v, group, axis=2)
    if float32_logits:
        q, k = q.astype(jnp.float32), k.astype(jnp.float32)
    x = jnp.einsum("bihd,bjhd->bhij", q, k)
    if attn_bias_type == AttnBiasType.PRE_SCALE_BIAS:
        x = x + bias
    x = x * scale
    if attn_bias_type == AttnBiasType.POST_SCALE_BIAS:
        x = x + bias
    x = x.astype(jnp.float32)
    rows = jnp.arange(x.shape[2])[:, None] + (x.shape[3] - x.shape[2] if attn_mask_type.is_bottom_right() else 0)
    keys = jnp.arange(x.shape[3])[None]
    left, right = window or (-1, -1)
    allowed = jnp.ones((1, 1) + x.shape[2:], bool)
    allowed &= (keys <= rows) | (not attn_mask_type.is_causal())
    allowed &= ((keys >= rows - left) | (left < 0)) & ((keys <= rows + right) | (right < 0))
    if attn_mask_type.is_padding() and mask is not None:
        allowed = allowed & ~mask.astype(bool)
    x = jnp.where(allowed, x, jnp.finfo(jnp.float32).min)
    if softmax_type != AttnSoftmaxType.VANILLA_SOFTMAX:
        sink = jnp.broadcast_to(offset.astype(jnp.float32), x.shape[:3] + (1,))
        p = jax.nn.softmax(jnp.concatenate([x, sink], axis=-1), axis=-1)[..., :-1]
    else:
        p = jax.nn.softmax(x, axis=-1)
    p = jnp.where(allowed, p, 0).astype(v.dtype)
    if dropout_key is not None:
        p = jnp.where(jax.random.bernoulli(dropout_key, 1 - dropout, p.shape), p / (1 - dropout), 0).astype(v.dtype)
    return jnp.einsum("bhij,bjhd->bihd", p, v)
