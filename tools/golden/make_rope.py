#!/usr/bin/env python3
"""Writes tests/golden/rope/rope.json: inverse frequencies, and for the heads of 64 cosines and sines of a few positions, as
the rotary embedding of transformers' Llama computes them in float32. Floats are stored as their 32 bits.

"exact" is inv_freq of the same code run in float64 and rounded once, for rotary dimensions that are powers of two
(for others the reference's exponents themselves are rounded). It tells rounding noise of the reference from a fault:
in the blended band of Llama 3's scaling a rounding of the weight counts `factor` times.

usage: make_rope.py
"""
import json
import pathlib
from unittest import mock

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/rope/rope.json"
POSITIONS = [1, 100, 4095, 131071]

# (head_dim, theta, scaling)
CASES = [
    (64, 10000.0, {"rope_type": "default"}),
    (64, 100000.0, {"rope_type": "default"}),
    (128, 1000000.0, {"rope_type": "default"}),
    (80, 500000.0, {"rope_type": "default"}),
    (12, 10000.0, {"rope_type": "linear", "factor": 2.0}),
    (128, 10000.0, {"rope_type": "linear", "factor": 3.0}),
    (64, 500000.0, {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192}),
    (128, 500000.0, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192}),
    (16, 500000.0, {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64}),
    (128, 1000000.0, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    (64, 150000.0, {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                    "original_max_position_embeddings": 4096}),
    (64, 10000.0, {"rope_type": "yarn", "factor": 40.0, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.75,
                   "original_max_position_embeddings": 4096}),
    (12, 10000.0, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
    (64, 10000.0, {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": 2048}),
]


def bits(tensor):
    return [value & 0xFFFFFFFF for value in tensor.contiguous().view(torch.int32).flatten().tolist()]


def exact_inv_freq(config):
    with mock.patch.object(torch, "float", torch.float64), mock.patch.object(torch, "float32", torch.float64):
        inv_freq = LlamaRotaryEmbedding(config).inv_freq
    assert inv_freq.dtype == torch.float64
    return inv_freq.to(torch.float32)


def case(head_dim, theta, scaling):
    config = LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, head_dim=head_dim,
                         max_position_embeddings=131072, rope_parameters={"rope_theta": theta, **scaling})
    rope = LlamaRotaryEmbedding(config)
    result = {"rotary_dim": head_dim, "theta": theta, "scaling": scaling, "inv_freq": bits(rope.inv_freq),
              "attention_factor": float(rope.attention_scaling)}
    if head_dim & (head_dim - 1) == 0:
        result["exact"] = bits(exact_inv_freq(config))
    if head_dim == 64:
        cos, sin = rope(torch.zeros(1), torch.tensor([POSITIONS]))
        result |= {"cos": bits(cos[0, :, :32]), "sin": bits(sin[0, :, :32])}
    return result


def main():
    OUT.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case(*c), separators=(",", ":")) for c in CASES)
    OUT.write_text(f'{{"positions":{json.dumps(POSITIONS)},\n"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
