"""Projection: an optional norm and a matrix product, with what belongs to them: bias, adapter, names of dimensions."""
from typing import Any, Callable, NamedTuple, Optional, Tuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from ..sharding import W_NO_SHARD_AXES


def partitioned(init, axes):
    """`init`, whose array has names for its dimensions."""
    return nn.with_logical_partitioning(init, axes)


class NormOptions(NamedTuple):
    """layernorm, or rmsnorm; with zero_centered_gamma the scale is 1 + the parameter."""
    kind: str = "layernorm"
    epsilon: float = 1e-6
    zero_centered_gamma: bool = False


def norm(module, x, options, dtype=jnp.float32):
    """The norm of x, computed in float32, its parameters "scale" and "ln_bias" those of `module`."""
    if options.kind not in ("layernorm", "rmsnorm"):
        raise ValueError(f"layernorm_type: got {options.kind!r}, want 'layernorm' or 'rmsnorm'")
    zeros, ones = nn.initializers.zeros, nn.initializers.ones
    scale = module.param("scale", partitioned(zeros if options.zero_centered_gamma else ones, (W_NO_SHARD_AXES,)),
                         x.shape[-1:], dtype).astype(jnp.float32)
    y = x.astype(jnp.float32)
    if options.kind == "layernorm":
        y = y - y.mean(-1, keepdims=True)
    y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + options.epsilon)
    y = y * (scale + 1 if options.zero_centered_gamma else scale)
    if options.kind == "layernorm":
        y = y + module.param("ln_bias", partitioned(zeros, (W_NO_SHARD_AXES,)), x.shape[-1:], dtype).astype(jnp.float32)
    return y.astype(x.dtype)


class LayerNorm(nn.Module):
    """The norm alone."""
    options: NormOptions = NormOptions()
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        return norm(self, x, self.options, self.dtype)


class Adapter(NamedTuple):
    """A low-rank adapter: alpha / rank (1 without alpha) times x A B, of which B starts at zero."""
    rank: int
    alpha: Optional[float]


SCOPES = {"none": (), "all": ("qkv_proj", "output_proj", "mlp"), "qkv_proj": ("qkv_proj",),
          "output_proj": ("output_proj",), "mlp": ("mlp",), "exclude_qkv_proj": ("output_proj", "mlp"),
          "exclude_output_proj": ("qkv_proj", "mlp"), "exclude_mlp": ("qkv_proj", "output_proj")}


def adapter_of(module, part):
    """The Adapter that the low_rank_adaptation_ fields of `module` ask for in "qkv_proj", "output_proj" or "mlp"."""
    scope = (module.low_rank_adaptation_scope or "none").lower()
    assert scope in SCOPES, f"low_rank_adaptation_scope: got {scope!r}, want one of {', '.join(SCOPES)}"
    if part not in SCOPES[scope]:
        return None
    return Adapter(module.low_rank_adaptation_dim, module.low_rank_adaptation_alpha)


def stacked(*inits):
    """The initializer of kernels [in, len(inits), out], each by its own."""
    def init(key, shape, dtype=jnp.float32):
        keys = jax.random.split(key, len(inits))
        return jnp.stack([one(k, (shape[0], shape[-1]), dtype) for one, k in zip(inits, keys)], axis=1)
    return init


def product(module, x, prefix, features, init, axes, use_bias, bias_init, adapter, dtype):
    """x [.., in] times the parameter `prefix`kernel [in, *features]; a bias, and an adapter's product, added."""
    out = tuple(range(1, len(features) + 1))

    def times(left, kernel):
        return jax.lax.dot_general(left, kernel.astype(x.dtype), (((left.ndim - 1,), (0,)), ((), ())))
    y = times(x, module.param(prefix + "kernel", partitioned(init, axes), x.shape[-1:] + features, dtype))
    if adapter is not None:
        a = module.param(prefix + "lora_a_kernel", partitioned(nn.initializers.variance_scaling(1.0, "fan_in", "normal"),
                                                               (None, None)), (x.shape[-1], adapter.rank), dtype)
        b = module.param(prefix + "lora_b_kernel", partitioned(nn.initializers.zeros, (None,) * (1 + len(out))),
                         (adapter.rank,) + features, dtype)
        y = y + times(times(x, a), b) * (1.0 if adapter.alpha is None else adapter.alpha / adapter.rank)
    if use_bias:
        y = y + module.param(prefix + "bias", partitioned(bias_init, axes[1:]), features, dtype).astype(x.dtype)
    return y


class Projection(nn.Module):
    """(y [.., *features], x after the norm), y in the dtype of x, parameters in `dtype`."""
    features: Tuple[int, ...]
    kernel_init: Callable
    kernel_axes: Tuple
    use_bias: bool = False
    bias_init: Callable = nn.initializers.zeros
    norm: Optional[NormOptions] = None
    adapter: Optional[Adapter] = None
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        if self.norm is not None:
            x = norm(self, x, self.norm, self.dtype)
        return product(self, x, "", self.features, self.kernel_init, self.kernel_axes, self.use_bias, self.bias_init,
                       self.adapter, self.dtype), x
