"""MultiHeadAttention: norm, projections, rotary embedding, DotProductAttention, output projection."""
import warnings
from typing import Any, Callable, Optional, Tuple

import jax.numpy as jnp
from flax import linen as nn

from ..checks import unpack
from ..masks import canonicalize_attn_mask_type
from ..sharding import (BATCH_AXES, HEAD_AXES, HIDDEN_AXES, HIDDEN_TP_AXES, JOINED_AXES, SEQLEN_AXES, SEQLEN_TP_AXES,
                        W_FSDP_AXES, W_JOINED_AXES, W_TP_AXES, with_sharding_constraint_by_logical_axes)
from .cache import KeyValueCache
from .dot_product_attention import DotProductAttention
from .fields import shared_fields
from .names import qkv_layout
from .positions import rotary
from .projection import NormOptions, Projection, adapter_of, stacked


def leading_axes(module, tensor_parallel=False):
    """Names of the two leading dimensions of the module's activations."""
    axes = (BATCH_AXES, SEQLEN_TP_AXES if tensor_parallel else SEQLEN_AXES)
    return axes[::-1] if module.transpose_batch_sequence else axes


class MultiHeadAttention(nn.Module):
    """Attention of inputs_q over inputs_kv [sequence, batch, hidden], or [batch, sequence, hidden] without
    transpose_batch_sequence. Returns (out, normed inputs or None), and with return_max_logit the maxima [heads] as a
    third. `mask` is a boolean mask, True = masked, or a SequenceDescriptor.

    With decode=True keys and values of earlier calls are seen too: the collection "cache", as long as the inputs the
    module was initialized with, must be mutable. `mask` then hides keys of the cache: None or [batch, 1, 1, length].
    """
    head_dim: int
    num_attention_heads: int
    num_gqa_groups: Optional[int] = None
    attention_dropout: float = 0.0
    dropout_rng_name: str = "dropout"
    input_layernorm: bool = True
    layernorm_type: str = "layernorm"
    layernorm_epsilon: float = 1e-6
    return_layernorm_output: bool = False
    zero_centered_gamma: bool = False
    kernel_init: Optional[Callable] = None
    use_bias: bool = False
    bias_init: Callable = nn.initializers.zeros
    attn_mask_type: str = "causal"
    attn_bias_type: Optional[str] = None
    enable_rotary_pos_emb: bool = False
    rotary_pos_emb_windows: Tuple[int, int] = (1, 10000)
    rotary_pos_emb_group_method: str = "consecutive"
    low_rank_adaptation_scope: str = "none"
    low_rank_adaptation_dim: int = 32
    low_rank_adaptation_alpha: Optional[float] = None
    dtype: Any = jnp.float32
    fuse_qkv_params: bool = True
    transpose_batch_sequence: bool = True
    enable_sequence_parallel: bool = False
    scale_attn_logits: bool = False
    scaled_query_init: bool = True
    float32_logits: bool = False
    window_size: Optional[Tuple[int, int]] = None
    softmax_type: str = "vanilla"
    return_max_logit: bool = False
    # Deprecated: the first two stand for num_attention_heads and attention_dropout, the last two have no effect.
    num_heads: Optional[int] = None
    dropout_rate: Optional[float] = None
    output_layernorm: Optional[bool] = None
    apply_residual_connection_post_layernorm: Optional[bool] = None
    fuse_qkv: Optional[bool] = None

    def __post_init__(self):
        assert self.output_layernorm is None, "output_layernorm is gone; use input_layernorm"
        for old, instead, same in (("num_heads", "num_attention_heads", True), ("dropout_rate", "attention_dropout", True),
                                   ("apply_residual_connection_post_layernorm", "return_layernorm_output", False),
                                   ("fuse_qkv", "fuse_qkv_params", False)):
            if getattr(self, old) is not None:
                warnings.warn(f"{old} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)
                if same:
                    setattr(self, instead, getattr(self, old))
        super().__post_init__()

    def _groups(self):
        return self.num_gqa_groups or self.num_attention_heads

    def _init(self):
        return self.kernel_init or nn.initializers.variance_scaling(1.0, "fan_in", "normal")

    def _query_init(self, key, shape, dtype):
        kernel = self._init()(key, shape, dtype)
        return kernel * self.head_dim ** -0.5 if self.scaled_query_init else kernel

    def _projection(self, name, features, init, norm=None):
        axes = (W_FSDP_AXES, *(W_JOINED_AXES,) * (len(features) - 1), W_TP_AXES)
        return Projection(features, init, axes, self.use_bias, self.bias_init, norm, adapter_of(self, "qkv_proj"),
                          self.dtype, name=name)

    def _project(self, inputs_q, inputs_kv):
        """Arrays, their layout, and the inputs after the norm. inputs_kv None: those."""
        init, heads, groups = self._init(), self.num_attention_heads * self.head_dim, self._groups() * self.head_dim
        norm = None
        if self.input_layernorm:
            norm = NormOptions(self.layernorm_type, self.layernorm_epsilon, self.zero_centered_gamma)
        if self.fuse_qkv_params and inputs_kv is None and heads == groups:
            qkv, normed = self._projection("qkv", (3, heads), stacked(self._query_init, init, init), norm)(inputs_q)
            return (qkv,), "bs3hd", normed
        query, normed = self._projection("query", (heads,), self._query_init, norm)(inputs_q)
        source = normed if inputs_kv is None else inputs_kv
        if self.fuse_qkv_params:
            kv, _ = self._projection("kv", (2, groups), stacked(init, init))(source)
            return (query, kv), "bshd_bs2hd", normed
        key, value = (self._projection(name, (groups,), init)(source)[0] for name in ("key", "value"))
        return (query, key, value), "bshd_bshd_bshd", normed

    def _constrained(self, x):
        names = leading_axes(self) + (JOINED_AXES,) * (x.ndim - 4) + (HEAD_AXES, HIDDEN_AXES)
        return with_sharding_constraint_by_logical_axes(x, names)

    def _attend(self, qkv, layout, mask, bias, mask_type, deterministic):
        qkv = tuple(self._constrained(x) for x in qkv) + (None,) * (3 - len(qkv))
        attention = DotProductAttention(**shared_fields(
            self, DotProductAttention, dtype=None, attn_mask_type=mask_type, qkv_layout=layout,
            scale_factor=self.head_dim ** -0.5 if self.scale_attn_logits else 1.0), name="attention")
        out = attention(*qkv, mask, bias, deterministic=deterministic)
        return out if self.return_max_logit else (out, None)

    def _decode(self, q, k, v, mask, bias, deterministic):
        """Attention over the cache, to which the new keys and values are appended."""
        axis = 0 if self.transpose_batch_sequence else 1
        cache = KeyValueCache(self, k, v, axis)
        q, k = self._turned(q, k, cache.first)
        if cache.made:
            return self._attend((q, k, v), "bshd_bshd_bshd", mask, bias, self.attn_mask_type, deterministic)
        k, v = cache.append(k, v)
        causal = canonicalize_attn_mask_type(self.attn_mask_type).is_causal()
        out, max_logit = self._attend((q, k, v), "bshd_bshd_bshd", cache.descriptor(mask, q.shape[1 - axis]), cache.bias(bias),
                                      "padding_causal" if causal else "padding", deterministic)
        return cache.checked(out), max_logit

    def _turned(self, q, k, first=0):
        if not self.enable_rotary_pos_emb:
            return q, k
        axis = 0 if self.transpose_batch_sequence else 1
        return tuple(rotary(x, self.rotary_pos_emb_windows, self.rotary_pos_emb_group_method, axis, first) for x in (q, k))

    @nn.compact
    def __call__(self, inputs_q, inputs_kv=None, mask=None, bias=None, *, decode=False, deterministic=False):
        own = inputs_kv is None or inputs_kv is inputs_q
        assert own or inputs_q.dtype == inputs_kv.dtype, f"dtype of inputs_kv: got {inputs_kv.dtype}, want {inputs_q.dtype}"
        inputs_q = with_sharding_constraint_by_logical_axes(
            inputs_q, leading_axes(self, self.enable_sequence_parallel) + (HIDDEN_AXES,))
        qkv, layout, normed = self._project(inputs_q, None if own else inputs_kv)
        qkv = tuple(x.reshape(x.shape[:-1] + (-1, self.head_dim)) for x in qkv)
        if decode or self.enable_rotary_pos_emb:
            qkv, layout = unpack(qkv, qkv_layout(layout)), "bshd_bshd_bshd"
        if decode:
            out, max_logit = self._decode(*qkv, mask, bias, deterministic)
        else:
            if self.enable_rotary_pos_emb:
                qkv = self._turned(*qkv[:2]) + qkv[2:]
            out, max_logit = self._attend(qkv, layout, mask, bias, self.attn_mask_type, deterministic)
        out = with_sharding_constraint_by_logical_axes(out.reshape(out.shape[:2] + (-1,)), leading_axes(self) + (HIDDEN_TP_AXES,))
        out, _ = Projection(inputs_q.shape[-1:], self._init(), (W_TP_AXES, W_FSDP_AXES), self.use_bias, self.bias_init, None,
                            adapter_of(self, "output_proj"), self.dtype, name="out")(out)
        extra = normed if self.return_layernorm_output else None
        return (out, extra, max_logit) if self.return_max_logit else (out, extra)
