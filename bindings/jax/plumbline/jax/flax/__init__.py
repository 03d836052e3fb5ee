"""Flax modules over fused attention: TransformerEngine's names."""
from .dot_product_attention import DotProductAttention
from .multi_head_attention import MultiHeadAttention
from .positions import RelativePositionBiases
from .rules import extend_logical_axis_rules
from .transformer_layer import TransformerLayer, TransformerLayerType
