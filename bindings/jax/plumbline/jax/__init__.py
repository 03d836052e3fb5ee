"""Fused attention for JAX on CPUs, with the maximum logit of every head: TransformerEngine's API."""
from .attention import fused_attn
from .context_parallel import inverse_reorder_causal_load_balancing, reorder_causal_load_balancing
from .sequence import SequenceDescriptor
from .sharding import MeshResource, global_mesh_resource, global_shard_guard
from .types import AttnBiasType, AttnMaskType, AttnSoftmaxType, CPStrategy, QKVFormat, QKVLayout, ReorderStrategy
