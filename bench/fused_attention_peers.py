#!/usr/bin/env python3
"""Fused attention beside jax.nn.dot_product_attention and PyTorch's scaled_dot_product_attention: the same shapes and
dtypes on two threads, in one process and in turns, each call after one of its own kind.

usage: fused_attention_peers.py [--dtype f32|bf16] [--dim D] [--heads H] [--rounds N] [--only full|causal] [TOKENS...]

The interpreter needs plumbline.jax, jax and torch; a peer that is missing is left out. One batch row. Best of the
rounds after one to warm up, in milliseconds: the forward pass, and forward and backward together. Arrays are laid out
as each takes them best: [B, S, H, D], for PyTorch [B, H, S, D].
"""
import argparse
import os
import time

THREADS = 2
os.environ["PLUMBLINE_THREADS"] = str(THREADS)
os.environ["OMP_NUM_THREADS"] = str(THREADS)
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def jax_calls(shape, dtype, causal, attend):
    import jax
    q, k, v, d_out = [jax.random.normal(key, shape).astype(dtype) for key in jax.random.split(jax.random.key(0), 4)]
    forward = jax.jit(lambda q, k, v: attend(q, k, v, causal))
    both = jax.jit(lambda q, k, v, d: jax.vjp(lambda *x: attend(*x, causal), q, k, v)[1](d))
    return (lambda: jax.block_until_ready(forward(q, k, v))), (lambda: jax.block_until_ready(both(q, k, v, d_out)))


def plumbline_calls(shape, dtype, causal):
    from plumbline.jax import AttnBiasType, AttnMaskType, AttnSoftmaxType, QKVLayout, SequenceDescriptor, fused_attn
    import jax.numpy as jnp
    lengths = SequenceDescriptor.from_seqlens(jnp.full(shape[0], shape[1], jnp.int32))

    def attend(q, k, v, causal):
        mask = AttnMaskType.CAUSAL_MASK if causal else AttnMaskType.NO_MASK
        return fused_attn((q, k, v), None, lengths, None, AttnBiasType.NO_BIAS, mask, QKVLayout.BSHD_BSHD_BSHD,
                          AttnSoftmaxType.VANILLA_SOFTMAX, shape[-1] ** -0.5, 0.0, True)
    return jax_calls(shape, dtype, causal, attend)


def jax_nn_calls(shape, dtype, causal):
    import jax
    return jax_calls(shape, dtype, causal, lambda q, k, v, causal: jax.nn.dot_product_attention(q, k, v, is_causal=causal))


def torch_calls(shape, dtype, causal):
    import torch
    torch.set_num_threads(THREADS)
    batch, tokens, heads, dim = shape
    q, k, v, d_out = [torch.randn(batch, heads, tokens, dim).to(getattr(torch, dtype)) for _ in range(4)]
    for x in (q, k, v):
        x.requires_grad_(True)

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def forward():
        with torch.no_grad():
            attend()
    return forward, lambda: torch.autograd.grad(attend(), (q, k, v), d_out)


PEERS = {"plumbline": plumbline_calls, "jax": jax_nn_calls, "torch": torch_calls}


def present():
    names = []
    for name, module in (("plumbline", "plumbline.jax"), ("jax", "jax"), ("torch", "torch")):
        try:
            __import__(module)
            names.append(name)
        except ImportError as error:
            print(f"without {name}: {error}")
    return names


def timed(run):
    time.sleep(0.02)  # threads of the peer before spin for a while
    run()  # and its data are in the caches
    begin = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="bf16")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("full", "causal"))
    parser.add_argument("tokens", type=int, nargs="*")
    given = parser.parse_args()
    dtype = {"bf16": "bfloat16", "f32": "float32"}[given.dtype]
    names = present()
    for tokens in given.tokens or [512, 1024, 2048, 4096]:
        for causal in (False, True) if given.only is None else (given.only == "causal",):
            calls = {name: PEERS[name]((1, tokens, given.heads, given.dim), dtype, causal) for name in names}
            best = {name: [1e9, 1e9] for name in names}
            for turn in range(given.rounds + 1):
                for name in names:
                    times = [timed(run) for run in calls[name]]
                    if turn > 0:
                        best[name] = [min(a, b) for a, b in zip(best[name], times)]
            columns = "  ".join(f"{name} {a:8.2f} {b:8.2f}" for name, (a, b) in best.items())
            times = "  ".join(f"{name} x {best[name][0] / best['plumbline'][0]:5.2f} {best[name][1] / best['plumbline'][1]:5.2f}"
                              for name in names if name != "plumbline" and "plumbline" in names)
            print(f"{given.dtype:4} {given.dim:3} {tokens:5} {'causal' if causal else 'full  '}  {columns}  {times}", flush=True)


if __name__ == "__main__":
    main()
