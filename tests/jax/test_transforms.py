"""jit, vmap, checkpoint and dropout."""
import pathlib
import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cases import Case, call, make, pack
from plumbline.jax import (AttnBiasType, AttnMaskType, AttnSoftmaxType, QKVLayout, SequenceDescriptor, fused_attn,
                           fused_attn_thd, is_fused_attn_kernel_available)

CASE = Case(mask=AttnMaskType.PADDING_CAUSAL_MASK, bias=AttnBiasType.POST_SCALE_BIAS, shape=(2, 40, 40, 4, 2, 8, 8),
            softmax=AttnSoftmaxType.LEARNABLE_SOFTMAX)


def run(qkv, bias, sink, lengths, seed, dropout=0.0):
    return fused_attn(qkv, bias, SequenceDescriptor.from_seqlens(lengths), seed, CASE.bias, CASE.mask, CASE.layout,
                      CASE.softmax, 0.3, dropout, True, softmax_offset=sink.reshape(1, -1, 1, 1), return_max_logit=True)


def batches(count):
    """Arguments of run(), `count` different ones stacked."""
    made = [make(replace(CASE, seed=n)) for n in range(count)]
    arguments = [(pack(CASE, d), jnp.asarray(d["bias"]), jnp.asarray(d["sink"]), jnp.array([40 - 9 * n, 30], jnp.int32),
                  jnp.array([n, 5], jnp.uint32)) for n, d in enumerate(made)]
    return jax.tree.map(lambda *x: jnp.stack(x), *arguments)


@pytest.mark.parametrize("mapped", [(0, 0, 0, 0, 0), (0, None, None, None, None), (None, 0, None, 0, None),
                                    ((None, 0, 0), None, 0, None, 0)])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_vmap_is_a_loop(mapped, dropout):
    stacked = batches(3)

    def loss(*arguments):
        out, max_logit = run(*arguments, dropout=dropout)
        return (out ** 2).sum(), (out, max_logit)
    grad = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
    full = (mapped[0] if isinstance(mapped[0], tuple) else (mapped[0],) * 3,) + mapped[1:]

    def pick(axis, x, n):
        return x[n] if axis == 0 else x[0]
    given = (tuple(x if a == 0 else x[0] for a, x in zip(full[0], stacked[0])),
             *(x if a == 0 else x[0] for a, x in zip(full[1:], stacked[1:])))
    got = jax.jit(jax.vmap(grad, in_axes=full))(*given)
    assert got[1][1].shape == (3, 4)
    for n in range(3):
        one = (tuple(pick(a, x, n) for a, x in zip(full[0], stacked[0])),
               *(pick(a, x, n) for a, x in zip(full[1:], stacked[1:])))
        for batched, alone in zip(jax.tree.leaves(got), jax.tree.leaves(grad(*one))):
            assert np.array_equal(batched[n], alone)


def test_nested_vmap():
    stacked = batches(6)
    nested = jax.tree.map(lambda x: x.reshape((2, 3) + x.shape[1:]), stacked)
    out, max_logit = jax.vmap(jax.vmap(run, in_axes=(0, None, 0, 0, 0)), in_axes=(0, 0, None, 0, 0))(
        nested[0], nested[1][:, 0], nested[2][0], nested[3], nested[4])
    assert max_logit.shape == (2, 3, 4)
    for a, b in np.ndindex(2, 3):
        want = run(jax.tree.map(lambda x: x[a, b], nested[0]), nested[1][a, 0], nested[2][0, b], nested[3][a, b], nested[4][a, b])
        assert np.array_equal(out[a, b], want[0]) and np.array_equal(max_logit[a, b], want[1])


def test_checkpoint_gives_the_same_gradients():
    data = make(CASE)
    qkv, bias, sink = pack(CASE, data), jnp.asarray(data["bias"]), jnp.asarray(data["sink"])

    def loss(qkv):
        out, max_logit = call(CASE, data, qkv, bias, sink, context_checkpoint_name="kept")
        return (out ** 2).sum(), max_logit
    want = jax.grad(loss, has_aux=True)(qkv)
    policies = jax.checkpoint_policies
    for policy in (None, policies.save_only_these_names("kept"), policies.nothing_saveable):
        got = jax.jit(jax.grad(jax.checkpoint(loss, policy=policy), has_aux=True))(qkv)
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
            assert np.array_equal(one, other)
    saved = str(jax.make_jaxpr(jax.grad(lambda x: jax.checkpoint(loss, policy=policies.save_only_these_names("kept"))(x)[0]))(qkv))
    dropped = str(jax.make_jaxpr(jax.grad(lambda x: jax.checkpoint(loss, policy=policies.nothing_saveable)(x)[0]))(qkv))
    assert saved.count("plumbline_fused_attention ") <= dropped.count("plumbline_fused_attention ")


def test_jit_and_eager_agree():
    data = make(CASE)
    arguments = (pack(CASE, data), jnp.asarray(data["bias"]), jnp.asarray(data["sink"]))
    for eager, jitted in zip(call(CASE, data, *arguments), jax.jit(partial(call, CASE, data))(*arguments)):
        assert np.array_equal(eager, jitted)


@pytest.mark.parametrize("layout", [QKVLayout.BS3HD, QKVLayout.BSHD_BS2HD, QKVLayout.BSHD_BSHD_BSHD])
def test_inputs_are_not_copied(layout):
    case = Case(layout=layout, shape=(2, 40, 40, 4, 4, 8, 8))
    data = make(case)
    qkv = pack(case, data)
    text = jax.jit(lambda qkv: call(case, data, qkv, None, None)).lower(qkv).compile().as_text()
    assert "plumbline_fused_attention" in text and " copy(" not in text and " slice(" not in text


def test_dropout():
    q = jnp.ones((2, 64, 4, 16))
    keys = (q, jnp.zeros((2, 64, 4, 16)), jnp.ones((2, 64, 4, 16)))

    def drop(seed, training=True, dtype=jnp.uint32):
        return fused_attn(keys, None, SequenceDescriptor.from_seqlens(jnp.full(2, 64)), seed and jnp.array(seed, dtype),
                          AttnBiasType.NO_BIAS, AttnMaskType.NO_MASK, QKVLayout.BSHD_BSHD_BSHD,
                          AttnSoftmaxType.VANILLA_SOFTMAX, 1.0, 0.5, training)
    first = np.asarray(drop([1, 2]))
    assert np.array_equal(first, drop([1, 2])) and not np.array_equal(first, drop([1, 3]))
    assert abs(first.mean() - 1) < 0.02 and first.std() > 0.05
    np.testing.assert_allclose(drop(None, training=False), 1.0, rtol=1e-6)
    with pytest.warns(UserWarning):
        assert np.array_equal(first, drop([1, 2], dtype=jnp.int32))
    with pytest.raises(AssertionError):
        drop(None)
    with pytest.raises(AssertionError):
        drop([1])
    typed = fused_attn(keys, None, SequenceDescriptor.from_seqlens(jnp.full(2, 64)), jax.random.key(7), AttnBiasType.NO_BIAS,
                       AttnMaskType.NO_MASK, QKVLayout.BSHD_BSHD_BSHD, AttnSoftmaxType.VANILLA_SOFTMAX, 1.0, 0.5, True)
    assert np.array_equal(typed, drop(jax.random.key_data(jax.random.key(7)).tolist()))


def test_fused_attn_thd():
    case = Case(layout=QKVLayout.THD_THD_THD, mask=AttnMaskType.PADDING_CAUSAL_MASK, descriptor="offsets")
    data = make(case)

    def widen(x, tokens):
        return jnp.pad(x, ((0, 0), (0, tokens - x.shape[1])), constant_values=-1)
    d = data["descriptor"]
    lengths, starts = [widen(x, 96) for x in d.seqlens], [widen(x, 97) for x in d.seq_offsets]
    with pytest.warns(DeprecationWarning):
        out = fused_attn_thd(pack(case, data), None, *lengths, *starts, None, AttnBiasType.NO_BIAS, case.mask, case.layout,
                             float(data["scale"]), 0.0, True, max_segments_per_seq=2)
    assert np.array_equal(out, call(case, data, pack(case, data), None, None)[0])


def test_probe():
    def available(q=jnp.bfloat16, kv=jnp.bfloat16, layout=QKVLayout.BSHD_BSHD_BSHD, mask=AttnMaskType.CAUSAL_MASK, heads=4,
                  kv_heads=2, v_dim=64, **more):
        return is_fused_attn_kernel_available(True, q, kv, layout, AttnBiasType.PRE_SCALE_BIAS, mask,
                                              AttnSoftmaxType.LEARNABLE_SOFTMAX, 0.1, heads, kv_heads, 128, 128, 64, v_dim, **more)
    assert available() and available(v_dim=7) and available(window_size=(5, 0), return_max_logit=True)
    assert not available(q=jnp.float32) and not available(q=jnp.float64, kv=jnp.float64) and not available(heads=3)
    assert not available(layout=QKVLayout.THD_THD_THD) and not available(layout=QKVLayout.BS3HD)
    assert not available(layout=QKVLayout.BSHD_BS2HD, v_dim=32)


def test_example_of_the_documentation():
    page = (pathlib.Path(__file__).parents[2] / "docs/jax.md").read_text()
    names = {}
    exec(re.search(r"^```python\n(.*?)^```", page, re.M | re.S).group(1), names)
    assert names["out"].shape == (2, 128, 4, 64) and names["max_logit"].tolist() == [8.0] * 4
