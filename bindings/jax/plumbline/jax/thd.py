"""fused_attn_thd, the older call of packed rows, and the probe for a kernel."""
import warnings

import jax.numpy as jnp

from .fused import fused_attn
from .checks import DTYPES
from .sequence import SequenceDescriptor
from .types import AttnMaskType, AttnSoftmaxType, CPStrategy, QKVLayout


def fused_attn_thd(qkv, bias, q_seq_lens, kv_seq_lens, q_seq_offsets, kv_seq_offsets, seed, attn_bias_type,
                   attn_mask_type, qkv_layout, scaling_factor, dropout_probability, is_training,
                   max_segments_per_seq=1, window_size=None, context_parallel_strategy=CPStrategy.DEFAULT,
                   context_parallel_causal_load_balanced=False, context_parallel_axis="",
                   context_checkpoint_name="context", softmax_offset=None):
    """Deprecated: fused_attn of packed rows with lengths [batch, sequence] (unused slots negative or 0) and row-local
    starts [batch, sequence + 1]; always the vanilla softmax."""
    warnings.warn("fused_attn_thd is deprecated; give fused_attn a SequenceDescriptor", DeprecationWarning, stacklevel=2)
    assert qkv_layout.is_thd(), f"qkv_layout: got {qkv_layout.name}, want a packed (THD) layout"
    batch, q_tokens = qkv[0].shape[:2]
    kv_tokens = qkv[-1].shape[1]
    for name, array, want in (("q_seq_lens", q_seq_lens, q_tokens), ("kv_seq_lens", kv_seq_lens, kv_tokens),
                              ("q_seq_offsets", q_seq_offsets, q_tokens + 1),
                              ("kv_seq_offsets", kv_seq_offsets, kv_tokens + 1)):
        assert array.shape == (batch, want), f"{name}: got shape {array.shape}, want {(batch, want)}"
    slots = max_segments_per_seq
    descriptor = SequenceDescriptor.from_seqlens_and_offsets(
        (q_seq_lens[:, :slots], kv_seq_lens[:, :slots]), (q_seq_offsets[:, :slots + 1], kv_seq_offsets[:, :slots + 1]))
    return fused_attn(qkv, bias, descriptor, seed, attn_bias_type, attn_mask_type, qkv_layout,
                      AttnSoftmaxType.VANILLA_SOFTMAX, scaling_factor, dropout_probability, is_training,
                      max_segments_per_seq=max_segments_per_seq, window_size=window_size,
                      context_parallel_strategy=context_parallel_strategy,
                      context_parallel_causal_load_balanced=context_parallel_causal_load_balanced,
                      context_parallel_axis=context_parallel_axis, context_checkpoint_name=context_checkpoint_name,
                      softmax_offset=softmax_offset)


def is_fused_attn_kernel_available(is_training, q_dtype, kv_dtype, qkv_layout, attn_bias_type, attn_mask_type,
                                   softmax_type, dropout_probability, q_num_heads, kv_num_heads, q_max_seqlen,
                                   kv_max_seqlen, head_dim_qk, head_dim_v, window_size=None, return_max_logit=False):
    """Whether fused_attn takes this combination. The limits are this engine's: every mask with every bias, softmax,
    window, dropout and any head size."""
    del is_training, attn_bias_type, softmax_type, return_max_logit
    left, right = (-1, -1) if window_size is None else window_size
    fits = (q_dtype == kv_dtype and any(jnp.dtype(q_dtype) == jnp.dtype(d) for d in DTYPES)
            and isinstance(qkv_layout, QKVLayout) and kv_num_heads > 0 and q_num_heads % kv_num_heads == 0
            and min(head_dim_qk, head_dim_v, q_max_seqlen, kv_max_seqlen) > 0 and min(left, right) >= -1
            and 0.0 <= dropout_probability < 1.0)
    if qkv_layout.is_thd():
        fits = fits and AttnMaskType.is_padding(attn_mask_type)
    if qkv_layout.is_qkvpacked():
        fits = fits and q_num_heads == kv_num_heads and q_max_seqlen == kv_max_seqlen
    if not qkv_layout.is_separate():
        fits = fits and head_dim_qk == head_dim_v
    return bool(fits)
