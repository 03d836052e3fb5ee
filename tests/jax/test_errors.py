"""What fused_attn refuses, and how."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plain
import plumbline.jax.attention
from plumbline.jax import (AttnBiasType, AttnMaskType, AttnSoftmaxType, MeshResource, QKVLayout, SequenceDescriptor,
                           autocast, canonicalize_attn_mask_type, fp8_autocast, fused_attn, global_mesh_resource,
                           make_swa_mask)

Q, K = jnp.ones((2, 8, 4, 16)), jnp.ones((2, 12, 2, 16))
LENGTHS = SequenceDescriptor.from_seqlens((jnp.array([8, 8]), jnp.array([12, 12])))
GOOD = dict(qkv=(Q, K, K), bias=None, sequence_descriptor=LENGTHS, seed=None, attn_bias_type=AttnBiasType.NO_BIAS,
            attn_mask_type=AttnMaskType.PADDING_MASK, qkv_layout=QKVLayout.BSHD_BSHD_BSHD,
            softmax_type=AttnSoftmaxType.VANILLA_SOFTMAX, scaling_factor=0.25, dropout_probability=0.0, is_training=True)
BIAS = jnp.zeros((1, 4, 8, 12))
POST = AttnBiasType.POST_SCALE_BIAS
CASES = [
    (dict(qkv=(Q, K)), AssertionError), (dict(qkv_layout="bshd"), ValueError),
    (dict(qkv=(Q, K.astype(jnp.bfloat16), K)), AssertionError), (dict(qkv=(Q, K[:1], K[:1])), AssertionError),
    (dict(qkv=(Q, K, K[:, :3])), AssertionError), (dict(qkv=(Q, K, K[:, :, :1])), AssertionError),
    (dict(qkv=(Q, K[..., :8], K)), AssertionError), (dict(qkv=(Q[:, :, :3], K, K)), AssertionError),
    (dict(bias=BIAS), AssertionError), (dict(attn_bias_type=POST), AssertionError),
    (dict(attn_bias_type=POST, bias=BIAS.astype(jnp.bfloat16)), AssertionError),
    (dict(attn_bias_type=POST, bias=BIAS[:, :3]), AssertionError),
    (dict(softmax_type=AttnSoftmaxType.LEARNABLE_SOFTMAX), AssertionError),
    (dict(softmax_type=AttnSoftmaxType.LEARNABLE_SOFTMAX, softmax_offset=jnp.zeros((1, 4, 1, 1), jnp.bfloat16)), AssertionError),
    (dict(softmax_offset=jnp.zeros((1, 4, 1, 1))), AssertionError),
    (dict(dropout_probability=0.1), AssertionError), (dict(qkv=tuple(x.astype(jnp.int32) for x in (Q, K, K))), ValueError),
    (dict(score_mod_tensors={}), ValueError), (dict(score_mod_bprop=lambda g, s, t: s), ValueError),
    (dict(qkv_layout=QKVLayout.THD_THD_THD, attn_mask_type=AttnMaskType.CAUSAL_MASK), ValueError),
    (dict(qkv_layout=QKVLayout.THD_THD_THD), ValueError),
]


@pytest.mark.parametrize("change,error", CASES, ids=lambda x: ",".join(x) if isinstance(x, dict) else x.__name__)
def test_refused(change, error):
    with pytest.raises(error):
        fused_attn(**(GOOD | change))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("change,error", [
    (dict(max_segments_per_seq=2), ValueError), (dict(qkv_layout=QKVLayout.THD_THD_THD), AssertionError), ({}, AssertionError)])
def test_refused_without_descriptor(change, error):
    with pytest.raises(error):
        fused_attn(**(GOOD | dict(sequence_descriptor=None) | change))


def test_warnings():
    with pytest.warns(UserWarning, match="max_segments_per_seq"):
        fused_attn(**(GOOD | dict(max_segments_per_seq=2)))
    with pytest.warns(DeprecationWarning, match="SequenceDescriptor"):
        out = fused_attn(**(GOOD | dict(sequence_descriptor=None, attn_mask_type=AttnMaskType.NO_MASK)))
    assert isinstance(out, jax.Array)


def test_descriptors():
    ids = jnp.ones((2, 8), jnp.int32)
    with pytest.raises(ValueError):
        SequenceDescriptor.from_segment_ids_and_pos(ids, None)
    with pytest.raises(TypeError):
        SequenceDescriptor.from_seqlens((ids, ids, ids))
    with pytest.raises(TypeError):
        SequenceDescriptor.from_seqlens("8")
    with pytest.raises(AssertionError):
        SequenceDescriptor.from_segment_ids_and_pos(ids[0], ids)
    with pytest.raises(AssertionError):
        SequenceDescriptor.from_segment_ids_and_pos(ids, ids[:, :4])
    made = SequenceDescriptor.from_segment_ids_and_pos(jnp.ones((3, 2, 8), jnp.int32), ids)
    assert len(jax.tree.leaves(made)) == 8 and made.seqlens[0].size == 0


def test_segments_that_overlap_or_leave_their_row():
    thd = dict(qkv=(Q,) * 3, qkv_layout=QKVLayout.THD_THD_THD, max_segments_per_seq=2)

    def run(lengths, starts):
        pairs = jnp.array([lengths] * 2), jnp.array([starts + [-1]] * 2)
        return jax.block_until_ready(fused_attn(**(GOOD | thd | dict(
            sequence_descriptor=SequenceDescriptor.from_seqlens_and_offsets(*pairs)))))
    run([4, 4], [0, 4])
    run([4, -1], [2, -1])
    for lengths, starts in (([5, 4], [0, 4]), ([4, 5], [0, 4]), ([4, 2], [0, -1])):
        with pytest.raises(Exception, match="overlap"):
            run(lengths, starts)


def test_masks_of_windows():
    generator = np.random.default_rng(5)
    ids = [np.sort(generator.integers(1, 4, (2, n)), axis=1).astype(np.int32) for n in (9, 13)]
    pos = [np.stack([np.concatenate([np.arange((row == s).sum()) for s in np.unique(row)]) for row in side]) for side in ids]
    same = (ids[0][:, :, None] == ids[1][:, None]).astype(bool)
    for window in (None, (3, 2), (-1, 1), (2, -1)):
        for mask in (AttnMaskType.PADDING_MASK, AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK):
            bottom = dict(segment_ids_q=ids[0], segment_ids_kv=ids[1]) if mask.is_bottom_right() else {}
            got = make_swa_mask(*pos, window, jnp.bool_, **bottom)
            assert got.shape == (2, 1, 9, 13) and got.dtype == jnp.bool_
            if mask.is_bottom_right():  # causality bounds the right
                window = None if window is None else (window[0], 0)
                causal = plain.allowed_pairs(mask, (-1, -1), *ids, *pos)
                got = got[:, 0] & causal
            else:
                got = got[:, 0] & same
            assert np.array_equal(got, plain.allowed_pairs(mask, window or (-1, -1), *ids, *pos))
    assert make_swa_mask(*pos).dtype == jnp.float32
    assert canonicalize_attn_mask_type("bottom_right_causal_padding") == AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK
    with pytest.raises(ValueError):
        canonicalize_attn_mask_type("sideways")


def test_fp8_is_refused():
    with autocast(), fp8_autocast(mesh_resource=MeshResource(dp_resource="dp")):
        assert global_mesh_resource().dp_resource == "dp"
    for refused in (lambda: autocast(enabled=True), lambda: fp8_autocast(enabled=True), lambda: fp8_autocast(fp8_recipe=object())):
        with pytest.raises(ValueError, match="FP8"), refused():
            pass


def test_every_name_is_where_programs_look_for_it():
    for name in ("fused_attn", "fused_attn_thd", "SequenceDescriptor", "is_fused_attn_kernel_available", "QKVFormat",
                 "ReorderStrategy", "CPStrategy", "make_swa_mask", "reorder_causal_load_balancing"):
        assert getattr(plumbline.jax.attention, name) is getattr(plumbline.jax, name)


SCORE = {k: v for k, v in GOOD.items()} | dict(qkv=(Q, K, K), sequence_descriptor=None, attn_mask_type=AttnMaskType.NO_MASK)


def soft_cap(graph, score, tensors):
    return tensors["cap"] * graph.tanh(score / tensors["cap"]) + tensors["shift"]


def test_score_mod():
    keys = jax.random.split(jax.random.key(0), 3)
    qkv = tuple(jax.random.normal(key, x.shape) for key, x in zip(keys, (Q, K, K)))
    tensors = dict(cap=2.0, shift=jnp.linspace(0, 1, 12).reshape(1, 1, 1, 12))

    def by_hand(qkv):
        q, k, v = qkv
        k, v = jnp.repeat(k, 2, axis=2), jnp.repeat(v, 2, axis=2)
        x = 2.0 * jnp.tanh(jnp.einsum("bihd,bjhd->bhij", q, k) * 0.25 / 2.0) + tensors["shift"]
        return jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(x, axis=-1), v)

    def fused(qkv, **more):
        return fused_attn(**(SCORE | dict(qkv=qkv, score_mod=soft_cap, score_mod_tensors=tensors) | more))
    np.testing.assert_allclose(fused(qkv), by_hand(qkv), atol=1e-5)
    want = jax.grad(lambda x: (by_hand(x) ** 2).sum())(qkv)
    for more in ({}, dict(score_mod_bprop=lambda graph, d, t: d * (1 - graph.tanh(t["score"] / t["cap"]) ** 2),
                          score_mod_bprop_tensors=dict(cap=2.0))):
        for got, one in zip(jax.grad(lambda x: (fused(x, **more) ** 2).sum())(qkv), want):
            np.testing.assert_allclose(got, one, atol=1e-4)


@pytest.mark.parametrize("change", [
    dict(return_max_logit=True), dict(seed=jnp.zeros(2, jnp.uint32)), dict(sequence_descriptor=LENGTHS), dict(window_size=(3, 0)),
    dict(attn_mask_type=AttnMaskType.CAUSAL_MASK), dict(softmax_type=AttnSoftmaxType.OFF_BY_ONE_SOFTMAX), dict(stripe_size=1),
    dict(bias=BIAS, attn_bias_type=POST), dict(max_segments_per_seq=2), dict(dropout_probability=0.5),
    dict(score_mod_tensors={3: 1.0}), dict(score_mod_tensors=dict(cap=jnp.float32(1))),
    dict(qkv=(Q, jnp.stack([K, K], 2)), qkv_layout=QKVLayout.BSHD_BS2HD)], ids=lambda change: ",".join(change))
def test_score_mod_refuses(change):
    given = SCORE | dict(score_mod=soft_cap, score_mod_tensors=dict(cap=2.0, shift=0.0)) | change
    with pytest.raises(ValueError):
        fused_attn(**given)
