"""Forward and backward as operations of a whole mesh: partitioned over batch rows, heads and, in context
parallelism, tokens; mapped by jax.vmap.

A shard computes with its own arrays alone; then max_logit is the maximum over every axis that shards batch rows
or tokens (never heads: it stays sharded with them), and gradients of what was broadcast are summed over the axes
it was broadcast along.
"""
from functools import lru_cache

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec, auto_axes

from . import context_parallel, kernel
from .kernel import Grads, Operands, Results, Saved


def pmax(x, axes):
    """The maximum over mesh axes; NaN where one is NaN, whatever the collective does with it."""
    if x is None or not axes:
        return x
    is_nan = jax.lax.pmax(jnp.isnan(x).astype(jnp.int32), axes)
    return jnp.where(is_nan > 0, jnp.nan, jax.lax.pmax(jnp.where(jnp.isnan(x), -jnp.inf, x), axes))


def _axes(spec, dim):
    entry = spec[dim] if dim < len(spec) else None
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def _entry(axes):
    return None if not axes else axes[0] if len(axes) == 1 else tuple(axes)


class Placement:
    """Which mesh axes shard groups, batch rows, tokens and heads of a call."""

    def __init__(self, config, mesh, operands, saved):
        self.mesh, self.taken = mesh, set()
        split = bool(config.cp_axis) and mesh.shape.get(config.cp_axis, 1) > 1
        self.tokens = self._usable((config.cp_axis,), 1) if split else ()
        arrays = list(operands.arrays) + ([saved.d_out] if saved is not None else [])
        kv_heads = operands.projections()[1].shape[-2]
        self.groups = self._of(arrays, 0, kernel.groups_of(operands))
        self.batch = self._of(arrays, 1, arrays[0].shape[1])
        self.heads = self._of(arrays, -2, kv_heads)

    def _usable(self, axes, size):
        """The leading axes that are free and whose product divides `size` (1: any)."""
        kept, product = [], 1
        for axis in axes:
            product *= self.mesh.shape[axis]
            if axis in self.taken or (size != 1 and size % product != 0):
                break
            kept.append(axis)
        self.taken.update(kept)
        return tuple(kept)

    def _of(self, arrays, dim, size):
        for x in arrays:
            axes = _axes(x.sharding.spec, dim % len(x.shape))
            if axes and x.shape[dim] > 1:
                return self._usable(axes, size) if size > 1 else ()
        return ()

    def spec(self, x, *names):
        """A PartitionSpec of x: its dimensions by name, those of size 1 not sharded."""
        entries = [_entry(getattr(self, name)) if name and x.shape[dim] > 1 else None
                   for dim, name in enumerate(("groups",) + names)]
        return PartitionSpec(*entries)

    def array(self, x):
        return self.spec(x, "batch", "tokens", *([None] if len(x.shape) == 6 else []), "heads", None)

    def operands(self, operands):
        def of(x, *names):
            return None if x is None else self.spec(x, *names)
        ids = [of(x, "batch", "tokens") for x in operands[3:7]]
        return Operands(tuple(self.array(x) for x in operands.arrays), of(operands.bias, "batch", "heads", None, None),
                        of(operands.sink, "heads"), *ids, of(operands.seed, None))

    def saved(self, saved):
        return Saved(self.array(saved.out), self.array(saved.d_out), self.spec(saved.lse, "batch", "heads", "tokens"))

    def results(self, results):
        max_logit = None if results.max_logit is None else self.spec(results.max_logit, "heads")
        return Results(self.array(results.out), self.spec(results.lse, "batch", "heads", "tokens"), max_logit)

    def grads(self, grads):
        bias = None if grads.bias is None else self.spec(grads.bias, "batch", "heads", None, None)
        return Grads(tuple(self.array(x) for x in grads.arrays), bias,
                     None if grads.sink is None else self.spec(grads.sink, "heads"))

    def shardings(self, specs):
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs,
                            is_leaf=lambda x: isinstance(x, PartitionSpec))

    def origin(self, q):
        """The first batch row and head of a shard."""
        def first(axes, size):
            return jax.lax.axis_index(axes) * size if axes else jnp.int32(0)
        return jnp.stack([first(self.batch, q.shape[1]), first(self.heads, q.shape[-2])]).astype(jnp.int32)[None]


def _partition_forward(config, mesh, arguments, results):
    operands, = arguments
    place = Placement(config, mesh, operands, None)

    def lower(operands):
        origin = place.origin(operands.arrays[0])
        if place.tokens:
            part = context_parallel.forward(config, operands, origin)
        else:
            part = kernel.forward(config, operands, origin)
        return part._replace(max_logit=pmax(part.max_logit, place.batch + place.tokens))

    return mesh, lower, place.shardings(place.results(results)), (place.shardings(place.operands(operands)),)


def _partition_backward(config, mesh, arguments, results):
    operands, saved = arguments
    place = Placement(config, mesh, operands, saved)
    bias_axes = ()
    if operands.bias is not None:
        bias_axes += place.batch if operands.bias.shape[1] == 1 else ()
        bias_axes += place.heads if operands.bias.shape[2] == 1 else ()

    def lower(operands, saved):
        origin = place.origin(operands.arrays[0])
        if place.tokens:
            return context_parallel.backward(config, operands, saved, origin)
        # Parts of a sum over shards stay float32 until they are summed.
        part = kernel.backward(config, operands, saved, origin, float32_results=bool(bias_axes))
        arrays = tuple(grad.astype(x.dtype) for grad, x in zip(part.arrays, operands.arrays))
        bias, sink = part.bias, part.sink
        if bias is not None:
            bias = (jax.lax.psum(bias, bias_axes) if bias_axes else bias).astype(operands.bias.dtype)
        if sink is not None and place.batch:
            sink = jax.lax.psum(sink, place.batch)
        return Grads(arrays, bias, sink)

    specs = (place.shardings(place.operands(operands)), place.shardings(place.saved(saved)))
    return mesh, lower, place.shardings(place.grads(results)), specs


class _Rule:
    """The sharding rule of a call: a name for every dimension, the same where the partition is the same. Shardy wants
    the names that are not to be sharded in the order of the text, so dims() is called in that order.

    Query heads of a group and KV heads have names of their own: as one product, Shardy would share a mesh axis that
    the KV heads do not fill out between the two. Placement brings their partitions together."""

    def __init__(self, operands, cp):
        self.cp, self.unique, self.replicated = cp, 0, []
        self.kv_heads = operands.projections()[1].shape[-2]

    def _own(self, size):
        self.unique += 1
        name = f"u{self.unique}"
        if size > 1:
            self.replicated.append(name)
        return name

    def _heads(self, size):
        if self.kv_heads == 1:
            return self._own(size)
        return "h" if size == self.kv_heads else "g"

    def dims(self, x, *names):
        words = []
        for size, name in zip(x.shape, ("n",) + names):
            if name is None or size == 1 or (name == "s" and not self.cp):
                words.append(self._own(size))
            else:
                words.append(self._heads(size) if name == "h" else name)
        return " ".join(words)

    def array(self, x):
        return self.dims(x, "b", "s", *([None] if len(x.shape) == 6 else []), "h", None)

    def operands(self, operands):
        def of(x, *names):
            return [] if x is None else [self.dims(x, *names)]
        words = [self.array(x) for x in operands.arrays] + of(operands.bias, "b", "h", None, None)
        words += of(operands.sink, "h")
        for ids in operands[3:7]:
            words += of(ids, "b", "s")
        return words + of(operands.seed, None)

    def text(self, arguments, results):
        return (", ".join(arguments) + " -> " + ", ".join(results),
                dict(need_replication_factors=tuple(self.replicated)))


def _forward_rule(config, operands, results):
    rule = _Rule(operands, bool(config.cp_axis))
    arguments = rule.operands(operands)
    words = [rule.array(results.out), rule.dims(results.lse, "b", "h", "s")]
    if results.max_logit is not None:
        words.append(rule.dims(results.max_logit, "h"))
    return rule.text(arguments, words)


def _backward_rule(config, operands, saved, grads):
    rule = _Rule(operands, bool(config.cp_axis))
    arguments = rule.operands(operands) + [rule.array(saved.out), rule.array(saved.d_out),
                                           rule.dims(saved.lse, "b", "h", "s")]
    words = [rule.array(x) for x in grads.arrays]
    if grads.bias is not None:
        words.append(rule.dims(grads.bias, "b", "h", None, None))
    if grads.sink is not None:
        words.append(rule.dims(grads.sink, "h"))
    return rule.text(arguments, words)


def _merge_groups(axis_size, batched, tree):
    """Puts a mapped axis in front of the groups of every leaf and merges the two."""
    inner = max(leaf.shape[1 if mapped else 0] for leaf, mapped in
                zip(jax.tree.leaves(tree), jax.tree.leaves(batched)))

    def merge(x, mapped):
        groups = x.shape[1 if mapped else 0]
        if not mapped and groups == 1:
            return x
        if not mapped:
            x = jnp.broadcast_to(x, (axis_size,) + x.shape)
        if groups < inner:
            x = jnp.broadcast_to(x, (axis_size, inner) + x.shape[2:])
        return x.reshape((axis_size * inner,) + x.shape[2:])

    return jax.tree.map(merge, tree, batched), inner


def _mapped(operation):
    """`operation` of arrays with groups, under jax.vmap: more groups."""
    wrapped = custom_vmap(operation)

    @wrapped.def_vmap
    def rule(axis_size, in_batched, *arguments):
        merged, inner = _merge_groups(axis_size, tuple(in_batched), arguments)
        out = jax.tree.map(lambda x: x.reshape((axis_size, inner) + x.shape[1:]), wrapped(*merged))
        return out, jax.tree.map(lambda _: True, out)

    return wrapped


def _manual(config, operation, parallel):
    """The operation where the axes are bound already (shard_map): arrays are those of this rank."""
    def call(*arguments):
        done = (parallel if config.cp_axis else operation)(config, *arguments)
        if isinstance(done, Results):
            done = done._replace(max_logit=pmax(done.max_logit, config.manual_axes))
        return done
    return call


def _partitioned(config, local, partition, rule):
    """`local` of a whole mesh. The rule names the dimensions of the arrays at hand, so it is made with them."""
    def call(*arguments):
        operation = custom_partitioning(lambda *args: local(config, *args))
        text, details = rule(config, *arguments, jax.eval_shape(lambda *args: local(config, *args), *arguments))
        operation.def_partition(partition=lambda mesh, args, results: partition(config, mesh, args, results),
                                sharding_rule=text, **details)
        return operation(*arguments)
    return call


@lru_cache(maxsize=None)
def forward_operation(config, manual):
    """Operands -> Results of the whole mesh; of this rank where `manual`."""
    if manual:
        return jax.jit(_mapped(_manual(config, kernel.forward, context_parallel.forward)))
    return jax.jit(_mapped(_partitioned(config, kernel.forward, _partition_forward, _forward_rule)))


@lru_cache(maxsize=None)
def backward_operation(config, manual):
    """(Operands, Saved) -> Grads of the whole mesh; of this rank where `manual`."""
    if manual:
        return jax.jit(_mapped(_manual(config, kernel.backward, context_parallel.backward)))
    return jax.jit(_mapped(_partitioned(config, kernel.backward, _partition_backward, _backward_rule)))


def _explicit_mesh(tree):
    """The mesh of arrays whose types say how they lie on it, or None."""
    for leaf in jax.tree.leaves(tree):
        mesh = jax.typeof(leaf).sharding.mesh
        if not mesh.empty and AxisType.Explicit in mesh.axis_types:
            return mesh
    return None


def run_forward(config, manual, operands):
    """Results; on a mesh of explicit axes their types follow those of the operands."""
    operation, mesh = forward_operation(config, manual), _explicit_mesh(operands)
    if mesh is None or manual:
        return operation(operands)
    types = jax.tree.map(jax.typeof, operands)
    place = Placement(config, mesh, types, None)
    shapes = jax.eval_shape(lambda x: kernel.forward(config, x), jax.tree.map(_untyped, types))
    return auto_axes(operation, out_sharding=place.results(shapes))(operands)


def run_backward(config, manual, operands, saved):
    """Grads; on a mesh of explicit axes each has the type of its array."""
    operation, mesh = backward_operation(config, manual), _explicit_mesh((operands, saved))
    if mesh is None or manual:
        return operation(operands, saved)
    types = jax.tree.map(lambda x: jax.typeof(x).sharding.spec, operands)
    return auto_axes(operation, out_sharding=Grads(types.arrays, types.bias, types.sink))(operands, saved)


def _untyped(aval):
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
