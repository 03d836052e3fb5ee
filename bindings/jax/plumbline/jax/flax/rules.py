"""Logical axis rules for flax.linen.logical_axis_rules."""
from ..sharding import get_sharding_map_logic_axis_to_mesh_axis


def extend_logical_axis_rules(rules):
    """`rules`, and those of this package's names that it does not have, by the global MeshResource."""
    named = {name for name, _ in rules}
    own = get_sharding_map_logic_axis_to_mesh_axis()
    return tuple(rules) + tuple((name, axes) for name, axes in own.items() if name not in named)
