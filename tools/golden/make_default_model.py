#!/usr/bin/env python3
"""Writes tests/golden/default_model/golden.safetensors: what transformers says about the default model's weights,
dequantised to float32 by PyPI gguf.

usage: make_default_model.py MODEL.gguf
"""
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import reference
import tiny_gguf

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/default_model/golden.safetensors"
TEXTS = [
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 40))  # prints 42\n",
    "<|im_start|>user\nWhy is the sky blue? Answer in one sentence.<|im_end|>\n<|im_start|>assistant\n"
    "Because air scatters blue light more strongly than red light.<|im_end|>\n",
]
HIDDEN_LAYERS = (0, 14, 29)
TOP_TOKENS = 5
TOP_LOGITS = 64
CONFIG = {"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
          "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
          "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": True}


def load_tokenizer(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"].contents()
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def describe(model, tokens):
    result = reference.run(model, tokens)
    logits = result["logits"].astype(np.float64)
    logprobs = logits - logits.max(1, keepdims=True)
    logprobs -= np.log(np.exp(logprobs).sum(1, keepdims=True))
    order = np.argsort(-logprobs, axis=1, kind="stable")
    chosen = logprobs[np.arange(len(tokens) - 1), tokens[1:]]
    top = order[-1, :TOP_LOGITS]
    hidden = {f"hidden{layer}": result["hidden"][layer] for layer in HIDDEN_LAYERS}
    print(f"{len(tokens)} tokens, perplexity {np.exp(-chosen.mean()):.2f}, max logit {result['max_logits'].max():.1f}")
    return {
        "tokens": np.array(tokens, dtype=np.int32), "logprobs": chosen.astype(np.float32),
        "ranks": 1 + (logprobs[:-1] > chosen[:, None]).sum(1).astype(np.int32),
        "top_tokens": order[:-1, :TOP_TOKENS].astype(np.int32),
        "top_logprobs": np.take_along_axis(logprobs, order, 1)[:-1, :TOP_TOKENS].astype(np.float32),
        "last_top_tokens": top.astype(np.int32), "last_top_logits": result["logits"][-1, top],
        "last_logits_every_64": result["logits"][-1, ::64], "max_logits": result["max_logits"],
        "normalized": result["normalized"], **hidden}


def main():
    torch.set_num_threads(1)
    model = tiny_gguf.load_dequantized(sys.argv[1], CONFIG)
    tokenizer = load_tokenizer(sys.argv[1])
    tensors, metadata = {}, {}
    for index, text in enumerate(TEXTS):
        metadata[f"text{index}"] = text
        for name, value in describe(model, tokenizer.encode(text).ids).items():
            tensors[f"text{index}.{name}"] = np.ascontiguousarray(value)
    metadata["reference"] = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager"
    assert all(np.isfinite(value).all() for value in tensors.values())
    save_file(tensors, OUT, metadata=metadata)
    print(f"{OUT.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
