"""The feed-forward block: norm, one product per activation, their product, dropout, and the product back."""
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from ..sharding import W_FSDP_AXES, W_JOINED_AXES, W_TP_AXES, with_sharding_constraint_by_logical_axes
from .projection import Adapter, NormOptions, norm, product

_ACTIVATIONS = {
    "linear": lambda x: x, "gelu": jax.nn.gelu, "relu": jax.nn.relu, "silu": jax.nn.silu, "swish": jax.nn.silu,
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x), "squared_relu": lambda x: jnp.square(jax.nn.relu(x)),
    "sigmoid": jax.nn.sigmoid, "tanh": jnp.tanh, "elu": jax.nn.elu, "selu": jax.nn.selu, "softplus": jax.nn.softplus,
}


def activation(name, parameters):
    """A function of arrays. "clamped_silu" and "clamped_linear" take `limit` and `alpha` (7 and 1.702)."""
    limit, alpha = (parameters or {}).get("limit", 7.0), (parameters or {}).get("alpha", 1.702)
    if name == "clamped_silu":
        return lambda x: jnp.minimum(x, limit) * jax.nn.sigmoid(alpha * jnp.minimum(x, limit))
    if name == "clamped_linear":
        return lambda x: jnp.clip(x, -limit, limit) + 1
    if name not in _ACTIVATIONS:
        raise ValueError(f"mlp_activations: got {name!r}, want one of {', '.join(_ACTIVATIONS)}, clamped_silu, clamped_linear")
    return _ACTIVATIONS[name]


class Mlp(nn.Module):
    """(y, x after the norm), x [.., hidden]; `axes` name the dimensions of the layer between the products."""
    width: int
    activations: Sequence[str]
    activation_params: Optional[Mapping[str, float]]
    norm: NormOptions
    kernel_init: Callable
    use_bias: bool
    bias_init: Callable
    dropout: float
    dropout_dims: Sequence[int]
    dropout_rng_name: str
    adapter: Optional[Adapter]
    axes: Tuple
    dtype: Any

    @nn.compact
    def __call__(self, x, deterministic):
        def init_of(fan_in):
            def init(key, shape, dtype):
                keys = jax.random.split(key, shape[1])
                return jnp.stack([self.kernel_init(k, (fan_in, shape[-1]), dtype) for k in keys], axis=1)
            return init
        normed = norm(self, x, self.norm, self.dtype)
        parts = len(self.activations)
        y = product(self, normed, "wi_", (parts, self.width), init_of(x.shape[-1]), (W_FSDP_AXES, W_JOINED_AXES, W_TP_AXES),
                    self.use_bias, self.bias_init, self.adapter, self.dtype)
        done = None
        for n, name in enumerate(self.activations):
            part = activation(name, self.activation_params)(y[..., n, :])
            done = part if done is None else done * part
        done = nn.Dropout(self.dropout, broadcast_dims=tuple(self.dropout_dims), rng_collection=self.dropout_rng_name)(
            done, deterministic=deterministic)
        done = with_sharding_constraint_by_logical_axes(done, self.axes)
        return product(self, done, "wo_", x.shape[-1:], self.kernel_init, (W_TP_AXES, W_FSDP_AXES), self.use_bias,
                       self.bias_init, self.adapter, self.dtype), normed
