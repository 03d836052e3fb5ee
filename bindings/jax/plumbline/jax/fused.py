"""fused_attn: attention over BSHD and packed (THD) arrays with a custom VJP and, on request, the maximum logit of
every query head. Arguments, defaults and errors are those of TransformerEngine's JAX API."""
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from . import context, partition
from .checks import check_call, check_seed, resolve_softmax_offset
from .kernel import Config, Operands, Saved
from .score_mod import attention_with_score_mod, check_score_mod
from .sequence import SequenceDescriptor, descriptor_of_mask, tokens_of, whole_sequences
from .types import AttnBiasType, AttnMaskType, AttnSoftmaxType, CPStrategy


@dataclass(frozen=True)
class _Static:
    """What is static of fused_attn below its checks."""
    config: Config
    manual: bool
    layout: Any
    bias_grad: bool
    sink_grad: bool
    name: str


def _operands(static, qkv, bias, offset, tokens, seed):
    def grouped(x):
        return None if x is None else x[None]
    sink = offset.reshape(1, -1) if static.sink_grad else None
    return Operands(tuple(x[None] for x in qkv), grouped(bias), sink, *(grouped(x) for x in tokens), grouped(seed))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(static, qkv, bias, offset, tokens, seed):
    return _attention_fwd(static, qkv, bias, offset, tokens, seed)[0]


def _attention_fwd(static, qkv, bias, offset, tokens, seed):
    operands = _operands(static, qkv, bias, offset, tokens, seed)
    results = partition.run_forward(static.config, static.manual, operands)
    out = checkpoint_name(results.out, static.name)
    lse = checkpoint_name(results.lse, static.name)
    max_logit = None if results.max_logit is None else results.max_logit[0]
    return (out[0], max_logit), (operands, offset, out, lse)


def _attention_bwd(static, residuals, cotangents):
    operands, offset, out, lse = residuals
    d_out = cotangents[0].astype(out.dtype)
    config = replace(static.config, return_max_logit=False)
    grads = partition.run_backward(config, static.manual, operands, Saved(out, d_out[None], lse))
    d_bias = grads.bias[0] if grads.bias is not None else None
    d_offset = grads.sink.reshape(offset.shape) if grads.sink is not None else jnp.zeros_like(offset)
    return tuple(x[0] for x in grads.arrays), d_bias, d_offset, None, None


_attention.defvjp(_attention_fwd, _attention_bwd)


def _legacy_descriptor(mask, attn_mask_type, qkv_layout, max_segments_per_seq, sizes):
    """The descriptor of a boolean mask, or of None."""
    warnings.warn("fused_attn: a boolean mask or None as sequence_descriptor is deprecated; give a SequenceDescriptor",
                  DeprecationWarning, stacklevel=3)
    if max_segments_per_seq != 1:
        raise ValueError(f"max_segments_per_seq: got {max_segments_per_seq}, want 1 (with a mask)")
    assert not qkv_layout.is_thd(), f"qkv_layout: got {qkv_layout}, want a BSHD layout (with a mask); see fused_attn_thd"
    if mask is None:
        assert not attn_mask_type.is_padding(), f"mask: got None, want one for {attn_mask_type}"
        return whole_sequences(*sizes)
    return descriptor_of_mask(mask, attn_mask_type)


def fused_attn(qkv, bias, sequence_descriptor, seed, attn_bias_type, attn_mask_type, qkv_layout, softmax_type,
               scaling_factor, dropout_probability, is_training, max_segments_per_seq=1, window_size=None,
               context_parallel_strategy=CPStrategy.DEFAULT, context_parallel_causal_load_balanced=False,
               context_parallel_axis="", context_checkpoint_name="context", softmax_offset=None, stripe_size=None,
               score_mod=None, score_mod_bprop=None, score_mod_tensors=None, score_mod_bprop_tensors=None,
               return_max_logit=False):
    """Attention of qkv [batch, sequence, heads, dim], packed as qkv_layout says.

    Returns out [batch, sequence, heads, dim of v] in the dtype of q; with return_max_logit a pair of it and the
    maximum scaled, biased, allowed logit of every query head, float32 [heads], -inf for a head that may see nothing.
    The maximum is telemetry: its cotangent is ignored. Differentiable in qkv, bias and softmax_offset.
    """
    companions = dict(score_mod_bprop=score_mod_bprop, score_mod_tensors=score_mod_tensors,
                      score_mod_bprop_tensors=score_mod_bprop_tensors)
    sizes = check_call(qkv, bias, attn_bias_type, qkv_layout)
    parallel = context.resolve(context_parallel_axis, context_parallel_strategy, context_parallel_causal_load_balanced)
    if check_score_mod(score_mod, companions, return_max_logit):
        return attention_with_score_mod(
            qkv, score_mod, companions, scaling_factor, qkv_layout=qkv_layout,
            refused=dict(bias=bias, sequence_descriptor=sequence_descriptor, seed=seed, window_size=window_size,
                         softmax_offset=softmax_offset, stripe_size=stripe_size,
                         attn_bias_type=attn_bias_type if attn_bias_type != AttnBiasType.NO_BIAS else None,
                         attn_mask_type=attn_mask_type if attn_mask_type != AttnMaskType.NO_MASK else None,
                         softmax_type=softmax_type if softmax_type != AttnSoftmaxType.VANILLA_SOFTMAX else None,
                         dropout_probability=dropout_probability if is_training and dropout_probability else None,
                         max_segments_per_seq=max_segments_per_seq if max_segments_per_seq != 1 else None,
                         context_parallel_axis=context_parallel_axis or None,
                         context_parallel_strategy=None if context_parallel_strategy == CPStrategy.DEFAULT
                         else context_parallel_strategy,
                         context_parallel_causal_load_balanced=context_parallel_causal_load_balanced or None))
    if max_segments_per_seq > 1 and not qkv_layout.is_thd():
        warnings.warn("fused_attn: max_segments_per_seq is of packed (THD) layouts only", UserWarning, stacklevel=2)
    if not isinstance(sequence_descriptor, SequenceDescriptor):
        sequence_descriptor = _legacy_descriptor(sequence_descriptor, attn_mask_type, qkv_layout, max_segments_per_seq,
                                                 (sizes.batch, sizes.q_tokens, sizes.kv_tokens))
    if qkv_layout.is_thd() and not attn_mask_type.is_padding():
        raise ValueError(f"attn_mask_type: got {attn_mask_type}, want one with padding (packed layout)")
    dropout = float(dropout_probability) if is_training else 0.0
    offset = resolve_softmax_offset(softmax_offset, softmax_type, sizes.heads)
    left, right = (-1, -1) if window_size is None else (int(window_size[0]), int(window_size[1]))
    tokens = (None,) * 4
    if attn_mask_type.is_padding():
        tokens = tokens_of(sequence_descriptor, sizes.batch, sizes.q_tokens, sizes.kv_tokens, qkv_layout.is_thd())
    if parallel.size > 1:
        context.check(parallel, qkv_layout, attn_mask_type, attn_bias_type, softmax_type, dropout, (left, right),
                      stripe_size, sequence_descriptor)
        tokens = context.tokens(parallel, tokens, attn_mask_type, sizes)
    config = Config(
        scale=float(scaling_factor), causal=attn_mask_type.is_causal(), bottom_right=attn_mask_type.is_bottom_right(),
        left=left, right=right, bias_type=attn_bias_type.value, softmax=softmax_type.value, dropout=dropout,
        max_segments=max_segments_per_seq if qkv_layout.is_thd() else 0, return_max_logit=bool(return_max_logit),
        cp_axis=parallel.axis if parallel.size > 1 else "", ring=parallel.ring and parallel.size > 1,
        manual_axes=parallel.reduced_axes)
    static = _Static(config, parallel.manual, qkv_layout, attn_bias_type != AttnBiasType.NO_BIAS,
                     softmax_type == AttnSoftmaxType.LEARNABLE_SOFTMAX, context_checkpoint_name)
    out, max_logit = _attention(static, tuple(qkv), bias, offset, tokens, check_seed(seed, dropout))
    # So that what a caller makes of the maxima (a pmax) needs no derivative either.
    return (out, jax.lax.stop_gradient(max_logit)) if return_max_logit else out
