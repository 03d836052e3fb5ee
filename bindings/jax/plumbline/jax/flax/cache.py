"""Keys and values of the tokens so far, in the collection "cache"."""
import jax
import jax.numpy as jnp

from ..sequence import SequenceDescriptor


class KeyValueCache:
    """The cache of a module, made where `module` is initialized: as long as the keys it is given then."""

    def __init__(self, module, key, value, axis):
        self.axis, self.made = axis, not module.has_variable("cache", "cached_key")
        self.key = module.variable("cache", "cached_key", jnp.zeros, key.shape, key.dtype)
        self.value = module.variable("cache", "cached_value", jnp.zeros, value.shape, value.dtype)
        self.index = module.variable("cache", "cache_index", lambda: jnp.array(0, jnp.int32))
        self.first = self.index.value  # position of the first new token
        self.tokens, self.length = key.shape[axis], self.key.value.shape[axis]

    def append(self, key, value):
        """Every key and value, those of the tokens not yet there being zero."""
        if key.shape[:self.axis] + key.shape[self.axis + 1:] != self.key.value.shape[:self.axis] + self.key.value.shape[self.axis + 1:]:
            raise ValueError(f"decode: got keys {key.shape}, want those of the cache but for the tokens, {self.key.value.shape}")
        for cached, new in ((self.key, key), (self.value, value)):
            cached.value = jax.lax.dynamic_update_slice_in_dim(cached.value, new.astype(cached.value.dtype), self.first, self.axis)
        self.index.value = self.first + self.tokens
        return self.key.value, self.value.value

    def descriptor(self, mask, batch):
        """Who the new tokens may see: what is there, but for keys that `mask` [batch, 1, 1, length] hides."""
        at = jnp.broadcast_to(jnp.arange(self.length, dtype=jnp.int32), (batch, self.length))
        there = at < self.first + self.tokens
        if mask is not None:
            if isinstance(mask, SequenceDescriptor) or mask.ndim != 4 or mask.shape[1:] != (1, 1, self.length):
                raise ValueError(f"mask: got {getattr(mask, 'shape', 'a SequenceDescriptor')}, want None or booleans "
                                 f"[batch, 1, 1, {self.length}] (decode)")
            there &= ~mask[:, 0, 0].astype(bool)
        ids = (jnp.ones((batch, self.tokens), jnp.int32), there.astype(jnp.int32))
        return SequenceDescriptor.from_segment_ids_and_pos(ids, (at[:, :1] * 0 + self.first + jnp.arange(self.tokens, dtype=jnp.int32), at))

    def bias(self, bias):
        """The rows of the new tokens."""
        if bias is None or bias.shape[-2] == self.tokens:
            return bias
        return jax.lax.dynamic_slice_in_dim(bias, self.first, self.tokens, axis=-2)

    def checked(self, out):
        """NaN where the new tokens did not fit."""
        return jnp.where(self.first + self.tokens > self.length, jnp.nan, out).astype(out.dtype)
