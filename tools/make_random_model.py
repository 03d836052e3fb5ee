#!/usr/bin/env python3
"""Writes a Llama checkpoint of random bfloat16 weights in any size, with a byte-level tokenizer, as a Hugging Face
folder. Standard library only, fast enough for billions of weights: what benches and memory tests run on.

usage: make_random_model.py FOLDER [--vocab N] [--hidden N] [--intermediate N] [--layers N] [--heads N] [--kv-heads N]
                            [--context N] [--untied] [--seed N]
"""
import argparse
import json
import math
import pathlib
import random
import statistics
import struct

CHUNK = 1 << 22


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    for name, value in (("vocab", 512), ("hidden", 64), ("intermediate", 128), ("layers", 2), ("heads", 4),
                        ("kv-heads", 2), ("context", 2048), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--untied", action="store_true")
    options = parser.parse_args()
    if options.hidden % options.heads or options.heads % options.kv_heads or options.vocab < 258:
        parser.error("want hidden a multiple of heads, heads of kv-heads, and a vocab of at least 258")
    return options


def shapes(options):
    width, kv = options.hidden, options.hidden // options.heads * options.kv_heads
    yield "model.embed_tokens.weight", (options.vocab, width)
    for layer in range(options.layers):
        for name, shape in (("self_attn.q_proj", (width, width)), ("self_attn.k_proj", (kv, width)),
                            ("self_attn.v_proj", (kv, width)), ("self_attn.o_proj", (width, width)),
                            ("mlp.gate_proj", (options.intermediate, width)),
                            ("mlp.up_proj", (options.intermediate, width)),
                            ("mlp.down_proj", (width, options.intermediate)),
                            ("input_layernorm", (width,)), ("post_attention_layernorm", (width,))):
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", (width,)
    if options.untied:
        yield "lm_head.weight", (options.vocab, width)


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def translation(deviation):
    """Two tables that turn a random byte into the low and high byte of a bfloat16 of a normal distribution."""
    normal = statistics.NormalDist(0.0, deviation)
    values = [bf16(normal.inv_cdf((i + 0.5) / 256)) for i in range(256)]
    return bytes(v & 255 for v in values), bytes(v >> 8 for v in values)


def write_values(file, shape, generator):
    if len(shape) == 1:
        file.write(struct.pack("<H", bf16(1.0)) * shape[0])
        return
    low, high = translation(1.0 / math.sqrt(shape[1]))
    left = math.prod(shape)
    while left > 0:
        raw = generator.randbytes(min(left, CHUNK))
        values = bytearray(2 * len(raw))
        values[0::2], values[1::2] = raw.translate(low), raw.translate(high)
        file.write(values)
        left -= len(raw)


def write_weights(path, options):
    header, offset = {}, 0
    for name, shape in shapes(options):
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = random.Random(options.seed)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shapes(options):
            write_values(file, shape, generator)


def byte_alphabet():
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(shifted)) for byte in range(256)]


def tokenizer(vocab):
    pieces = ["<s>", "</s>", *byte_alphabet()]
    pieces += [f"<unreachable {i}>" for i in range(len(pieces), vocab)]
    special = [{"id": i, "content": pieces[i], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i in range(2)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": []}}


def main():
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": options.hidden,
              "intermediate_size": options.intermediate, "num_hidden_layers": options.layers,
              "num_attention_heads": options.heads, "num_key_value_heads": options.kv_heads,
              "vocab_size": options.vocab, "max_position_embeddings": options.context, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": not options.untied,
              "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16"}
    (options.folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (options.folder / "tokenizer.json").write_text(json.dumps(tokenizer(options.vocab), ensure_ascii=False) + "\n")
    write_weights(options.folder / "model.safetensors", options)


if __name__ == "__main__":
    main()
