"""TransformerLayer: self attention, cross attention in decoders, and an MLP, each with its norm and residual."""
import enum
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

import jax.numpy as jnp
from flax import linen as nn

from ..sharding import HIDDEN_AXES, HIDDEN_TP_AXES, with_sharding_constraint_by_logical_axes
from .fields import shared_fields
from .mlp import Mlp
from .multi_head_attention import MultiHeadAttention, leading_axes
from .positions import RelativePositionBiases
from .projection import LayerNorm, NormOptions, adapter_of


class TransformerLayerType(enum.Enum):
    """DECODER has attention over `encoded` after its self attention."""
    ENCODER = "encoder"
    DECODER = "decoder"


class TransformerLayer(nn.Module):
    """A layer over inputs [batch, sequence, hidden]. With return_max_logit the result is (out, max_logit) of the self
    attention, and (out, max_logit, max_logit of the cross attention) in a decoder. A decoder takes decode=True, as
    MultiHeadAttention does; its relative positions then need max_decode_length, that of the cache."""
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
    mlp_activations: Sequence[str] = ("relu",)
    mlp_activation_params: Optional[Mapping[str, float]] = None
    use_bias: bool = False
    bias_init: Callable = nn.initializers.zeros
    apply_residual_connection_post_layernorm: bool = False
    output_layernorm: bool = False
    float32_attention_logits: bool = False
    layer_type: TransformerLayerType = TransformerLayerType.ENCODER
    self_attn_mask_type: str = "causal"
    self_attn_bias_type: Optional[str] = None
    enable_relative_embedding: bool = True
    relative_embedding: Optional[nn.Module] = None
    enable_rotary_pos_emb: bool = False
    rotary_pos_emb_windows: Tuple[int, int] = (1, 10000)
    rotary_pos_emb_group_method: str = "consecutive"
    low_rank_adaptation_scope: str = "none"
    low_rank_adaptation_dim: int = 32
    low_rank_adaptation_alpha: Optional[float] = None
    dtype: Any = jnp.float32
    drop_path: float = 0.0
    fuse_qkv_params: bool = True
    transpose_batch_sequence: bool = False
    enable_sequence_parallel: bool = False
    scale_attn_logits: bool = False
    scaled_query_init: bool = True
    window_size: Optional[Tuple[int, int]] = None
    softmax_type: str = "vanilla"
    return_max_logit: bool = False

    def _norm(self):
        return NormOptions(self.layernorm_type, self.layernorm_epsilon, self.zero_centered_gamma)

    def _constrained(self, x):
        return with_sharding_constraint_by_logical_axes(x, leading_axes(self, self.enable_sequence_parallel) + (HIDDEN_AXES,))

    def _attention(self, **fields):
        return MultiHeadAttention(**shared_fields(
            self, MultiHeadAttention, head_dim=self.hidden_size // self.num_attention_heads, kernel_init=self.mha_kernel_init,
            float32_logits=self.float32_attention_logits,
            return_layernorm_output=self.apply_residual_connection_post_layernorm,
            # The layer's own, which the attention's deprecated fields of these names are not.
            output_layernorm=None, apply_residual_connection_post_layernorm=None, **fields))

    def _add(self, x, inputs, normed, deterministic, path):
        """Dropout, where `path` that of the whole path for a batch row, and the residual."""
        x = nn.Dropout(self.hidden_dropout, broadcast_dims=tuple(self.hidden_dropout_dims),
                       rng_collection=self.dropout_rng_name)(self._constrained(x), deterministic=deterministic)
        if path and self.drop_path > 0.0:
            rows = 1 if self.transpose_batch_sequence else 0
            x = nn.Dropout(self.drop_path, broadcast_dims=tuple(d for d in range(x.ndim) if d != rows),
                           rng_collection=self.dropout_rng_name)(x, deterministic=deterministic)
        residual = normed if self.apply_residual_connection_post_layernorm else inputs
        return self._constrained(x + residual)

    def _bias(self, length, decode, max_decode_length):
        if not self.enable_relative_embedding:
            return None
        embedding = self.relative_embedding
        if embedding is None:
            embedding = RelativePositionBiases(
                num_buckets=32, max_distance=128, num_attention_heads=self.num_attention_heads, dtype=self.dtype,
                embedding_init=nn.initializers.variance_scaling(1.0, "fan_avg", "uniform"), name="relpos_bias")
        length = max_decode_length if decode and max_decode_length else length
        return embedding(length, length, self.layer_type == TransformerLayerType.ENCODER)

    def _mlp(self, x, deterministic):
        init = self.mlp_kernel_init or nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
        mlp = Mlp(self.mlp_hidden_size, self.mlp_activations, self.mlp_activation_params, self._norm(), init, self.use_bias,
                  self.bias_init, self.intermediate_dropout, self.intermediate_dropout_dims, self.dropout_rng_name,
                  adapter_of(self, "mlp"), leading_axes(self) + (HIDDEN_TP_AXES,), self.dtype, name="mlp")
        y, normed = mlp(x, deterministic)
        return self._add(y, x, normed, deterministic, path=True)

    @nn.compact
    def __call__(self, inputs, encoded=None, attention_mask=None, encoder_decoder_mask=None, deterministic=False,
                 decode=False, max_decode_length=None):
        decoder = self.layer_type == TransformerLayerType.DECODER
        assert self.hidden_size % self.num_attention_heads == 0, (
            f"hidden_size: got {self.hidden_size}, want a multiple of {self.num_attention_heads} heads")
        assert decoder or not decode, "decode: got True, want False (encoder layer)"
        assert encoded is not None or not decoder, "encoded: got None, want an array (decoder layer)"
        inputs = self._constrained(inputs)
        bias = self._bias(inputs.shape[0 if self.transpose_batch_sequence else 1], decode, max_decode_length)
        attention = self._attention(attn_mask_type=self.self_attn_mask_type, attn_bias_type=self.self_attn_bias_type,
                                    input_layernorm=not self.output_layernorm,
                                    name="self_attention" if decoder else "attention")
        out, normed, *maxima = attention(inputs, inputs, attention_mask, bias, decode=decode, deterministic=deterministic)
        normed = inputs if normed is None else normed
        x = self._add(out, inputs, normed, deterministic, path=True)
        if decoder:
            cross = self._attention(attn_mask_type="no_mask" if encoder_decoder_mask is None else "padding",
                                    attn_bias_type="no_bias", name="encoder_decoder_attention")
            out, normed, *more = cross(x, encoded, encoder_decoder_mask, deterministic=deterministic)
            maxima += more
            x = self._add(out, x, normed, deterministic, path=False)
        x = self._mlp(x, deterministic)
        if self.output_layernorm:
            x = LayerNorm(self._norm(), self.dtype, name="output_layernorm")(x)
        return (x, *maxima) if self.return_max_logit else x
