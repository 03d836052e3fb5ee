"""Trains a tiny attention model whose logits explode, without and with QK-Clip, and draws the maximum logit of every
head over the steps."""
import argparse

import jax
import jax.numpy as jnp
import matplotlib

from plumbline.jax import (AttnBiasType, AttnMaskType, AttnSoftmaxType, QKVLayout, SequenceDescriptor, fused_attn,
                           qk_clip_mha)

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend is chosen first)

LAYERS, HEADS, DIM, HIDDEN, VOCAB, TOKENS, BATCH = 2, 4, 16, 64, 32, 24, 16


def init(key):
    keys = iter(jax.random.split(key, 2 + 4 * LAYERS))

    def draw(*shape):
        return jax.random.normal(next(keys), shape) * shape[0] ** -0.5
    layers = [dict(q=draw(HIDDEN, HEADS, DIM), k=draw(HIDDEN, HEADS, DIM), v=draw(HIDDEN, HEADS, DIM),
                   o=draw(HEADS * DIM, HIDDEN)) for _ in range(LAYERS)]
    return dict(embed=draw(VOCAB, HIDDEN) * VOCAB ** 0.5, head=draw(HIDDEN, VOCAB), layers=layers)


def attend(x, layer, lengths):
    qkv = tuple(jnp.einsum("btm,mhd->bthd", x, layer[name]) for name in "qkv")
    return fused_attn(qkv, None, SequenceDescriptor.from_seqlens(lengths), None, AttnBiasType.NO_BIAS,
                      AttnMaskType.CAUSAL_MASK, QKVLayout.BSHD_BSHD_BSHD, AttnSoftmaxType.VANILLA_SOFTMAX,
                      scaling_factor=DIM ** -0.5, dropout_probability=0.0, is_training=True, return_max_logit=True)


def loss(parameters, tokens):
    """Cross entropy of the second half, a copy of the first; and the maxima [layers, heads]."""
    angle = jnp.arange(TOKENS)[:, None] / 100 ** (jnp.arange(HIDDEN // 2) / (HIDDEN // 2))
    x = parameters["embed"][tokens] + jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)
    maxima = []
    for layer in parameters["layers"]:
        out, max_logit = attend(x, layer, jnp.full(tokens.shape[0], TOKENS, jnp.int32))
        x = x + out.reshape(x.shape[:2] + (-1,)) @ layer["o"]
        maxima.append(max_logit)
    logits = x[:, TOKENS // 2 - 1:-1] @ parameters["head"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, TOKENS // 2:, None], axis=-1)
    return -picked.mean(), jnp.stack(maxima)


def clip(layer, max_logit, tau):
    factor = qk_clip_mha(max_logit, tau)[None, :, None]
    return dict(layer, q=layer["q"] * factor, k=layer["k"] * factor)


def train(steps, rate, tau=None):
    """The last loss and the maxima [steps, layers, heads], measured before each update."""
    parameters = init(jax.random.key(0))
    momentum = jax.tree.map(jnp.zeros_like, parameters)

    @jax.jit
    def step(parameters, momentum, key):
        half = jax.random.randint(key, (BATCH, TOKENS // 2), 0, VOCAB)
        (value, maxima), grads = jax.value_and_grad(loss, has_aux=True)(parameters, jnp.concatenate([half, half], axis=1))
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        # The sign of the momentum: every weight moves by the learning rate, whatever the gradient.
        parameters = jax.tree.map(lambda p, m: p - rate * jnp.sign(m), parameters, momentum)
        if tau is not None:
            parameters = dict(parameters, layers=[clip(layer, m, tau) for layer, m in zip(parameters["layers"], maxima)])
        return parameters, momentum, value, maxima

    history = []
    for n in range(steps):
        parameters, momentum, value, maxima = step(parameters, momentum, jax.random.key(n))
        history.append(maxima)
    return float(value), jnp.stack(history)


def draw(runs, tau, path):
    figure, axes = pyplot.subplots(1, len(runs), sharey=True, figsize=(5 * len(runs), 4))
    for axis, (name, history) in zip(axes, runs.items()):
        for layer in range(LAYERS):
            for head in range(HEADS):
                axis.plot(history[:, layer, head], color=f"C{layer}", alpha=0.4 + 0.15 * head,
                          label=f"layer {layer}" if head == 0 else None)
        axis.axhline(tau, color="black", linestyle=":", label=f"tau = {tau:g}")
        axis.set(title=name, xlabel="step", yscale="symlog")
        axis.legend()
    axes[0].set_ylabel("maximum logit of each head")
    figure.tight_layout()
    figure.savefig(path)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--tau", type=float, default=20.0)
    parser.add_argument("--out", default="max_logit.png")
    options = parser.parse_args(arguments)
    runs = {}
    for name, tau in (("without QK-Clip", None), ("with QK-Clip", options.tau)):
        value, runs[name] = train(options.steps, options.rate, tau)
        print(f"{name}: last loss {value:.3f}, maximum logit {float(runs[name][-1].max()):.1f} at the end, "
              f"{float(runs[name].max()):.1f} at the most")
    draw(runs, options.tau, options.out)
    return runs


if __name__ == "__main__":
    main()
