"""Which mesh axes mean what: MeshResource, and helpers to ask the active mesh."""
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Optional

import jax


@dataclass(frozen=True)
class MeshResource:
    """Names of mesh axes, or None: data, tensor, sequence-of-tensor, fully sharded, pipeline and context
    parallelism."""
    dp_resource: Optional[str] = None
    tp_resource: Optional[str] = None
    tpsp_resource: Optional[str] = None
    fsdp_resource: Optional[str] = None
    pp_resource: Optional[str] = None
    cp_resource: Optional[str] = None


_resources = [MeshResource()]


def global_mesh_resource():
    """The innermost MeshResource of global_shard_guard; one without axes outside of any."""
    return _resources[-1]


@contextmanager
def global_shard_guard(resource):
    """Makes `resource` the global one inside a `with`."""
    _resources.append(resource)
    try:
        yield
    finally:
        _resources.pop()


# Names of array dimensions, by what they are sharded along: batch rows (data, fully sharded), tokens (nothing, tensor,
# context parallelism), heads and hidden units (tensor), others (nothing); W_ those of weights.
BATCH_AXES = "nvte_batch"
SEQLEN_AXES = "nvte_seqlen"
SEQLEN_TP_AXES = "nvte_seqlen_tp"
SEQLEN_CP_AXES = "nvte_seqlen_cp"
HEAD_AXES = "nvte_head"
HIDDEN_AXES = "nvte_hidden"
HIDDEN_TP_AXES = "nvte_hidden_tp"
JOINED_AXES = "nvte_joined"
W_NO_SHARD_AXES = "nvte_w_no_shard"
W_FSDP_AXES = "nvte_w_fsdp"
W_TP_AXES = "nvte_w_tp"
W_JOINED_AXES = "nvte_w_joined"


def get_sharding_map_logic_axis_to_mesh_axis():
    """The mesh axes of every name above, by the global MeshResource; None: not sharded."""
    resource = global_mesh_resource()
    data = tuple(axis for axis in (resource.dp_resource, resource.fsdp_resource) if axis)
    tensor = resource.tp_resource or resource.tpsp_resource
    return {BATCH_AXES: data or None, SEQLEN_AXES: None, SEQLEN_TP_AXES: resource.tpsp_resource,
            SEQLEN_CP_AXES: resource.cp_resource, HEAD_AXES: tensor, HIDDEN_AXES: None, HIDDEN_TP_AXES: tensor,
            JOINED_AXES: None, W_NO_SHARD_AXES: None, W_FSDP_AXES: resource.fsdp_resource, W_TP_AXES: tensor,
            W_JOINED_AXES: None}


def with_sharding_constraint_by_logical_axes(x, names):
    """x sharded as the names of its dimensions say, those without an axis as they are; x itself where no mesh is active,
    inside jax.shard_map, and on a mesh of explicit axes."""
    axes_of = get_sharding_map_logic_axis_to_mesh_axis()
    active = any(active_axis_size(axis) for axes in axes_of.values() for axis in _each(axes))
    kinds = jax.sharding.get_abstract_mesh().axis_types
    if not active or jax.sharding.AxisType.Explicit in kinds or jax.sharding.AxisType.Manual in kinds:
        return x
    assert x.ndim == len(names), f"names of dimensions: got {len(names)}, want {x.ndim}"

    def usable(size, name):
        kept, product = [], 1
        for axis in _each(axes_of.get(name)):
            product *= active_axis_size(axis) or 1
            if active_axis_size(axis) and size % product == 0:
                kept.append(axis)
        return tuple(kept) or jax.sharding.PartitionSpec.UNCONSTRAINED
    spec = jax.sharding.PartitionSpec(*(usable(size, name) for size, name in zip(x.shape, names)))
    return jax.lax.with_sharding_constraint(x, spec)


def _each(axes):
    return () if axes is None else (axes,) if isinstance(axes, str) else axes


@contextmanager
def autocast(enabled=False, recipe=None, mesh_resource=None):
    """global_shard_guard under its name in programs that cast to FP8; nothing is cast here."""
    if enabled or recipe is not None:
        raise ValueError("autocast: got enabled, want False: there is no FP8 here")
    with global_shard_guard(mesh_resource or global_mesh_resource()):
        yield


def fp8_autocast(enabled=False, fp8_recipe=None, mesh_resource=None):
    """autocast under its older name."""
    return autocast(enabled, fp8_recipe, mesh_resource)


def bound_axis_size(name):
    """The size of an axis that jax.shard_map (or vmap) has bound here; None where there is none."""
    try:
        return jax.lax.axis_size(name)
    except NameError:
        return None


def inside_shard_map():
    """Whether some axes of the mesh are bound: arrays are those of one rank along them."""
    mesh = jax.sharding.get_abstract_mesh()
    return not mesh.empty and jax.sharding.AxisType.Manual in mesh.axis_types


def active_axis_size(name):
    """The size of an axis of the active mesh (`with mesh:` or jax.set_mesh); None without."""
    concrete = jax._src.mesh.thread_resources.env.physical_mesh
    for mesh in (jax.sharding.get_abstract_mesh(), concrete):
        if not mesh.empty and name in mesh.shape:
            return mesh.shape[name]
    return None
