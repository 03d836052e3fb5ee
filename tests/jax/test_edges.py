"""Padding, empty rows, packing and the laws of the maximum."""
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cases import Case, call, check, fused_results, make, pack, plain_results
from plumbline.jax import AttnBiasType, AttnMaskType, AttnSoftmaxType, QKVLayout, SequenceDescriptor

PADDED = Case(mask=AttnMaskType.PADDING_CAUSAL_MASK, shape=(3, 70, 70, 4, 2, 16, 16))


@pytest.mark.parametrize("softmax", list(AttnSoftmaxType))
def test_row_of_padding_alone_and_empty_heads(softmax):
    case = replace(PADDED, softmax=softmax)
    data = make(case)
    data["descriptor"] = SequenceDescriptor.from_seqlens((jnp.array([0, 70, 3], jnp.int32),) * 2)
    out, max_logit, grads = fused_results(case, data)
    assert not np.asarray(out)[0].any() and not np.asarray(out)[2, 3:].any()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(grads)) and np.isfinite(max_logit).all()
    data["descriptor"] = SequenceDescriptor.from_seqlens((jnp.zeros(3, jnp.int32),) * 2)
    out, max_logit, grads = fused_results(case, data)
    assert np.array_equal(max_logit, np.full(4, -np.inf, np.float32))
    assert not any(np.asarray(x).any() for x in jax.tree.leaves((out, grads)))


@pytest.mark.parametrize("garbage", [1e4, np.nan])
def test_padding_does_not_leak(garbage):
    data = make(PADDED)
    clean = fused_results(PADDED, data)
    dead = data["ids"][0] == 0
    for name in "qkv":
        data[name] = data[name].copy()
        data[name][dead] = garbage
    for got, want in zip(jax.tree.leaves(fused_results(PADDED, data)), jax.tree.leaves(clean)):
        assert np.array_equal(got, want)


def test_segment_empty_on_one_side_shifts_nothing():
    case = Case(layout=QKVLayout.THD_THD_THD, mask=AttnMaskType.PADDING_MASK, shape=(2, 12, 16, 2, 1, 8, 8))
    data = make(case)
    q = (np.array([[4, 3, 5], [0, 6, 6]], np.int32), np.array([[0, 4, 7, 12], [0, 0, 6, 12]], np.int32))
    kv = (np.array([[5, 0, 6], [4, 5, 7]], np.int32), np.array([[0, 5, 5, 11], [0, 4, 9, 16]], np.int32))
    data["descriptor"] = SequenceDescriptor.from_seqlens_and_offsets(tuple(map(jnp.asarray, (q[0], kv[0]))),
                                                                     tuple(map(jnp.asarray, (q[1], kv[1]))))

    def ids(lengths, starts, tokens):
        made = np.zeros((2, tokens), np.int32)
        for b in range(2):
            for n in range(3):
                made[b, starts[b, n]:starts[b, n] + lengths[b, n]] = n + 1
        return made
    q_ids, kv_ids = ids(*q, 12), ids(*kv, 16)
    data["allowed"] = (q_ids[:, :, None] == kv_ids[:, None]) & (q_ids[:, :, None] > 0)
    out, max_logit, grads = fused_results(case, data, max_segments_per_seq=3)
    want_out, want_max, want = plain_results(case, data)
    np.testing.assert_allclose(out, want_out, atol=1e-5)
    np.testing.assert_allclose(max_logit, want_max, atol=1e-5)
    for got, expected in zip(grads[0], want):
        np.testing.assert_allclose(got, expected, atol=1e-4)


def test_more_segments_than_said_is_an_error():
    case = Case(layout=QKVLayout.THD_THD_THD, mask=AttnMaskType.PADDING_MASK)
    data = make(case)
    with pytest.raises(jax.errors.JaxRuntimeError, match="max_segments_per_seq = 1"):
        jax.block_until_ready(call(case, data, pack(case, data), None, None, max_segments_per_seq=1))


def test_negative_logits_alone():
    data = make(Case())
    data["q"], data["k"] = np.abs(data["q"]) + 0.1, -np.abs(data["k"]) - 0.1
    _, max_logit, _ = fused_results(Case(), data)
    assert (np.asarray(max_logit) < 0).all()
    np.testing.assert_allclose(max_logit, plain_results(Case(), data)[1], rtol=1e-5)


def test_nan_is_reported_for_its_head_alone():
    data = make(Case())
    data["q"] = data["q"].copy()
    data["q"][0, 3, 1, 0] = np.nan
    assert np.isnan(fused_results(Case(), data)[1]).tolist() == [False, True, False, False]


def test_maximum_of_permuted_batch_scaled_queries_and_each_query_head():
    data = make(Case())
    max_logit = np.asarray(fused_results(Case(), data)[1])
    turned = dict(data, q=data["q"][::-1], k=data["k"][::-1], v=data["v"][::-1])
    assert np.array_equal(fused_results(Case(), turned)[1], max_logit)
    assert np.array_equal(fused_results(Case(), dict(data, q=4 * data["q"]))[1], 4 * max_logit)
    one = dict(data, q=data["q"].copy())
    one["q"][:, :, 2] *= 8
    changed = np.asarray(fused_results(Case(), one)[1])
    assert changed[2] == 8 * max_logit[2] and np.array_equal(np.delete(changed, 2), np.delete(max_logit, 2))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("bias", [AttnBiasType.NO_BIAS, AttnBiasType.POST_SCALE_BIAS])
def test_asking_for_the_maximum_changes_no_bit(bias, dtype):
    case = replace(PADDED, dtype=dtype, bias=bias)
    data = make(case)
    qkv, array, sink = pack(case, data), jnp.asarray(data["bias"], dtype), None

    def loss(qkv, asked):
        out = call(case, data, qkv, array, sink, return_max_logit=asked)
        out = out[0] if asked else out
        return out.astype(jnp.float32).sum(), out
    for asked, plain in zip(*(jax.tree.leaves(jax.grad(loss, has_aux=True)(qkv, asked)) for asked in (True, False))):
        assert np.array_equal(asked, plain)


def test_cotangent_of_the_maximum_is_ignored():
    data = make(PADDED)
    qkv = pack(PADDED, data)
    with_max = jax.grad(lambda x: (lambda o, m: o.sum() + 100 * m.sum())(*call(PADDED, data, x, None, None)))(qkv)
    without = jax.grad(lambda x: call(PADDED, data, x, None, None)[0].sum())(qkv)
    for got, want in zip(with_max, without):
        assert np.array_equal(got, want)
    only = jax.grad(lambda x: call(PADDED, data, x, None, None)[1].sum())(qkv)
    assert not any(np.asarray(x).any() for x in only)


def test_window_is_a_mask_for_the_maximum():
    check(Case(window=(3, 2), shape=(1, 40, 40, 2, 2, 8, 8)))
    check(Case(window=(0, 0), mask=AttnMaskType.CAUSAL_MASK, shape=(1, 40, 40, 2, 2, 8, 8)))
