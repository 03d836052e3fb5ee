"""QK-Clip: factors by which a trainer multiplies the query and key projections after a step, from the maximum logit
of every head and a threshold tau (Kimi K2, arXiv 2507.20534, section 2.1).

    gamma[h] = tau / max_logit[h] where max_logit[h] > tau, 1 otherwise

The maximum is signed: a head whose logits are all negative, one that saw nothing (-inf) and one that is not a number
(NaN, +inf, which no factor mends) keep their weights. All arrays [heads], float32.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp


def qk_clip_gamma(max_logit, tau):
    clips = jnp.isfinite(max_logit) & (max_logit > tau) & (tau > 0)
    return jnp.where(clips, tau / jnp.where(clips, max_logit, 1.0), 1.0)


def qk_clip_mha(max_logit, tau):
    """Every head has its own keys: the factor of W_q and of W_k."""
    return jnp.sqrt(qk_clip_gamma(max_logit, tau))


def qk_clip_gqa(max_logit, tau, kv_heads, by="query"):
    """(factors of W_q [heads], of W_k [kv_heads]) where a key head serves a group of query heads. "query" leaves keys
    alone and clips each head by itself; "group" clips a group by its largest maximum, through both."""
    gamma = qk_clip_gamma(max_logit, tau)
    if by == "query":
        return gamma, jnp.ones(kv_heads, gamma.dtype)
    if by != "group":
        raise ValueError(f"by: got {by!r}, want 'query' or 'group'")
    least = jnp.sqrt(gamma.reshape(kv_heads, -1).min(axis=1))
    return jnp.repeat(least, gamma.shape[0] // kv_heads), least


class QkClipMla(NamedTuple):
    """Multi-head latent attention: the rotary part of k is shared by all heads and stays."""
    q_nope: jax.Array
    k_nope: jax.Array
    q_rope: jax.Array


def qk_clip_mla(max_logit, tau):
    gamma = qk_clip_gamma(max_logit, tau)
    return QkClipMla(jnp.sqrt(gamma), jnp.sqrt(gamma), gamma)
