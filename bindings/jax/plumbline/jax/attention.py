"""The names of transformer_engine.jax.attention."""
from .context_parallel import inverse_reorder_causal_load_balancing, reorder_causal_load_balancing
from .fused import fused_attn
from .masks import canonicalize_attn_mask_type, make_swa_mask
from .sequence import SequenceDescriptor
from .thd import fused_attn_thd, is_fused_attn_kernel_available
from .types import AttnBiasType, AttnMaskType, AttnSoftmaxType, CPStrategy, QKVFormat, QKVLayout, ReorderStrategy
