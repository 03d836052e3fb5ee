#!/usr/bin/env python3
"""Writes the GGUF files that bench/compare_llama_cpp.py measures beside the default model: a bf16 copy of it, and a
Llama of 1.07 billion random weights in bf16 and in Q8_0 that has its tokenizer. Needs numpy and gguf (PyPI).

usage: make_bench_models.py MODEL.gguf FOLDER [--only bf16|random-bf16|random-q8_0]
"""
import argparse
import pathlib

import gguf
import numpy

# The shape of Llama 3.2 1B, but for the vocabulary.
HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, CONTEXT = 2048, 8192, 16, 32, 8, 4096
BF16, Q8_0 = gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.Q8_0
FILE_TYPES = {BF16: gguf.LlamaFileType.MOSTLY_BF16, Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0}


def copy_metadata(reader, writer, dtype, replaced=()):
    """Everything but the sizes in `replaced`."""
    own = {"general.architecture", "general.file_type", "general.quantization_version"}
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in own or name in replaced:
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type)
    writer.add_file_type(FILE_TYPES[dtype])
    if dtype == Q8_0:
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer, name, values, dtype):
    """Vectors stay float32, as llama.cpp wants them."""
    if values.ndim == 1:
        writer.add_tensor(name, values.astype(numpy.float32))
    else:
        data = gguf.quantize(numpy.ascontiguousarray(values, dtype=numpy.float32), dtype)
        writer.add_tensor(name, data, raw_dtype=dtype)


def write_copy(reader, path):
    """Every matrix as its dequantised values rounded to bf16: the values plumbline multiplies with anyway."""
    writer = gguf.GGUFWriter(path, "llama")
    copy_metadata(reader, writer, BF16)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        add(writer, tensor.name, values.reshape([int(n) for n in reversed(tensor.shape)]), BF16)
    write(writer)


def random_shapes(vocab):
    kv = HIDDEN // HEADS * KV_HEADS
    yield "token_embd.weight", (vocab, HIDDEN)
    for layer in range(LAYERS):
        for name, shape in (("attn_norm", (HIDDEN,)), ("attn_q", (HIDDEN, HIDDEN)), ("attn_k", (kv, HIDDEN)),
                            ("attn_v", (kv, HIDDEN)), ("attn_output", (HIDDEN, HIDDEN)), ("ffn_norm", (HIDDEN,)),
                            ("ffn_gate", (INTERMEDIATE, HIDDEN)), ("ffn_up", (INTERMEDIATE, HIDDEN)),
                            ("ffn_down", (HIDDEN, INTERMEDIATE))):
            yield f"blk.{layer}.{name}.weight", shape
    yield "output_norm.weight", (HIDDEN,)


def write_random(reader, path, dtype):
    writer = gguf.GGUFWriter(path, "llama")
    sizes = {"llama.context_length": CONTEXT, "llama.embedding_length": HIDDEN, "llama.block_count": LAYERS,
             "llama.feed_forward_length": INTERMEDIATE, "llama.attention.head_count": HEADS,
             "llama.attention.head_count_kv": KV_HEADS, "llama.rope.dimension_count": HIDDEN // HEADS}
    copy_metadata(reader, writer, dtype, {*sizes, "general.name", "general.size_label"})
    writer.add_name("random 1B")
    for name, value in sizes.items():
        writer.add_uint32(name, value)
    vocab = len(reader.fields["tokenizer.ggml.tokens"].data)
    generator = numpy.random.default_rng(1)
    for name, shape in random_shapes(vocab):
        if len(shape) == 1:
            values = numpy.ones(shape, numpy.float32)
        else:
            values = generator.standard_normal(shape, numpy.float32) / numpy.float32(shape[1] ** 0.5)
        add(writer, name, values, dtype)
    write(writer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", choices=("bf16", "random-bf16", "random-q8_0"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(options.model)
    if options.only in (None, "bf16"):
        write_copy(reader, options.folder / "default-bf16.gguf")
    for name, dtype in (("random-bf16", BF16), ("random-q8_0", Q8_0)):
        if options.only in (None, name):
            write_random(reader, options.folder / f"{name}.gguf", dtype)


if __name__ == "__main__":
    main()
