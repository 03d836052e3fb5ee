"""DotProductAttention: fused_attn with its parameters, random numbers and strings."""
import os
import warnings
from typing import Any, Callable, Optional, Tuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from ..fused import fused_attn
from ..checks import unpack
from ..masks import canonicalize_attn_mask_type
from ..sequence import SequenceDescriptor
from ..thd import is_fused_attn_kernel_available
from ..types import AttnSoftmaxType, QKVLayout
from . import names
from .unfused import unfused_attention


class DotProductAttention(nn.Module):
    """Attention of query, key, value [batch, sequence, heads, dim] (or packed as qkv_layout says: the packed array is
    `query`, or query and `key`). With return_max_logit the result is (out, max_logit).

    NVTE_FUSED_ATTN=0 in the environment computes by XLA alone, with a warning; what only the kernel can do is then a
    ValueError.
    """
    head_dim: int
    num_attention_heads: int
    num_gqa_groups: Optional[int] = None
    attention_dropout: float = 0.0
    attn_mask_type: str = "causal"
    attn_bias_type: Optional[str] = None
    dtype: Any = None
    dropout_rng_name: str = "dropout"
    float32_logits: bool = False
    qkv_layout: str = "bshd_bshd_bshd"
    scale_factor: Optional[float] = None
    transpose_batch_sequence: Optional[bool] = None
    window_size: Optional[Tuple[int, int]] = None
    max_segments_per_seq: Optional[int] = 1
    context_parallel_causal_load_balanced: bool = False
    context_parallel_axis: str = ""
    context_parallel_strategy: str = "DEFAULT"
    context_checkpoint_name: str = "context"
    softmax_type: str = "vanilla"
    stripe_size: Optional[int] = None
    score_mod: Optional[Callable] = None
    score_mod_bprop: Optional[Callable] = None
    return_max_logit: bool = False

    def _transposes(self):
        if self.transpose_batch_sequence is None:
            warnings.warn("transpose_batch_sequence is not given; it is taken as False", UserWarning, stacklevel=3)
        return bool(self.transpose_batch_sequence)

    def _check_inputs(self, query, sequence_descriptor, mask):
        if self.dtype is not None:
            if jnp.dtype(self.dtype) != query.dtype:
                raise ValueError(f"dtype: got {jnp.dtype(self.dtype)}, want {query.dtype} as query")
            warnings.warn("dtype is deprecated: it is that of the inputs", DeprecationWarning, stacklevel=3)
        if mask is None:
            return sequence_descriptor
        if sequence_descriptor is not None:
            raise ValueError("mask: got one, want None beside a sequence_descriptor")
        warnings.warn("mask is deprecated; give a sequence_descriptor", DeprecationWarning, stacklevel=3)
        return mask

    def _offset(self, kind):
        shape = (1, self.num_attention_heads, 1, 1)
        if kind == AttnSoftmaxType.LEARNABLE_SOFTMAX:
            return self.param("softmax_offset", nn.with_logical_partitioning(nn.initializers.zeros, (None, "heads", None, None)),
                              shape, jnp.float32)
        return jnp.zeros(shape, jnp.float32) if kind == AttnSoftmaxType.OFF_BY_ONE_SOFTMAX else None

    def _fused(self, qkv, layout, bias_type, mask_type, kind):
        """Whether the kernel is to compute; raises where nothing else could."""
        q, k, v = (jax.eval_shape(lambda *x: unpack(x, layout), *qkv))
        asked = os.environ.get("NVTE_FUSED_ATTN", "1") != "0"
        there = is_fused_attn_kernel_available(
            True, q.dtype, k.dtype, layout, bias_type, mask_type, kind, self.attention_dropout, q.shape[2], k.shape[2],
            q.shape[1], k.shape[1], q.shape[3], v.shape[3], self.window_size, self.return_max_logit)
        if asked and there:
            return True
        why = "NVTE_FUSED_ATTN=0" if not asked else "no kernel takes this combination"
        for name in ("score_mod", "return_max_logit"):
            if getattr(self, name):
                raise ValueError(f"{name}: want fused attention ({why})")
        warnings.warn(f"DotProductAttention: {why}; XLA computes it", UserWarning, stacklevel=3)
        return False

    @nn.compact
    def __call__(self, query, key=None, value=None, sequence_descriptor=None, bias=None, *, deterministic=False, mask=None,
                 score_mod_tensors=None, score_mod_bprop_tensors=None):
        layout = names.qkv_layout(self.qkv_layout)
        qkv = tuple(x for x in (query, key, value)[:layout.arrays()])
        transposes = self._transposes()
        if transposes:
            qkv = tuple(jnp.swapaxes(x, 0, 1) for x in qkv)
        sequence_descriptor = self._check_inputs(query, sequence_descriptor, mask)
        bias_type, mask_type = names.bias_type(self.attn_bias_type, bias), canonicalize_attn_mask_type(self.attn_mask_type)
        bias = bias if bias is None else bias.astype(query.dtype)
        kind = AttnSoftmaxType.from_str(self.softmax_type)
        strategy = names.cp_strategy(self.context_parallel_strategy)
        scale = self.scale_factor if self.scale_factor is not None else qkv[0].shape[-1] ** -0.5
        drops = not deterministic and self.attention_dropout > 0.0
        dropout_key = self.make_rng(self.dropout_rng_name) if drops else None
        offset = self._offset(kind)
        if self._fused(qkv, layout, bias_type, mask_type, kind):
            if self.score_mod is not None:
                qkv, layout = unpack(qkv, layout), QKVLayout.BSHD_BSHD_BSHD
            seed = None if dropout_key is None else jax.random.key_data(dropout_key).astype(jnp.uint32)
            out = fused_attn(qkv, bias, sequence_descriptor, seed, bias_type, mask_type, layout, kind, scale,
                             self.attention_dropout, not deterministic, self.max_segments_per_seq, self.window_size,
                             strategy, self.context_parallel_causal_load_balanced, self.context_parallel_axis,
                             self.context_checkpoint_name, offset, self.stripe_size, self.score_mod,
                             self.score_mod_bprop, score_mod_tensors, score_mod_bprop_tensors, self.return_max_logit)
        else:
            if isinstance(sequence_descriptor, SequenceDescriptor) or layout.is_thd():
                raise ValueError("sequence_descriptor: got a SequenceDescriptor, want None or a boolean mask without the kernel")
            out = unfused_attention(qkv, layout, bias, sequence_descriptor, offset, dropout_key, bias_type, mask_type, kind,
                                    scale, self.attention_dropout, self.window_size, self.float32_logits)
        out, max_logit = out if self.return_max_logit else (out, None)
        out = jnp.swapaxes(out, 0, 1) if transposes else out
        return (out, max_logit) if self.return_max_logit else out
