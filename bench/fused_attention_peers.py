#!/usr/bin/env python3
"""Times of other attentions on the CPU, for shapes of plumbline_bench_fused_attention: one batch row, 8 heads of 128.

usage: fused_attention_peers.py {torch,jax} [bf16 or f32] [threads] [tokens...]

Best of three runs after one to warm up. PyTorch: scaled_dot_product_attention and its gradient, [B, H, S, D]. JAX:
jax.nn.dot_product_attention and it with its gradient, under jit; JAX takes as many threads as the process may use.
"""
import sys
import time

HEADS, DIM = 8, 128


def best(run):
    run()
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def torch_times(dtype, threads, tokens, causal):
    import torch
    torch.set_num_threads(threads)
    q, k, v, d_out = [torch.randn(1, HEADS, tokens, DIM).to(getattr(torch, dtype)) for _ in range(4)]
    for x in (q, k, v):
        x.requires_grad_(True)
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad():
        forward = best(lambda: attend(q, k, v, is_causal=causal))
    out = attend(q, k, v, is_causal=causal)
    return forward, best(lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True))


def jax_times(dtype, _threads, tokens, causal):
    import jax
    q, k, v, d_out = [jax.random.normal(key, (1, tokens, HEADS, DIM)).astype(dtype)
                      for key in jax.random.split(jax.random.key(0), 4)]

    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    forward = jax.jit(attend)
    both = jax.jit(lambda q, k, v, d_out: jax.vjp(attend, q, k, v)[1](d_out))
    return (best(lambda: jax.block_until_ready(forward(q, k, v))),
            best(lambda: jax.block_until_ready(both(q, k, v, d_out))))


def main():
    peer = sys.argv[1]
    dtype = {"bf16": "bfloat16", "f32": "float32"}[sys.argv[2] if len(sys.argv) > 2 else "bf16"]
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    times, second = (torch_times, "backward") if peer == "torch" else (jax_times, "forward and backward")
    for tokens in [int(x) for x in sys.argv[4:]] or [512, 1024, 2048, 4096]:
        for causal in (False, True):
            a, b = times(dtype, threads, tokens, causal)
            print(f"{tokens:5} tokens {'causal' if causal else 'full  '}  forward {a:9.2f} ms  {second} {b:9.2f} ms",
                  flush=True)


if __name__ == "__main__":
    main()
