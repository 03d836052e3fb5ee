"""Positions: rotary embedding, and relative positions as a bias of attention."""
from typing import Any, Callable, Tuple

import jax.numpy as jnp
import numpy as np
from flax import linen as nn


def rotary(x, windows, method, seq_axis, first=0):
    """Rotary position embedding of x [.., heads, dim], whose first token has position `first`: pairs (2 i, 2 i + 1),
    "consecutive", or (i, i + dim / 2), "alternate"."""
    half = x.shape[-1] // 2
    low, high = windows
    time_scale = low * (high / low) ** (jnp.arange(half) / half)
    angle = (first + jnp.arange(x.shape[seq_axis]))[:, None] / time_scale
    shape = [1] * x.ndim
    shape[seq_axis], shape[-1] = x.shape[seq_axis], half
    sin, cos = jnp.sin(angle).reshape(shape), jnp.cos(angle).reshape(shape)
    y = x.astype(jnp.float32)
    if method == "alternate":
        a, b = y[..., :half], y[..., half:]
        y = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    elif method == "consecutive":
        a, b = y[..., ::2], y[..., 1::2]
        y = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)
    else:
        raise ValueError(f"rotary_pos_emb_group_method: got {method!r}, want 'consecutive' or 'alternate'")
    return y.astype(x.dtype)


def relative_bucket(distance, buckets, max_distance, bidirectional):
    """The bucket of a key `distance` after its query (Raffel et al. 2020, T5): half of the buckets for one distance
    each, the others for logarithmically growing ranges up to max_distance; with both directions, half for each."""
    back = -np.asarray(distance)
    bucket = np.zeros_like(back)
    if bidirectional:
        buckets //= 2
        bucket, back = np.where(back < 0, buckets, 0), np.abs(back)
    back = np.maximum(back, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(back, 1).astype(np.float32) / exact + np.finfo(np.float32).eps) / np.log(max_distance / exact)
    far = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int32), buckets - 1)
    return bucket + np.where(back < exact, back, far)


class RelativePositionBiases(nn.Module):
    """A bias [1, heads, q, kv] learned per head and bucket of relative positions."""
    num_buckets: int
    max_distance: int
    num_attention_heads: int
    embedding_init: Callable = nn.linear.default_embed_init
    embedding_axes: Tuple[str, ...] = ("heads", "relpos_buckets")
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, q_seqlen, k_seqlen, bidirectional=True):
        distance = np.arange(k_seqlen)[None] - np.arange(q_seqlen)[:, None]
        table = self.param("rel_embedding", nn.with_logical_partitioning(self.embedding_init, self.embedding_axes),
                           (self.num_attention_heads, self.num_buckets), self.dtype)
        return jnp.asarray(table, self.dtype)[:, relative_bucket(distance, self.num_buckets, self.max_distance, bidirectional)][None]
