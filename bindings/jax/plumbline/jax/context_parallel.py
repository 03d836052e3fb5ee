"""Context parallelism: the tokens of a sequence lie on the ranks of one mesh axis.

Positions say where a rank's tokens belong in the sequence, so one device's kernel, given whatever keys are
there, needs nothing but them: no step knows of chunks or stripes. Gathered keys give the very bits of one
device, forward and backward. Round a ring the outputs of steps merge in float32, and the gradients of keys
travel with them.
"""
import jax
import jax.numpy as jnp

from . import kernel
from .types import ReorderStrategy


def _gather(x, config, axis):
    return jax.lax.all_gather(x, config.cp_axis, axis=axis, tiled=True)


def _gather_all(arrays, config, axis=2):
    return tuple(None if x is None else _gather(x, config, axis) for x in arrays)


def _with_keys(operands, arrays, segments, positions):
    return operands._replace(arrays=operands.arrays[:1] + tuple(arrays), kv_segments=segments, kv_positions=positions)


def _keys(operands):
    return operands.arrays[1:] + (operands.kv_segments, operands.kv_positions)


def forward(config, operands, origin=None):
    """Results of this rank's queries, inside a computation in which config.cp_axis is bound."""
    if config.ring:
        return _ring_forward(config, operands, origin)
    *arrays, segments, positions = _gather_all(_keys(operands), config)
    return kernel.forward(config, _with_keys(operands, arrays, segments, positions), origin)


def backward(config, operands, saved, origin=None):
    """Gradients of this rank's queries and keys."""
    if config.ring:
        return _ring_backward(config, operands, saved, origin)
    *arrays, segments, positions = _gather_all(_keys(operands), config)
    of_queries = kernel.backward(config, _with_keys(operands, arrays, segments, positions), saved, origin)
    q, q_segments, q_positions = _gather_all((operands.arrays[0], operands.q_segments, operands.q_positions), config)
    every_query = operands._replace(arrays=(q,) + operands.arrays[1:], q_segments=q_segments, q_positions=q_positions)
    gathered = kernel.Saved(_gather(saved.out, config, 2), _gather(saved.d_out, config, 2), _gather(saved.lse, config, 3))
    of_keys = kernel.backward(config, every_query, gathered, origin)
    return kernel.Grads(of_queries.arrays[:1] + of_keys.arrays[1:])


def _next_rank(tree, config):
    size = jax.lax.axis_size(config.cp_axis)
    ring = [(rank, (rank + 1) % size) for rank in range(size)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, config.cp_axis, ring), tree)


def _merge(a, b):
    """Results over disjoint keys as results over all of them; -inf is the log of an empty sum."""
    top = jnp.maximum(a.lse, b.lse)
    safe = jnp.where(jnp.isneginf(top), 0.0, top)
    lse = safe + jnp.log(jnp.exp(a.lse - safe) + jnp.exp(b.lse - safe))
    lse = jnp.where(jnp.isneginf(top), -jnp.inf, lse)
    weight = lambda part: jnp.swapaxes(jnp.where(jnp.isneginf(lse), 0.0, jnp.exp(part - lse)), 2, 3)[..., None]
    out = a.out * weight(a.lse) + b.out * weight(b.lse)
    max_logit = None if a.max_logit is None else jnp.maximum(a.max_logit, b.max_logit)
    return kernel.Results(out, lse, max_logit)


def _ring_forward(config, operands, origin):
    keys, total = _keys(operands), None
    for step in range(jax.lax.axis_size(config.cp_axis)):
        if step > 0:
            keys = _next_rank(keys, config)
        *arrays, segments, positions = keys
        part = kernel.forward(config, _with_keys(operands, arrays, segments, positions), origin, float32_results=True)
        total = part if total is None else _merge(total, part)
    return total._replace(out=total.out.astype(operands.arrays[0].dtype))


def _ring_backward(config, operands, saved, origin):
    keys, dq, dkv = _keys(operands), None, None
    size = jax.lax.axis_size(config.cp_axis)
    for step in range(size):
        if step > 0:
            keys, dkv = _next_rank((keys, dkv), config)
        *arrays, segments, positions = keys
        part = kernel.backward(config, _with_keys(operands, arrays, segments, positions), saved, origin,
                               float32_results=True).arrays
        dq = part[0] if dq is None else dq + part[0]
        dkv = part[1:] if dkv is None else jax.tree.map(jnp.add, dkv, part[1:])
    if size > 1:
        dkv = _next_rank(dkv, config)
    return kernel.Grads(tuple(grad.astype(x.dtype) for grad, x in zip((dq,) + dkv, operands.arrays)))


def _check_reorder(tokens, strategy, cp_size, stripe_size):
    if strategy == ReorderStrategy.DualChunkSwap:
        if stripe_size is not None:
            raise ValueError(f"stripe_size: got {stripe_size}, want None (dual chunks)")
        if cp_size > 1 and cp_size % 2 != 0:
            raise ValueError(f"cp_size: got {cp_size}, want an even number (dual chunks)")
        unit = 2 * cp_size
    elif strategy == ReorderStrategy.Striped:
        if stripe_size is not None and stripe_size < 1:
            raise ValueError(f"stripe_size: got {stripe_size}, want at least 1")
        unit = cp_size * (stripe_size or 1)
    else:
        raise ValueError(f"strategy: got {strategy}, want one of {list(ReorderStrategy)}")
    if cp_size > 1 and tokens % unit != 0:
        raise ValueError(f"tokens of a sequence: got {tokens}, want a multiple of {unit}")


def token_order(tokens, strategy, cp_size, stripe_size=None):
    """[tokens]: which token lies at each place, ranks one after another."""
    _check_reorder(tokens, strategy, cp_size, stripe_size)
    at = jnp.arange(tokens, dtype=jnp.int32)
    if cp_size == 1:
        return at
    if strategy == ReorderStrategy.Striped:
        return at.reshape(-1, cp_size, stripe_size or 1).swapaxes(0, 1).reshape(-1)
    chunks = at.reshape(2 * cp_size, -1)
    return jnp.stack([chunks[:cp_size], chunks[:cp_size - 1:-1]], axis=1).reshape(-1)


def reorder_causal_load_balancing(tensor, strategy, cp_size, seq_dim, stripe_size=None):
    """Deals the tokens of `tensor` along `seq_dim` to ranks so that each has as much causal work."""
    return jnp.take(tensor, token_order(tensor.shape[seq_dim], strategy, cp_size, stripe_size), axis=seq_dim)


def inverse_reorder_causal_load_balancing(tensor, strategy, cp_size, seq_dim, stripe_size=None):
    """Undoes reorder_causal_load_balancing."""
    order = token_order(tensor.shape[seq_dim], strategy, cp_size, stripe_size)
    return jnp.take(tensor, jnp.argsort(order), axis=seq_dim)
