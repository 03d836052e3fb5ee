"""Fused attention for JAX on CPUs, with the maximum logit of every head: TransformerEngine's API."""
from .fused import fused_attn
from .context_parallel import inverse_reorder_causal_load_balancing, reorder_causal_load_balancing
from .masks import canonicalize_attn_mask_type, make_swa_mask
from .qk_clip import qk_clip_gamma, qk_clip_gqa, qk_clip_mha, qk_clip_mla
from .sequence import SequenceDescriptor
from .sharding import MeshResource, autocast, fp8_autocast, global_mesh_resource, global_shard_guard
from .thd import fused_attn_thd, is_fused_attn_kernel_available
from .types import AttnBiasType, AttnMaskType, AttnSoftmaxType, CPStrategy, QKVFormat, QKVLayout, ReorderStrategy
