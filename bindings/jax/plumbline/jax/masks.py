"""Helpers of programs that build reference masks."""
import jax.numpy as jnp

from .types import AttnMaskType

_NAMES = {
    "no_mask": AttnMaskType.NO_MASK, "padding": AttnMaskType.PADDING_MASK, "causal": AttnMaskType.CAUSAL_MASK,
    "padding_causal": AttnMaskType.PADDING_CAUSAL_MASK, "causal_padding": AttnMaskType.PADDING_CAUSAL_MASK,
    "causal_bottom_right": AttnMaskType.CAUSAL_BOTTOM_RIGHT_MASK,
    "bottom_right_causal": AttnMaskType.CAUSAL_BOTTOM_RIGHT_MASK,
    "padding_causal_bottom_right": AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK,
    "causal_padding_bottom_right": AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK,
    "bottom_right_causal_padding": AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK,
    "bottom_right_padding_causal": AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK,
}


def canonicalize_attn_mask_type(attn_mask_type):
    """The AttnMaskType of a name, in any of its spellings; ValueError otherwise."""
    if attn_mask_type not in _NAMES:
        raise ValueError(f"attn_mask_type: got {attn_mask_type!r}, want one of {', '.join(_NAMES)}")
    return _NAMES[attn_mask_type]


def _beyond_queries(ids_q, ids_kv):
    """For every query, how many keys its segment has more than queries."""
    of_segment = ids_q[..., :, None]
    keys = (of_segment == ids_kv[..., None, :]).sum(-1)
    return keys - (of_segment == ids_q[..., None, :]).sum(-1)


def make_swa_mask(segment_pos_q, segment_pos_kv, window_size=None, dtype=jnp.float32, segment_ids_q=None,
                  segment_ids_kv=None):
    """A window as a mask [batch, 1, q, kv], 1 = inside: keys from position - left to position + right of a query, a
    negative number being no limit. Given segment ids the window is aligned at the bottom right of each segment, and
    `right` does not count: causality bounds it there."""
    left, right = (-1, -1) if window_size is None else window_size
    center, keys = segment_pos_q[..., :, None], segment_pos_kv[..., None, :]
    if segment_ids_q is not None and segment_ids_kv is not None:
        center, right = center + _beyond_queries(segment_ids_q, segment_ids_kv)[..., None], -1
    inside = jnp.ones(jnp.broadcast_shapes(center.shape, keys.shape), bool)
    if left >= 0:
        inside &= keys >= center - left
    if right >= 0:
        inside &= keys <= center + right
    return jnp.expand_dims(inside, -3).astype(dtype)
