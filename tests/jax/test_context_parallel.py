"""Sequences over the ranks of a mesh axis: by all-gather bit for bit one device, round a ring within float32."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from plumbline.jax import (AttnBiasType, AttnMaskType, AttnSoftmaxType, CPStrategy, MeshResource, QKVLayout,
                           ReorderStrategy, SequenceDescriptor, fused_attn, global_shard_guard,
                           inverse_reorder_causal_load_balancing, reorder_causal_load_balancing)

BATCH, TOKENS, HEADS, DIM = 2, 64, 4, 16


def packed_rows(tokens, segments, seed=7):
    """Ids and positions of rows cut into segments of random lengths, each with padding after it."""
    generator = np.random.default_rng(seed)
    ids, pos = np.zeros((BATCH, tokens), np.int32), np.zeros((BATCH, tokens), np.int32)
    for b in range(BATCH):
        cuts = np.sort(generator.choice(np.arange(1, tokens), segments - 1, replace=False))
        for n, (begin, end) in enumerate(zip(np.r_[0, cuts], np.r_[cuts, tokens])):
            valid = generator.integers(1, end - begin + 1)
            ids[b, begin:begin + valid] = n + 1
            pos[b, begin:end] = np.arange(end - begin)
    return ids, pos


def make(layout, kv_heads, dtype, tokens=TOKENS):
    keys = jax.random.split(jax.random.key(3), 4)
    q = jax.random.uniform(keys[0], (BATCH, tokens, HEADS, DIM), minval=-1, maxval=1).astype(dtype)
    k, v = (jax.random.uniform(key, (BATCH, tokens, kv_heads, DIM), minval=-1, maxval=1).astype(dtype) for key in keys[1:3])
    d_out = jax.random.uniform(keys[3], q.shape, minval=-1, maxval=1)
    return ((q, jnp.stack([k, v], 2)) if layout.is_kvpacked() else (q, k, v)), d_out


def run(qkv, d_out, descriptor, mask, layout, **more):
    def loss(qkv):
        out, max_logit = fused_attn(qkv, None, descriptor, None, AttnBiasType.NO_BIAS, mask, layout,
                                    AttnSoftmaxType.VANILLA_SOFTMAX, DIM ** -0.5, 0.0, True,
                                    max_segments_per_seq=5 if layout.is_thd() else 1, return_max_logit=True, **more)
        return (out.astype(jnp.float32) * d_out).sum(), (out, max_logit)
    grads, (out, max_logit) = jax.grad(loss, has_aux=True)(qkv)
    return out, max_logit, grads


def over_mesh(qkv, d_out, tokens, mask, layout, mesh, strategy, order, stripe=None, window=None):
    """run() with the sequence over axis cp, dealt by `order` and put back."""
    deal = (lambda x: x) if order is None else partial(reorder_causal_load_balancing, strategy=order,
                                                       cp_size=mesh.shape["cp"], seq_dim=1, stripe_size=stripe)
    back = (lambda x: x) if order is None else partial(inverse_reorder_causal_load_balancing, strategy=order,
                                                       cp_size=mesh.shape["cp"], seq_dim=1, stripe_size=stripe)

    rows = tuple(axis for axis in ("dp", "fsdp") if axis in mesh.shape)

    def put(x):
        spec = P(rows, "cp") if x.ndim < 4 else P(rows, "cp", *([None] * (x.ndim - 4)), "tp", None)
        return jax.device_put(deal(x), NamedSharding(mesh, spec))
    ids, pos = (put(jnp.asarray(x)) for x in tokens)
    descriptor = SequenceDescriptor.from_segment_ids_and_pos(ids, pos)
    call = jax.jit(partial(run, mask=mask, layout=layout, context_parallel_strategy=strategy, stripe_size=stripe,
                           context_parallel_causal_load_balanced=order is not None, window_size=window))
    with mesh, global_shard_guard(MeshResource(dp_resource="dp", cp_resource="cp", tp_resource="tp", fsdp_resource=rows[1] if rows[1:] else None)):
        out, max_logit, grads = call(jax.tree.map(put, qkv), put(d_out), descriptor)
    assert max_logit.sharding.is_equivalent_to(NamedSharding(mesh, P("tp")), 1)
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P(rows, "cp", "tp")), 4)
    return back(out), max_logit, jax.tree.map(back, grads)


def make_mesh(dp, cp, tp):
    return Mesh(np.array(jax.devices()[:dp * cp * tp]).reshape(dp, cp, tp), ("dp", "cp", "tp"))


def check(layout, mask, mesh, strategy, order, stripe=None, window=None, kv_heads=2, dtype=jnp.bfloat16):
    qkv, d_out = make(layout, kv_heads, dtype)
    tokens = packed_rows(TOKENS, 5) if layout.is_thd() else (np.ones((BATCH, TOKENS), np.int32),
                                                             np.tile(np.arange(TOKENS, dtype=np.int32), (BATCH, 1)))
    descriptor = SequenceDescriptor.from_segment_ids_and_pos(*map(jnp.asarray, tokens))
    want = jax.jit(partial(run, mask=mask, layout=layout, window_size=window))(qkv, d_out, descriptor)
    got = over_mesh(qkv, d_out, tokens, mask, layout, mesh, strategy, order, stripe, window)
    assert np.array_equal(got[1], want[1])
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        if strategy == CPStrategy.RING:
            one, other = (np.asarray(x.astype(jnp.float32)) for x in (one, other))
            tolerance = 1e-2 if dtype == jnp.bfloat16 else 1e-5
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.abs(other).max())
        else:
            assert np.array_equal(one, other)
    return got


MESHES = [(1, 2, 1), (1, 4, 2), (2, 2, 2), (1, 8, 1)]
BSHD = [QKVLayout.BSHD_BS2HD, QKVLayout.BSHD_BSHD_BSHD]
THD = [QKVLayout.THD_T2HD, QKVLayout.THD_THD_THD]


@pytest.mark.parametrize("strategy", [CPStrategy.ALL_GATHER, CPStrategy.RING])
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("mask,balanced", [(AttnMaskType.CAUSAL_MASK, True), (AttnMaskType.CAUSAL_MASK, False),
                                           (AttnMaskType.NO_MASK, False)])
def test_whole_rows(mask, balanced, mesh, strategy):
    order = ReorderStrategy.DualChunkSwap if balanced else None
    layout = BSHD[MESHES.index(mesh) % 2]
    check(layout, mask, make_mesh(*mesh), strategy, order, dtype=[jnp.bfloat16, jnp.float32][mesh[2] - 1])


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("strategy,stripe,window", [
    (CPStrategy.ALL_GATHER, 1, None), (CPStrategy.ALL_GATHER, 4, None), (CPStrategy.ALL_GATHER, 4, (5, 0)),
    (CPStrategy.RING, 1, None), (CPStrategy.RING, 1, (20, 0))])
def test_packed_rows(strategy, stripe, window, mesh):
    check(THD[MESHES.index(mesh) % 2], AttnMaskType.PADDING_CAUSAL_MASK, make_mesh(*mesh), strategy,
          ReorderStrategy.Striped, stripe, window, kv_heads=[4, 2][MESHES.index(mesh) % 2])


@pytest.mark.parametrize("strategy", [CPStrategy.ALL_GATHER, CPStrategy.RING])
@pytest.mark.parametrize("mask,balanced,window", [
    (AttnMaskType.NO_MASK, False, (-1, 9)), (AttnMaskType.NO_MASK, True, (-1, 9)), (AttnMaskType.NO_MASK, True, None),
    (AttnMaskType.CAUSAL_MASK, True, (-1, 0)), (AttnMaskType.CAUSAL_MASK, False, (-1, 3))])
def test_windows_of_whole_rows(mask, balanced, window, strategy):
    """Only keys to the right can be limited there."""
    order = ReorderStrategy.DualChunkSwap if balanced else None
    check(BSHD[balanced], mask, make_mesh(1, 4, 1), strategy, order, window=window, dtype=jnp.float32)


@pytest.mark.parametrize("strategy,stripe,window", [
    (CPStrategy.ALL_GATHER, 1, (5, 0)), (CPStrategy.ALL_GATHER, 2, (20, 0)), (CPStrategy.ALL_GATHER, 16, (9, 2)),
    (CPStrategy.RING, 1, (5, 0)), (CPStrategy.RING, None, (9, 2)), (CPStrategy.RING, 1, (0, 0))])
def test_windows_of_packed_rows(strategy, stripe, window):
    layout = THD[window[0] == 5]
    check(layout, AttnMaskType.PADDING_CAUSAL_MASK, make_mesh(1, 4, 1), strategy, ReorderStrategy.Striped, stripe, window,
          kv_heads=1 if layout.is_kvpacked() else 4, dtype=jnp.float32)


@pytest.mark.parametrize("strategy", [CPStrategy.ALL_GATHER, CPStrategy.RING])
@pytest.mark.parametrize("packed", [False, True])
def test_with_fully_sharded_rows(packed, strategy):
    mesh = Mesh(np.array(jax.devices()[:8]).reshape((1, 2, 4, 1) if packed else (1, 2, 2, 2)), ("dp", "fsdp", "cp", "tp"))
    layout, mask = (THD[1], AttnMaskType.PADDING_CAUSAL_MASK) if packed else (BSHD[1], AttnMaskType.CAUSAL_MASK)
    order = ReorderStrategy.Striped if packed else ReorderStrategy.DualChunkSwap
    check(layout, mask, mesh, strategy, order, 1 if packed else None, (7, 0) if packed else None)


@pytest.mark.parametrize("packed", [False, True])
def test_a_ring_has_the_bits_of_its_number_of_ranks(packed):
    layout, mask = (THD[1], AttnMaskType.PADDING_CAUSAL_MASK) if packed else (BSHD[1], AttnMaskType.CAUSAL_MASK)
    order, stripe = (ReorderStrategy.Striped, 1) if packed else (ReorderStrategy.DualChunkSwap, None)
    alone, among = (check(layout, mask, make_mesh(*sizes), CPStrategy.RING, order, stripe)
                    for sizes in ((1, 2, 1), (2, 2, 2)))
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(among)):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("strategy", [CPStrategy.ALL_GATHER, CPStrategy.RING])
def test_inside_shard_map(strategy):
    layout, mesh = QKVLayout.BSHD_BSHD_BSHD, make_mesh(2, 2, 2)
    qkv, d_out = make(layout, 2, jnp.float32)
    ids = jnp.ones((BATCH, TOKENS), jnp.int32)
    descriptor = SequenceDescriptor.from_segment_ids_and_pos(ids, jnp.broadcast_to(jnp.arange(TOKENS), ids.shape))
    want = run(qkv, d_out, descriptor, AttnMaskType.CAUSAL_MASK, layout)
    spec = P("dp", "cp", "tp", None)

    def local(qkv, d_out, descriptor):
        return run(qkv, d_out, descriptor, AttnMaskType.CAUSAL_MASK, layout, context_parallel_axis="cp",
                   context_parallel_strategy=strategy)
    descriptor_specs = jax.tree.map(lambda x: P("dp", "cp") if x.size else P(), descriptor)
    with global_shard_guard(MeshResource(dp_resource="dp")):
        got = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=((spec,) * 3, spec, descriptor_specs),
                                    out_specs=(spec, P("tp"), (spec,) * 3)))(qkv, d_out, descriptor)
    assert np.array_equal(got[1], want[1])
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 if strategy == CPStrategy.RING else 0)


def test_reorder():
    def order(strategy, size, stripe=None):
        return np.asarray(reorder_causal_load_balancing(jnp.arange(16), strategy, size, 0, stripe)).tolist()
    assert order(ReorderStrategy.DualChunkSwap, 4) == [0, 1, 14, 15, 2, 3, 12, 13, 4, 5, 10, 11, 6, 7, 8, 9]
    assert order(ReorderStrategy.Striped, 4, 1) == [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]
    assert order(ReorderStrategy.Striped, 2, 2) == [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
    x = jax.random.uniform(jax.random.key(0), (2, 64, 3))
    for size in (2, 4, 8):
        for strategy, stripe in ((ReorderStrategy.DualChunkSwap, None), (ReorderStrategy.Striped, 1),
                                 (ReorderStrategy.Striped, 4)):
            there = reorder_causal_load_balancing(x, strategy, size, 1, stripe)
            assert np.array_equal(inverse_reorder_causal_load_balancing(there, strategy, size, 1, stripe), x)
    for arguments in ((ReorderStrategy.DualChunkSwap, 3, 0), (ReorderStrategy.DualChunkSwap, 16, 0),
                      (ReorderStrategy.DualChunkSwap, 4, 0, 1), (ReorderStrategy.Striped, 4, 0, 0)):
        with pytest.raises(ValueError):
            reorder_causal_load_balancing(jnp.arange(16), *arguments)


@pytest.mark.parametrize("change,error", [
    (dict(attn_bias_type=AttnBiasType.POST_SCALE_BIAS, bias=jnp.zeros((1, HEADS, TOKENS, TOKENS))), ValueError),
    (dict(dropout_probability=0.1, seed=jnp.zeros(2, jnp.uint32)), ValueError),
    (dict(softmax_type=AttnSoftmaxType.OFF_BY_ONE_SOFTMAX), ValueError), (dict(stripe_size=1), ValueError),
    (dict(attn_mask_type=AttnMaskType.PADDING_MASK), ValueError), (dict(window_size=(4, 0)), AssertionError),
    (dict(context_parallel_axis="nowhere"), ValueError)])
def test_refusals(change, error):
    qkv, _ = make(QKVLayout.BSHD_BSHD_BSHD, 2, jnp.float32)
    arguments = dict(bias=None, sequence_descriptor=SequenceDescriptor.from_seqlens(jnp.full(BATCH, TOKENS)), seed=None,
                     attn_bias_type=AttnBiasType.NO_BIAS, attn_mask_type=AttnMaskType.CAUSAL_MASK,
                     qkv_layout=QKVLayout.BSHD_BSHD_BSHD, softmax_type=AttnSoftmaxType.VANILLA_SOFTMAX,
                     scaling_factor=1.0, dropout_probability=0.0, is_training=True, context_parallel_axis="cp")
    with make_mesh(1, 2, 1), pytest.raises(error):
        fused_attn(qkv, **(arguments | change))
