"""What fused_attn needs to know of context parallelism: its axis, what it refuses, where tokens belong."""
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .context_parallel import token_order
from .sharding import active_axis_size, bound_axis_size, global_mesh_resource, inside_shard_map
from .types import AttnBiasType, AttnMaskType, AttnSoftmaxType, CPStrategy, ReorderStrategy


class Parallel(NamedTuple):
    axis: str
    size: int
    ring: bool
    balanced: bool
    manual: bool  # inside jax.shard_map: arrays are those of one rank
    reduced_axes: tuple  # bound axes that max_logit is reduced over


def resolve(axis, strategy, balanced):
    """The axis given, or that of the global MeshResource."""
    resource = global_mesh_resource()
    name = axis or resource.cp_resource or ""
    ring = strategy == CPStrategy.RING
    others = tuple(a for a in (resource.dp_resource, resource.fsdp_resource) if a and bound_axis_size(a))
    bound = bound_axis_size(name) if name else None
    if bound:
        return Parallel(name, bound, ring, balanced, True, others + (name,))
    if not name:
        return Parallel("", 1, ring, balanced, inside_shard_map(), others)
    size = active_axis_size(name)
    if size is None:
        if axis:
            raise ValueError(f"context_parallel_axis: got {axis!r}, want an axis of the active mesh")
        size = 1
    if size > 1 and inside_shard_map():
        raise ValueError(f"context_parallel_axis: got {name!r}, want an axis that jax.shard_map binds too")
    return Parallel(name, size, ring, balanced, inside_shard_map(), others)


def check(parallel, layout, mask, bias_type, softmax_type, dropout, window, stripe_size, descriptor):
    """Raises for what has no context-parallel form."""
    if layout.is_qkvpacked():
        raise ValueError(f"qkv_layout: got {layout.name}, want k and v apart from q (context parallelism)")
    if bias_type != AttnBiasType.NO_BIAS:
        raise ValueError(f"attn_bias_type: got {bias_type.name}, want NO_BIAS (context parallelism)")
    if softmax_type != AttnSoftmaxType.VANILLA_SOFTMAX:
        raise ValueError(f"softmax_type: got {softmax_type.name}, want VANILLA_SOFTMAX (context parallelism)")
    if dropout != 0.0:
        raise ValueError(f"dropout_probability: got {dropout}, want 0 (context parallelism)")
    masks = (AttnMaskType.PADDING_CAUSAL_MASK,) if layout.is_thd() else (AttnMaskType.NO_MASK, AttnMaskType.CAUSAL_MASK)
    if mask not in masks:
        raise ValueError(f"attn_mask_type: got {mask.name}, want {' or '.join(m.name for m in masks)} "
                         f"(context parallelism, {layout.name})")
    if not layout.is_thd():
        assert window[0] == -1, f"window_size: got {window}, want no left limit (context parallelism, {layout.name})"
        if stripe_size is not None and not parallel.ring:
            raise ValueError(f"stripe_size: got {stripe_size}, want None ({layout.name})")
        return
    if not descriptor.segment_ids[0].size:
        raise ValueError("sequence descriptor: got lengths, want segment ids and positions (context parallelism)")
    if parallel.ring and stripe_size not in (None, 1):
        raise ValueError(f"stripe_size: got {stripe_size}, want 1 (ring)")
    if not parallel.ring and (stripe_size is None or stripe_size < 1):
        raise ValueError(f"stripe_size: got {stripe_size}, want at least 1 (all-gather of packed rows)")


def tokens(parallel, given, mask, sizes):
    """Segments and positions, with the positions of whole rows in the order in which ranks hold them."""
    if mask.is_padding():
        return given
    scale = parallel.size if parallel.manual else 1

    def side(count):
        order = jnp.arange(count * scale, dtype=jnp.int32)
        if parallel.balanced:
            order = token_order(count * scale, ReorderStrategy.DualChunkSwap, parallel.size)
        if parallel.manual:
            order = jax.lax.dynamic_slice_in_dim(order, jax.lax.axis_index(parallel.axis) * count, count)
        return jnp.broadcast_to(order, (sizes.batch, count))

    return None, None, side(sizes.q_tokens), side(sizes.kv_tokens)
