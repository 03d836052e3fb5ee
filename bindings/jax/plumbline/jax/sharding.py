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


@contextmanager
def autocast(enabled=False, recipe=None, mesh_resource=None):
    """global_shard_guard under its name in programs that cast to FP8; nothing is cast here."""
    if enabled or recipe is not None:
        raise ValueError("autocast: got enabled, want False: there is no FP8 here")
    with global_shard_guard(mesh_resource or global_mesh_resource()):
        yield


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
