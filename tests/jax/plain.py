"""Attention as the definition says, in float64, by NumPy or, where a gradient is asked for, by jax.numpy."""
import numpy as np

from plumbline.jax import AttnBiasType, AttnMaskType, AttnSoftmaxType

PADDED = {AttnMaskType.PADDING_MASK, AttnMaskType.PADDING_CAUSAL_MASK, AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK}
BOTTOM_RIGHT = {AttnMaskType.CAUSAL_BOTTOM_RIGHT_MASK, AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK}


def allowed_pairs(mask, window, q_ids, kv_ids, q_pos, kv_pos):
    """[B, Sq, Skv] bool, pair by pair; ids and positions [B, S]."""
    if mask not in PADDED:
        q_ids, kv_ids = np.ones_like(q_ids), np.ones_like(kv_ids)
        q_pos = np.broadcast_to(np.arange(q_ids.shape[1]), q_ids.shape)
        kv_pos = np.broadcast_to(np.arange(kv_ids.shape[1]), kv_ids.shape)
    left, right = window
    allowed = np.zeros((q_ids.shape[0], q_ids.shape[1], kv_ids.shape[1]), bool)
    for b, i in np.ndindex(*q_ids.shape):
        segment = q_ids[b, i]
        if segment == 0:
            continue
        center = q_pos[b, i]
        if mask in BOTTOM_RIGHT:
            center = center + (kv_ids[b] == segment).sum() - (q_ids[b] == segment).sum()
        row = kv_ids[b] == segment
        if mask not in (AttnMaskType.NO_MASK, AttnMaskType.PADDING_MASK):
            row &= kv_pos[b] <= center
        if left >= 0:
            row &= kv_pos[b] >= center - left
        if right >= 0:
            row &= kv_pos[b] <= center + right
        allowed[b, i] = row
    return allowed


def attention(xp, q, k, v, bias, sink, allowed, scale, bias_type=AttnBiasType.NO_BIAS,
              softmax=AttnSoftmaxType.VANILLA_SOFTMAX):
    """out [B, Sq, H, Dv] and max_logit [H]; q, k, v [B, S, H, D], sink [H]."""
    group = q.shape[2] // k.shape[2]
    x = xp.einsum("bihd,bjhd->bhij", q, xp.repeat(k, group, axis=2))
    if bias_type == AttnBiasType.PRE_SCALE_BIAS:
        x = (x + bias) * scale
    elif bias_type == AttnBiasType.POST_SCALE_BIAS:
        x = x * scale + bias
    else:
        x = x * scale
    x = xp.where(allowed[:, None], x, -xp.inf)
    max_logit = x.max(axis=(0, 2, 3)) if x.size else xp.full(q.shape[2], -xp.inf)
    top = xp.maximum(x.max(axis=3, keepdims=True), -1e30)
    if softmax == AttnSoftmaxType.OFF_BY_ONE_SOFTMAX:
        sink = xp.zeros(q.shape[2])
    extra = 0.0
    if softmax != AttnSoftmaxType.VANILLA_SOFTMAX:
        top = xp.maximum(top, sink[None, :, None, None])
        extra = xp.exp(sink[None, :, None, None] - top)
    p = xp.exp(xp.where(allowed[:, None], x, -1e30) - top) * allowed[:, None]
    total = p.sum(axis=3, keepdims=True) + extra
    p = p / xp.where(total == 0, 1, total)
    return xp.einsum("bhij,bjhd->bihd", p, xp.repeat(v, group, axis=2)), max_logit
