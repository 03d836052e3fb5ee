"""Inputs, one call and its checks for the grids."""
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

import plain
from plumbline.jax import (AttnBiasType, AttnMaskType, AttnSoftmaxType, QKVLayout, SequenceDescriptor, fused_attn)

# Of the largest magnitude of an array: roundings of inputs to P, dS and results, and of sums of some hundred terms.
TOLERANCE = {jnp.float32: 3e-5, jnp.float16: 6e-3, jnp.bfloat16: 4e-2}


@dataclass
class Case:
    shape: tuple = (2, 96, 96, 4, 2, 16, 16)  # B, Sq, Skv, Hq, Hkv, Dqk, Dv
    layout: QKVLayout = QKVLayout.BSHD_BSHD_BSHD
    mask: AttnMaskType = AttnMaskType.NO_MASK
    softmax: AttnSoftmaxType = AttnSoftmaxType.VANILLA_SOFTMAX
    bias: AttnBiasType = AttnBiasType.NO_BIAS
    bias_shape: str = "1HSS"
    window: tuple = None
    dtype: type = jnp.float32
    descriptor: str = "seqlens"  # or ids, offsets, mask
    seed: int = 0
    data: dict = field(default_factory=dict)


def _segments(generator, batch, tokens, lengths=None):
    """Two packed segments a row, of random lengths, with padding after each; and the lengths."""
    ids, pos = np.zeros((batch, tokens), np.int32), np.zeros((batch, tokens), np.int32)
    slot = tokens // 2
    drawn = lengths if lengths is not None else generator.integers(slot // 3, slot + 1, (batch, 2))
    for b in range(batch):
        for n in range(2):
            ids[b, n * slot:n * slot + drawn[b, n]] = n + 1
            pos[b, n * slot:n * slot + slot] = np.arange(slot)
    return ids, pos, drawn.astype(np.int32)


def _tokens(case, generator):
    batch, q_tokens, kv_tokens = case.shape[:3]
    if case.layout.is_thd():
        q_ids, q_pos, q_len = _segments(generator, batch, q_tokens)
        same = q_tokens == kv_tokens and case.layout.is_qkvpacked()
        kv_ids, kv_pos, kv_len = (q_ids, q_pos, q_len) if same else _segments(generator, batch, kv_tokens)
    else:
        q_len = np.array([q_tokens - (b * q_tokens * 3) // 10 for b in range(batch)], np.int32)
        kv_len = q_len if q_tokens == kv_tokens else np.array([kv_tokens - (b * kv_tokens) // 5 for b in range(batch)], np.int32)
        q_pos, kv_pos = (np.broadcast_to(np.arange(n, dtype=np.int32), (batch, n)) for n in (q_tokens, kv_tokens))
        q_ids, kv_ids = (p < n[:, None] for p, n in ((q_pos, q_len), (kv_pos, kv_len)))
    return dict(ids=(q_ids.astype(np.int32), kv_ids.astype(np.int32)), pos=(q_pos, kv_pos), lengths=(q_len, kv_len))


def _descriptor(case, tokens, allowed):
    if case.descriptor == "mask":
        return jnp.asarray(~allowed[:, None])
    if case.descriptor == "ids":
        return SequenceDescriptor.from_segment_ids_and_pos(tuple(map(jnp.asarray, tokens["ids"])),
                                                           tuple(map(jnp.asarray, tokens["pos"])))
    if case.layout.is_thd():
        starts = [np.broadcast_to(np.array([0, n // 2, -1], np.int32), (case.shape[0], 3)) for n in case.shape[1:3]]
        return SequenceDescriptor.from_seqlens_and_offsets(tuple(map(jnp.asarray, tokens["lengths"])),
                                                           tuple(map(jnp.asarray, starts)))
    return SequenceDescriptor.from_seqlens(tuple(map(jnp.asarray, tokens["lengths"])))


def make(case):
    """The arrays of a case, as NumPy float32 values of its dtype, and who may see whom."""
    generator = np.random.default_rng(42 + case.seed)
    batch, q_tokens, kv_tokens, heads, kv_heads, qk_dim, v_dim = case.shape

    def draw(*shape):
        return np.asarray(jnp.asarray(generator.uniform(-1, 1, shape), case.dtype).astype(jnp.float32))
    tokens = _tokens(case, generator)
    bias_shape = {"1HSS": (1, heads), "B1SS": (batch, 1), "BHSS": (batch, heads), "11SS": (1, 1)}[case.bias_shape]
    window = case.window or (-1, -1)
    allowed = plain.allowed_pairs(case.mask, window, *tokens["ids"], *tokens["pos"])
    return dict(tokens, q=draw(batch, q_tokens, heads, qk_dim), k=draw(batch, kv_tokens, kv_heads, qk_dim),
                v=draw(batch, kv_tokens, kv_heads, v_dim), bias=draw(*bias_shape, q_tokens, kv_tokens),
                sink=np.float32(generator.uniform(-1, 1, heads)), d_out=draw(batch, q_tokens, heads, v_dim),
                allowed=allowed, scale=1 / np.sqrt(qk_dim), descriptor=_descriptor(case, tokens, allowed))


def pack(case, data):
    """qkv as the layout has it, in the dtype of the case."""
    q, k, v = (jnp.asarray(data[name], case.dtype) for name in "qkv")
    if case.layout.is_qkvpacked():
        return (jnp.stack([q, k, v], axis=2),)
    return (q, jnp.stack([k, v], axis=2)) if case.layout.is_kvpacked() else (q, k, v)


def call(case, data, qkv, bias, sink, **more):
    has_bias = case.bias != AttnBiasType.NO_BIAS
    learnable = case.softmax == AttnSoftmaxType.LEARNABLE_SOFTMAX
    arguments = dict(max_segments_per_seq=2 if case.layout.is_thd() else 1, window_size=case.window,
                     softmax_offset=sink.reshape(1, -1, 1, 1) if learnable else None, return_max_logit=True)
    return fused_attn(qkv, bias if has_bias else None, data["descriptor"], None, case.bias, case.mask, case.layout,
                      case.softmax, float(data["scale"]), 0.0, True, **(arguments | more))


def fused_results(case, data, **more):
    """out, max_logit and the gradients of qkv, bias and sink."""
    qkv, bias, sink = pack(case, data), jnp.asarray(data["bias"], case.dtype), jnp.asarray(data["sink"])

    def loss(qkv, bias, sink):
        out, max_logit = call(case, data, qkv, bias, sink, **more)
        return (out.astype(jnp.float32) * data["d_out"]).sum(), (out, max_logit)
    grads, (out, max_logit) = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(qkv, bias, sink)
    return out, max_logit, grads


def plain_results(case, data):
    """The same in float64: out and max_logit by NumPy, gradients by JAX."""
    arrays = [data[name].astype(np.float64) for name in ("q", "k", "v", "bias", "sink")]
    rest = (data["allowed"], data["scale"], case.bias, case.softmax)
    out, max_logit = plain.attention(np, *arrays, *rest)
    with jax.enable_x64(True):
        def loss(*arrays):
            return (plain.attention(jnp, *arrays, *rest)[0] * data["d_out"]).sum()
        grads = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3, 4)))(*arrays)
    return out, max_logit, [np.asarray(g) for g in grads]


def close(got, want, dtype, what):
    got = np.asarray(got.astype(jnp.float32), np.float64)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    bound = TOLERANCE[dtype] * max(1.0, np.abs(want).max(initial=0))
    worst = np.abs(got - want).max(initial=0)
    assert worst <= bound, f"{what}: differs by {worst}, want at most {bound}"


def unpack_grads(case, grads):
    if case.layout.is_qkvpacked():
        return [grads[0][:, :, n] for n in range(3)]
    return [grads[0], grads[1][:, :, 0], grads[1][:, :, 1]] if case.layout.is_kvpacked() else list(grads)


def check(case):
    """One call against the oracle: result, maximum, every gradient, zeros in padding."""
    data = make(case)
    out, max_logit, (d_qkv, d_bias, d_sink) = fused_results(case, data)
    want_out, want_max, want = plain_results(case, data)
    close(out, want_out, case.dtype, "out")
    exact = np.isinf(want_max)
    assert np.array_equal(np.asarray(max_logit)[exact], want_max[exact])
    close(max_logit[~exact], want_max[~exact], jnp.float32, "max_logit")
    for name, got, expected in zip("qkv", unpack_grads(case, d_qkv), want):
        close(got, expected, case.dtype, "gradient of " + name)
    if case.bias != AttnBiasType.NO_BIAS:
        close(d_bias, want[3], case.dtype, "gradient of bias")
    if case.softmax == AttnSoftmaxType.LEARNABLE_SOFTMAX:
        close(d_sink, want[4], case.dtype, "gradient of sink")
    dead = ~data["allowed"].any(axis=2)
    assert not np.asarray(out.astype(jnp.float32))[dead].any()
    assert not np.asarray(unpack_grads(case, d_qkv)[0].astype(jnp.float32))[dead].any()
    return data, out, max_logit
