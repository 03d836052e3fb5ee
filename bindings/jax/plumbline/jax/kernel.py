"""The FFI calls: fused attention of one device's arrays.

Every array has a leading dimension of N groups, or of 1 where all groups share it: a group is a call of its own
(jax.vmap). `Operands` holds what the kernel reads; what is None is absent.
"""
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _ffi

FORWARD, BACKWARD = "plumbline_fused_attention", "plumbline_fused_attention_grad"
for _name, _handler in _ffi.handlers().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")


@dataclass(frozen=True)
class Config:
    """What is static of a call."""
    scale: float
    causal: bool = False
    bottom_right: bool = False
    left: int = -1
    right: int = -1
    bias_type: int = 0
    softmax: int = 0
    dropout: float = 0.0
    max_segments: int = 0  # of a row; 0: not checked
    return_max_logit: bool = False
    cp_axis: str = ""  # the mesh axis of context parallelism, or none
    ring: bool = False
    manual_axes: tuple = ()  # bound axes (shard_map) that max_logit is reduced over

    def attributes(self, float32_results):
        return dict(scale=np.float32(self.scale), dropout=np.float32(self.dropout), causal=self.causal,
                    bottom_right=self.bottom_right, left=np.int64(self.left), right=np.int64(self.right),
                    bias_type=np.int64(self.bias_type), softmax=np.int64(self.softmax),
                    float32_results=float32_results, max_segments=np.int64(self.max_segments))


class Operands(NamedTuple):
    arrays: tuple  # [N, B, S, (members,) heads, dim]: (qkv,), (q, kv) or (q, k, v)
    bias: Any = None  # [N, 1 | B, 1 | heads, Sq, Skv]
    sink: Any = None  # [N, heads], float32
    q_segments: Any = None  # [N, B, Sq], int32
    kv_segments: Any = None
    q_positions: Any = None
    kv_positions: Any = None
    seed: Any = None  # [N, 2], uint32

    def projections(self):
        """Arrays that hold q, k and v."""
        return [self.arrays[0], self.arrays[min(1, len(self.arrays) - 1)], self.arrays[-1]]


class Saved(NamedTuple):
    """What the backward pass needs besides: the result, its gradient and the log-sum-exp of every row."""
    out: Any  # [N, B, Sq, heads, Dv]
    d_out: Any
    lse: Any  # [N, B, heads, Sq]


class Results(NamedTuple):
    out: Any
    lse: Any
    max_logit: Any = None  # [N, heads]


class Grads(NamedTuple):
    arrays: tuple
    bias: Any = None
    sink: Any = None  # [N, heads]


def groups_of(operands):
    return max(leaf.shape[0] for leaf in jax.tree.leaves(operands))


def _call(name, results, operands, extra, origin, config, float32_results):
    """Every operand varies over the same manual axes (shard_map), and so do the results."""
    empty = {"bias": operands.arrays[0].dtype, "sink": jnp.float32, "q_segments": jnp.int32, "kv_segments": jnp.int32,
             "q_positions": jnp.int32, "kv_positions": jnp.int32}
    arguments = operands.projections()
    arguments += [getattr(operands, key) if getattr(operands, key) is not None else jnp.zeros((1, 0), dtype)
                  for key, dtype in empty.items()]
    arguments.append(operands.seed if operands.seed is not None else jnp.zeros((1, 2), jnp.uint32))
    arguments.append(origin if origin is not None else jnp.zeros((1, 2), jnp.int32))
    arguments += extra
    varying = frozenset().union(*(jax.typeof(x).mat.varying for x in arguments))
    if varying:
        missing = [tuple(varying - jax.typeof(x).mat.varying) for x in arguments]
        arguments = [jax.lax.pcast(x, axes, to="varying") if axes else x for x, axes in zip(arguments, missing)]
        axes = jax.typeof(arguments[0]).mat
        place = jax.sharding.NamedSharding(jax.sharding.get_abstract_mesh(), jax.sharding.PartitionSpec())
        results = [jax.ShapeDtypeStruct(r.shape, r.dtype, sharding=place, manual_axis_type=axes) for r in results]
    return jax.ffi.ffi_call(name, results)(*arguments, **config.attributes(float32_results))


def forward(config, operands, origin=None, float32_results=False):
    """Results of one device's arrays. `origin` [1, 2]: their first batch row and head in the whole call."""
    q, _, v = operands.projections()
    groups, batch, q_tokens, heads = groups_of(operands), q.shape[1], q.shape[2], q.shape[-2]
    dtype = jnp.float32 if float32_results else q.dtype
    shapes = [jax.ShapeDtypeStruct((groups, batch, q_tokens, heads, v.shape[-1]), dtype),
              jax.ShapeDtypeStruct((groups, batch, heads, q_tokens), jnp.float32),
              jax.ShapeDtypeStruct((groups, heads if config.return_max_logit else 0), jnp.float32)]
    out, lse, max_logit = _call(FORWARD, shapes, operands, [], origin, config, float32_results)
    return Results(out, lse, max_logit if config.return_max_logit else None)


def backward(config, operands, saved, origin=None, float32_results=False):
    """Gradients of one device's arrays."""
    groups = groups_of((operands, saved))
    grown = [jax.ShapeDtypeStruct((groups,) + x.shape[1:], jnp.float32 if float32_results else x.dtype)
             for x in operands.arrays]
    bias = (1, 0) if operands.bias is None else (groups,) + operands.bias.shape[1:]
    sink = (1, 0) if operands.sink is None else (groups,) + operands.sink.shape[1:]
    grown += [jax.ShapeDtypeStruct(bias, grown[0].dtype), jax.ShapeDtypeStruct(sink, jnp.float32)]
    *arrays, d_bias, d_sink = _call(BACKWARD, grown, operands, list(saved), origin,
                                    replace(config, return_max_logit=False), float32_results)
    return Grads(tuple(arrays), d_bias if operands.bias is not None else None,
                 d_sink if operands.sink is not None else None)
