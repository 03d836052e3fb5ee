"""MultiHeadAttention: norm, projections, rotary embedding, DotProductAttention, output projection."""
from typing import Any, Callable, Optional, Tuple

import jax.numpy as jnp
from flax import linen as nn

from .dot_product_attention import DotProductAttention
from .parts import Norm, rotary


class MultiHeadAttention(nn.Module):
    """Attention of inputs_q over inputs_kv [batch, sequence, hidden] ([sequence, batch, hidden] with
    transpose_batch_sequence). Returns (out, normed inputs or None), and with return_max_logit the maxima [heads] as a
    third. `mask` is a boolean mask, True = masked, or a SequenceDescriptor."""
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
    fuse_qkv_params: bool = True
    transpose_batch_sequence: bool = False
    scale_attn_logits: bool = False
    scaled_query_init: bool = True
    float32_logits: bool = False
    window_size: Optional[Tuple[int, int]] = None
    softmax_type: str = "vanilla"
    dtype: Any = jnp.float32
    return_max_logit: bool = False

    def _init(self):
        return self.kernel_init or nn.initializers.variance_scaling(1.0, "fan_in", "normal")

    def _project(self, name, x, heads, scale=1.0):
        init = self._init()
        scaled = (lambda *args: init(*args) * scale) if scale != 1.0 else init
        y = nn.DenseGeneral((heads, self.head_dim), use_bias=self.use_bias, kernel_init=scaled, bias_init=self.bias_init,
                            dtype=self.dtype, name=name)(x)
        return y

    def _qkv(self, inputs_q, inputs_kv):
        """Arrays and layout: packed where one projection gives all and nothing turns q and k."""
        heads, groups = self.num_attention_heads, self.num_gqa_groups or self.num_attention_heads
        scale = self.head_dim ** -0.5 if self.scaled_query_init and not self.scale_attn_logits else 1.0
        packs = self.fuse_qkv_params and inputs_q is inputs_kv and heads == groups and scale == 1.0
        if packs:
            qkv = nn.DenseGeneral((3, heads, self.head_dim), use_bias=self.use_bias, kernel_init=self._init(),
                                  bias_init=self.bias_init, dtype=self.dtype, name="qkv")(inputs_q)
            if not self.enable_rotary_pos_emb:
                return (qkv, None, None), "bs3hd"
            q, k, v = (qkv[..., n, :, :] for n in range(3))
        else:
            q = self._project("query", inputs_q, heads, scale)
            k, v = self._project("key", inputs_kv, groups), self._project("value", inputs_kv, groups)
        if self.enable_rotary_pos_emb:
            axis = 0 if self.transpose_batch_sequence else 1
            q, k = (rotary(x, self.rotary_pos_emb_windows, self.rotary_pos_emb_group_method, axis) for x in (q, k))
        return (q, k, v), "bshd_bshd_bshd"

    @nn.compact
    def __call__(self, inputs_q, inputs_kv=None, mask=None, bias=None, *, decode=False, deterministic=False):
        if decode:
            raise ValueError("decode: got True, want False: there is no cache here")
        own = inputs_kv is None or inputs_kv is inputs_q
        normed = inputs_q
        if self.input_layernorm:
            normed = Norm(self.layernorm_type, self.layernorm_epsilon, self.zero_centered_gamma, name="layernorm")(inputs_q)
        qkv, layout = self._qkv(normed, normed if own else inputs_kv)
        attention = DotProductAttention(
            head_dim=self.head_dim, num_attention_heads=self.num_attention_heads, num_gqa_groups=self.num_gqa_groups,
            attention_dropout=self.attention_dropout, attn_mask_type=self.attn_mask_type, attn_bias_type=self.attn_bias_type,
            dropout_rng_name=self.dropout_rng_name, float32_logits=self.float32_logits, qkv_layout=layout,
            scale_factor=self.head_dim ** -0.5 if self.scale_attn_logits or not self.scaled_query_init else 1.0,
            transpose_batch_sequence=self.transpose_batch_sequence, window_size=self.window_size,
            softmax_type=self.softmax_type, return_max_logit=self.return_max_logit, name="attention")
        out = attention(*qkv, mask, bias, deterministic=deterministic)
        out, max_logit = out if self.return_max_logit else (out, None)
        out = nn.DenseGeneral(inputs_q.shape[-1], axis=(-2, -1), use_bias=self.use_bias, kernel_init=self._init(),
                              bias_init=self.bias_init, dtype=self.dtype, name="out")(out)
        extra = normed if self.return_layernorm_output else None
        return (out, extra, max_logit) if self.return_max_logit else (out, extra)
