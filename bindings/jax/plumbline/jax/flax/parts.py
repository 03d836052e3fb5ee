"""What the modules share: norms, rotary embedding, activations."""
import jax
import jax.numpy as jnp
from flax import linen as nn


class Norm(nn.Module):
    """Layer norm, or RMS norm; with zero_centered_gamma the scale is 1 + the parameter. Computed in float32."""
    kind: str = "layernorm"
    epsilon: float = 1e-6
    zero_centered_gamma: bool = False

    @nn.compact
    def __call__(self, x):
        if self.kind not in ("layernorm", "rmsnorm"):
            raise ValueError(f"layernorm_type: got {self.kind!r}, want 'layernorm' or 'rmsnorm'")
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        scale = self.param("scale", zeros if self.zero_centered_gamma else ones, x.shape[-1:], jnp.float32)
        y = x.astype(jnp.float32)
        if self.kind == "layernorm":
            y = y - y.mean(-1, keepdims=True)
        y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + self.epsilon)
        y = y * (scale + 1 if self.zero_centered_gamma else scale)
        if self.kind == "layernorm":
            y = y + self.param("ln_bias", zeros, x.shape[-1:], jnp.float32)
        return y.astype(x.dtype)


def rotary(x, windows, method, seq_axis):
    """Rotary position embedding of x [.., heads, dim]: pairs (i, i + dim / 2), "consecutive", or (2 i, 2 i + 1),
    "alternate"."""
    half = x.shape[-1] // 2
    low, high = windows
    time_scale = low * (high / low) ** (jnp.arange(half) / half)
    angle = jnp.arange(x.shape[seq_axis])[:, None] / time_scale
    shape = [1] * x.ndim
    shape[seq_axis], shape[-1] = x.shape[seq_axis], half
    sin, cos = jnp.sin(angle).reshape(shape), jnp.cos(angle).reshape(shape)
    y = x.astype(jnp.float32)
    if method == "consecutive":
        a, b = y[..., :half], y[..., half:]
        y = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    elif method == "alternate":
        a, b = y[..., ::2], y[..., 1::2]
        y = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)
    else:
        raise ValueError(f"rotary_pos_emb_group_method: got {method!r}, want 'consecutive' or 'alternate'")
    return y.astype(x.dtype)


def activate(x, activations):
    """The product of each activation of its own part of x [.., parts, dim]."""
    def one(name, part):
        return part if name == "linear" else getattr(jax.nn, name)(part)
    y = one(activations[0], x[..., 0, :])
    for n, name in enumerate(activations[1:], 1):
        y = y * one(name, x[..., n, :])
    return y
