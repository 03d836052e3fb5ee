"""TransformerLayer: self attention, cross attention in decoders, and an MLP, each with its norm and residual."""
import enum
from typing import Any, Callable, Optional, Sequence, Tuple

import jax.numpy as jnp
from flax import linen as nn

from .multi_head_attention import MultiHeadAttention
from .parts import Norm, activate


class TransformerLayerType(enum.Enum):
    """DECODER has attention over `encoded` after its self attention."""
    ENCODER = "encoder"
    DECODER = "decoder"


class TransformerLayer(nn.Module):
    """A layer over inputs [batch, sequence, hidden]. With return_max_logit the result is (out, max_logit) of the self
    attention, and (out, max_logit, max_logit of the cross attention) in a decoder."""
    hidden_size: int = 512
    mlp_hidden_size: int = 2048
    num_attention_heads: int = 8
    num_gqa_groups: Optional[int] = None
    layernorm_type: str = "layernorm"
    layernorm_epsilon: float = 1e-6
    zero_centered_gamma: bool = False
    hidden_dropout: float = 0.1
    hidden_dropout_dims: Sequence[int] = ()
    attention_dropout: float = 0.1
    intermediate_dropout: float = 0.1
    intermediate_dropout_dims: Sequence[int] = ()
    dropout_rng_name: str = "dropout"
    mha_kernel_init: Optional[Callable] = None
    mlp_kernel_init: Optional[Callable] = None
    mlp_activations: Sequence[str] = ("gelu",)
    use_bias: bool = False
    bias_init: Callable = nn.initializers.zeros
    apply_residual_connection_post_layernorm: bool = False
    output_layernorm: bool = False
    float32_attention_logits: bool = False
    layer_type: TransformerLayerType = TransformerLayerType.ENCODER
    self_attn_mask_type: str = "causal"
    self_attn_bias_type: Optional[str] = None
    enable_rotary_pos_emb: bool = False
    rotary_pos_emb_windows: Tuple[int, int] = (1, 10000)
    rotary_pos_emb_group_method: str = "consecutive"
    fuse_qkv_params: bool = True
    transpose_batch_sequence: bool = False
    scale_attn_logits: bool = False
    scaled_query_init: bool = True
    window_size: Optional[Tuple[int, int]] = None
    softmax_type: str = "vanilla"
    dtype: Any = jnp.float32
    return_max_logit: bool = False

    def _attention(self, name, mask_type, bias_type, rotary):
        return MultiHeadAttention(
            head_dim=self.hidden_size // self.num_attention_heads, num_attention_heads=self.num_attention_heads,
            num_gqa_groups=self.num_gqa_groups, attention_dropout=self.attention_dropout,
            dropout_rng_name=self.dropout_rng_name, layernorm_type=self.layernorm_type,
            layernorm_epsilon=self.layernorm_epsilon, zero_centered_gamma=self.zero_centered_gamma,
            return_layernorm_output=self.apply_residual_connection_post_layernorm, kernel_init=self.mha_kernel_init,
            use_bias=self.use_bias, bias_init=self.bias_init, attn_mask_type=mask_type, attn_bias_type=bias_type,
            enable_rotary_pos_emb=rotary, rotary_pos_emb_windows=self.rotary_pos_emb_windows,
            rotary_pos_emb_group_method=self.rotary_pos_emb_group_method, fuse_qkv_params=self.fuse_qkv_params,
            transpose_batch_sequence=self.transpose_batch_sequence, scale_attn_logits=self.scale_attn_logits,
            scaled_query_init=self.scaled_query_init, float32_logits=self.float32_attention_logits,
            window_size=self.window_size, softmax_type=self.softmax_type, dtype=self.dtype,
            return_max_logit=self.return_max_logit, name=name)

    def _add(self, x, inputs, normed, deterministic):
        x = nn.Dropout(self.hidden_dropout, broadcast_dims=tuple(self.hidden_dropout_dims),
                       rng_collection=self.dropout_rng_name)(x, deterministic=deterministic)
        return x + (normed if self.apply_residual_connection_post_layernorm else inputs)

    def _mlp(self, x, deterministic):
        init = self.mlp_kernel_init or nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
        normed = Norm(self.layernorm_type, self.layernorm_epsilon, self.zero_centered_gamma, name="mlp_layernorm")(x)
        y = nn.DenseGeneral((len(self.mlp_activations), self.mlp_hidden_size), use_bias=self.use_bias, kernel_init=init,
                            bias_init=self.bias_init, dtype=self.dtype, name="mlp_in")(normed)
        y = activate(y, self.mlp_activations)
        y = nn.Dropout(self.intermediate_dropout, broadcast_dims=tuple(self.intermediate_dropout_dims),
                       rng_collection=self.dropout_rng_name)(y, deterministic=deterministic)
        y = nn.Dense(self.hidden_size, use_bias=self.use_bias, kernel_init=init, bias_init=self.bias_init,
                     dtype=self.dtype, name="mlp_out")(y)
        return self._add(y, x, normed, deterministic)

    @nn.compact
    def __call__(self, inputs, encoded=None, attention_mask=None, encoder_decoder_mask=None, deterministic=False,
                 decode=False, attn_bias=None):
        maxima = []

        def attend(name, x, over, mask, mask_type, bias_type, bias, rotary):
            out, normed, *max_logit = self._attention(name, mask_type, bias_type, rotary)(
                x, over, mask, bias, decode=decode, deterministic=deterministic)
            maxima.extend(max_logit)
            return self._add(out, x, normed, deterministic)

        x = attend("attention", inputs, None, attention_mask, self.self_attn_mask_type, self.self_attn_bias_type,
                   attn_bias, self.enable_rotary_pos_emb)
        if self.layer_type == TransformerLayerType.DECODER:
            assert encoded is not None, "encoded: got None, want an array (decoder layer)"
            x = attend("encoder_decoder_attention", x, encoded, encoder_decoder_mask,
                       "padding" if encoder_decoder_mask is not None else "no_mask", None, None, False)
        x = self._mlp(x, deterministic)
        if self.output_layernorm:
            x = Norm(self.layernorm_type, self.layernorm_epsilon, self.zero_centered_gamma, name="output_layernorm")(x)
        return (x, *maxima) if self.return_max_logit else x
