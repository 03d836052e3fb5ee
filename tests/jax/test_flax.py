"""DotProductAttention."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plumbline.jax import (AttnBiasType, AttnMaskType, AttnSoftmaxType, QKVLayout, SequenceDescriptor, fused_attn)
from plumbline.jax.flax import DotProductAttention

KEY = jax.random.key(0)
QKV = tuple(jax.random.uniform(key, (2, 24, heads, 16), minval=-1) for key, heads in zip(jax.random.split(KEY, 3), (4, 2, 2)))
LENGTHS = SequenceDescriptor.from_seqlens(jnp.array([24, 11], jnp.int32))


def attend(*inputs, sequence_descriptor=LENGTHS, rngs=None, deterministic=True, bias=None, mask=None, **fields):
    fields = dict(transpose_batch_sequence=False, attn_mask_type="padding_causal") | fields
    module = DotProductAttention(head_dim=16, num_attention_heads=4, num_gqa_groups=2, **fields)
    return module.apply(module.init({"params": KEY, "dropout": KEY}, *inputs, sequence_descriptor, bias, mask=mask), *inputs,
                        sequence_descriptor, bias, mask=mask, rngs=rngs, deterministic=deterministic)


def expected(qkv=QKV):
    return fused_attn(qkv, None, LENGTHS, None, AttnBiasType.NO_BIAS, AttnMaskType.PADDING_CAUSAL_MASK,
                      QKVLayout.BSHD_BSHD_BSHD, AttnSoftmaxType.VANILLA_SOFTMAX, 0.25, 0.0, False, return_max_logit=True)


def test_dot_product_attention():
    out, max_logit = attend(*QKV, return_max_logit=True)
    want, want_max = expected()
    assert np.array_equal(out, want) and np.array_equal(max_logit, want_max)
    assert np.array_equal(attend(*QKV), want)
    packed = attend(QKV[0], jnp.stack(QKV[1:], axis=2), None, qkv_layout="bshd_bs2hd")
    assert np.array_equal(packed, want)
    turned, turned_max = attend(*(x.swapaxes(0, 1) for x in QKV), return_max_logit=True, transpose_batch_sequence=True)
    assert np.array_equal(turned.swapaxes(0, 1), want) and np.array_equal(turned_max, want_max)


def test_learnable_softmax_has_a_parameter():
    module = DotProductAttention(16, 4, 2, softmax_type="learnable", transpose_batch_sequence=False, return_max_logit=True)
    with pytest.warns(DeprecationWarning):
        variables = module.init(KEY, *QKV)
    offset = jax.tree.leaves(variables["params"]["softmax_offset"])[0]
    assert offset.shape == (1, 4, 1, 1) and offset.dtype == jnp.float32


def test_dropout_draws_only_when_training():
    fields = dict(attention_dropout=0.5)
    still = attend(*QKV, **fields)
    assert np.array_equal(still, expected()[0])
    one, two = (attend(*QKV, deterministic=False, rngs={"dropout": jax.random.key(n)}, **fields) for n in (1, 2))
    assert not np.array_equal(one, two) and not np.array_equal(one, still)


def test_strings_and_refusals():
    for name in ("padding_causal_bottom_right", "bottom_right_causal", "causal_padding"):
        attend(*QKV, attn_mask_type=name)
    for fields in (dict(attn_mask_type="sideways"), dict(softmax_type="hard"), dict(context_parallel_strategy="post"),
                   dict(dtype=jnp.bfloat16), dict(qkv_layout="hbsd"),
                   dict(score_mod=lambda graph, score, tensors: score, return_max_logit=True),
                   dict(mask=jnp.zeros((2, 1, 24, 24), bool))):
        with pytest.raises(ValueError):
            attend(*QKV, **fields)
    with pytest.raises(AssertionError):
        attend(*QKV, attn_bias_type="post_scale_bias")
    attend(*QKV, context_parallel_strategy="allgather")
    with pytest.warns(UserWarning):
        attend(*QKV, transpose_batch_sequence=None)


def test_without_the_kernel(monkeypatch):
    monkeypatch.setenv("NVTE_FUSED_ATTN", "0")
    mask = jnp.arange(24)[None, None, None] >= jnp.array([24, 11])[:, None, None, None]
    mask = mask | mask.swapaxes(2, 3) | (jnp.arange(24)[:, None] < jnp.arange(24))
    with pytest.warns(UserWarning):
        out = attend(*QKV, sequence_descriptor=mask)
    np.testing.assert_allclose(out, expected()[0], atol=1e-5)
    with pytest.raises(ValueError):
        attend(*QKV, return_max_logit=True, sequence_descriptor=mask)
