"""Which tokens belong together: SequenceDescriptor, and its form for the kernel, a segment and a position for
every token (segment 0: padding)."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp


def _pair(value):
    if isinstance(value, tuple):
        if len(value) != 2:
            raise TypeError(f"sequence descriptor: got a tuple of {len(value)}, want (q, kv)")
        return value
    if isinstance(value, (jax.Array, jax.core.Tracer)) or hasattr(value, "__array__"):
        return (value, value)
    raise TypeError(f"sequence descriptor: got {type(value).__name__}, want an array or a tuple of two")


def _absent():
    return (jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32))


@jax.tree_util.register_pytree_node_class
@dataclass
class SequenceDescriptor:
    """Four pairs of (q, kv) arrays; what a form does not use has size 0. Made by one of three builders."""
    seqlens: tuple = None
    seq_offsets: tuple = None
    segment_ids: tuple = None
    segment_pos: tuple = None

    def __post_init__(self):
        for name, pair in vars(self).items():
            setattr(self, name, _absent() if pair is None else pair)

    def tree_flatten(self):
        return (self.seqlens, self.seq_offsets, self.segment_ids, self.segment_pos), None

    @classmethod
    def tree_unflatten(cls, _, children):
        made = object.__new__(cls)  # children may be anything, None too
        made.seqlens, made.seq_offsets, made.segment_ids, made.segment_pos = children
        return made

    @classmethod
    def from_seqlens(cls, seqlens):
        """[batch] each: row b is its first seqlens[b] tokens."""
        return cls(_pair(seqlens))

    @classmethod
    def from_seqlens_and_offsets(cls, seqlens, seq_offsets):
        """Packed rows: lengths [batch, n], negative for an unused slot; starts [batch, n + 1] in the row, of
        which the last is not used. Segments that overlap or leave the row are an error at run time."""
        return cls(_pair(seqlens), _pair(seq_offsets))

    @classmethod
    def from_segment_ids_and_pos(cls, segment_ids, segment_pos=None):
        """[batch, sequence] each: id 0 is padding; the position of a token inside its segment. Ids may have
        more leading dimensions than positions (of jax.vmap), not fewer."""
        if segment_pos is None:
            raise ValueError("segment_pos: got None, want the position of every token inside its segment")
        ids, positions = _pair(segment_ids), _pair(segment_pos)
        for one, pos in zip(ids, positions):
            assert jnp.ndim(one) >= jnp.ndim(pos), (
                f"segment_ids: got {jnp.ndim(one)} dimensions, want at least the {jnp.ndim(pos)} of segment_pos")
            assert jnp.shape(one)[jnp.ndim(one) - jnp.ndim(pos):] == jnp.shape(pos), (
                f"segment_pos: got shape {jnp.shape(pos)}, want the last dimensions of {jnp.shape(one)}")
        return cls(segment_ids=ids, segment_pos=positions)

    def get_max_segments(self):
        """Slots of a packed row."""
        return self.seqlens[0].shape[-1]


def _from_lengths(lengths, tokens):
    at = jnp.arange(tokens, dtype=jnp.int32)
    segments = (at < lengths.astype(jnp.int32)[:, None]).astype(jnp.int32)
    return segments, jnp.broadcast_to(at, segments.shape)


def _from_offsets(lengths, offsets, tokens):
    """Segment -1, which the kernel refuses, in every token of a row whose segments overlap or leave it."""
    at = jnp.arange(tokens, dtype=jnp.int32)
    lengths, starts = lengths.astype(jnp.int32), offsets.astype(jnp.int32)[:, :lengths.shape[1]]
    segments = jnp.zeros((lengths.shape[0], tokens), jnp.int32)
    positions, covered = segments, segments
    for slot in range(lengths.shape[1]):
        start = starts[:, slot, None]
        inside = (at >= start) & (at < start + lengths[:, slot, None])
        segments = jnp.where(inside, slot + 1, segments)
        positions = jnp.where(inside, at - start, positions)
        covered += inside
    ends = jnp.where(lengths > 0, starts + lengths, 0)
    wrong = (covered > 1).any(1) | ((lengths > 0) & (starts < 0)).any(1) | (ends > tokens).any(1)
    return jnp.where(wrong[:, None], -1, segments), positions


def _side(descriptor, side, batch, tokens, is_thd):
    """Segments and positions [batch, tokens] of q (side 0) or kv (side 1)."""
    ids, pos = descriptor.segment_ids[side], descriptor.segment_pos[side]
    if ids.size:
        if ids.shape != (batch, tokens):
            raise ValueError(f"segment_ids: got {ids.shape}, want {(batch, tokens)}")
        return ids.astype(jnp.int32), jnp.broadcast_to(pos.astype(jnp.int32), ids.shape)
    lengths, offsets = descriptor.seqlens[side], descriptor.seq_offsets[side]
    if is_thd:
        if not offsets.size:
            raise ValueError("sequence descriptor: got lengths alone, want offsets too, or segment ids and positions "
                             "(packed rows)")
        if lengths.shape[0] != batch or offsets.shape != (batch, lengths.shape[1] + 1):
            raise ValueError(f"lengths and offsets: got {lengths.shape} and {offsets.shape}, want [{batch}, n] and "
                             f"[{batch}, n + 1]")
        return _from_offsets(lengths, offsets, tokens)
    if lengths.shape != (batch,):
        raise ValueError(f"seqlens: got {lengths.shape}, want {(batch,)}")
    return _from_lengths(lengths, tokens)


def tokens_of(descriptor, batch, q_tokens, kv_tokens, is_thd):
    """(segments of q, of kv, positions of q, of kv), int32 [batch, tokens] each."""
    q = _side(descriptor, 0, batch, q_tokens, is_thd)
    kv = _side(descriptor, 1, batch, kv_tokens, is_thd)
    return q[0], kv[0], q[1], kv[1]


def descriptor_of_mask(mask, attn_mask_type):
    """Of a boolean mask [batch, 1, q, kv], True = masked, whose padding lies at the ends: the length of q is the
    number of visible rows of column 0; that of kv the visible keys of row 0, or under causality the most of
    any row."""
    visible = jnp.logical_not(mask.astype(bool))[:, 0]
    q_lengths = visible[:, :, 0].sum(-1, dtype=jnp.int32)
    keys = visible.sum(-1, dtype=jnp.int32)
    kv_lengths = keys[:, 0] if not attn_mask_type.is_causal() else keys.max(-1)
    return SequenceDescriptor.from_seqlens((q_lengths, kv_lengths))


def whole_sequences(batch, q_tokens, kv_tokens):
    return SequenceDescriptor.from_seqlens((jnp.full(batch, q_tokens, jnp.int32), jnp.full(batch, kv_tokens, jnp.int32)))
