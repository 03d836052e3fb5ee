#!/usr/bin/env python3
"""Writes tests/golden/models: tiny checkpoints and what transformers says about them (see README.md there).

usage: make_models.py [NAME...]      all of them by default
"""
import pathlib
import sys

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

import reference
import tiny_gguf
import tiny_models
import tiny_tokenizer

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/models"
LENGTHS = (1, 2, 17, 100, 200)
TEXT = "The reason was the same: a model returns one answer, however it is run. Zoë — naïve 42!"
MAX_HIDDEN_VALUES = 10000  # larger results are left out, for the size of the files


def sequences(seed, vocab, tokenizer):
    generator = np.random.default_rng(seed)
    rows = [generator.integers(0, vocab, n).tolist() for n in LENGTHS]
    return rows + [tokenizer.encode(TEXT).ids]


def golden(model, seed, tokenizer):
    tensors = {}
    for index, tokens in enumerate(sequences(seed, model.config.vocab_size, tokenizer)):
        result = reference.run(model, tokens)
        prefix = f"seq{index}."
        tensors[prefix + "tokens"] = np.array(tokens, dtype=np.int32)
        if len(tokens) > 1:
            tensors[prefix + "logprobs"] = reference.token_logprobs(result["logits"], tokens)
        tensors[prefix + "last_logits"] = result["logits"][-1]
        tensors[prefix + "max_logits"] = result["max_logits"]
        if index < len(LENGTHS) and result["hidden"].size <= MAX_HIDDEN_VALUES:
            tensors[prefix + "hidden"] = result["hidden"]
            tensors[prefix + "normalized"] = result["normalized"]
    assert all(np.isfinite(value).all() for value in tensors.values())
    return {name: np.ascontiguousarray(value) for name, value in tensors.items()}


def report(name, folder, tensors):
    size = sum(path.stat().st_size for path in folder.iterdir())
    logits, scores = tensors["seq3.last_logits"], tensors["seq3.max_logits"]
    print(f"{name}: {size // 1024} KiB, logits std {logits.std():.2f}, max logits {scores.min():.1f}..{scores.max():.1f},"
          f" mean log-prob {tensors['seq3.logprobs'].mean():.2f}")


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or [*tiny_models.HF_MODELS, *tiny_gguf.GGUF_MODELS]
    for name in wanted:
        folder = OUT / name
        seed = sum(name.encode())
        if name in tiny_models.HF_MODELS:
            config, dtype, shards, add_bos = tiny_models.HF_MODELS[name]
            tokenizer = tiny_tokenizer.make(tiny_models.TOKENIZER_VOCAB, add_bos)
            weights = tiny_models.random_weights(config, seed)
            if not name.endswith("_fused"):
                weights = tiny_models.separate_experts(config, weights)
            tiny_models.save_hf(folder, config, weights, dtype, shards)
            tiny_tokenizer.save_json(tokenizer, folder / "tokenizer.json")
            model = tiny_models.load_hf(folder)
        else:
            tokenizer = tiny_tokenizer.make(tiny_models.TOKENIZER_VOCAB, tiny_gguf.GGUF_MODELS[name].add_bos)
            tiny_gguf.save(folder, tiny_gguf.GGUF_MODELS[name], tokenizer, seed)
            model = tiny_gguf.load_dequantized(folder / "model.gguf", tiny_gguf.GGUF_MODELS[name].config)
        tensors = golden(model, seed, tokenizer)
        save_file(tensors, folder / "golden.safetensors", metadata={
            "reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager",
            "text": TEXT})
        report(name, folder, tensors)


if __name__ == "__main__":
    main()
