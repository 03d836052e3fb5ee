"""Writes the golden files of tests/golden/gguf: python make_gguf.py (needs gguf 0.19, safetensors, torch).

dequant_<type>.bin   blocks of that type, then what gguf.quants.dequantize makes of them (float32). The number of
                     blocks is the file size divided by (block bytes + 4 * block elements).
tiny.gguf            every kind of metadata and of tensor that the reader takes, by gguf.GGUFWriter.
tiny.safetensors     every element type that the reader takes, by safetensors.
Tensor bytes of the last two count up from 0 in steps of 7, modulo 251.
"""

import pathlib

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "gguf"

# Byte offsets of a block's float16 scales.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
# Zeros, the smallest and largest denormal, the smallest normal, one, the largest finite, infinity, in both signs.
EXTREME_F16 = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF,
               0x7C00, 0xFC00]
EXTREME_F32 = [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800001,
               0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000]


def random_f16(rng, n):
  """Finite float16 bit patterns over the whole exponent range."""
  bits = rng.integers(0, 1 << 16, n, dtype=np.uint16)
  return np.where((bits & 0x7C00) == 0x7C00, bits & 0xBFFF, bits)


def quantised_blocks(rng, name):
  block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
  offsets = SCALES[name]
  blocks = []
  for _ in range(6):  # random integers, random scales
    block = rng.integers(0, 256, block_bytes, dtype=np.uint8)
    for offset in offsets:
      block[offset:offset + 2] = random_f16(rng, 1).view(np.uint8)
    blocks.append(block)
  for i, scale in enumerate(EXTREME_F16):  # every extreme scale, its neighbour as the minimum
    block = rng.integers(0, 256, block_bytes, dtype=np.uint8)
    if i % 5 == 3:
      block[:] = 0x00
    if i % 5 == 4:
      block[:] = 0xFF
    for j, offset in enumerate(offsets):
      value = EXTREME_F16[(i + 3 * j) % len(EXTREME_F16)]
      block[offset:offset + 2] = np.array([value], np.uint16).view(np.uint8)
    blocks.append(block)
  return np.concatenate(blocks)


def make_dequant(rng):
  plain = {
      "F32": np.concatenate([np.array(EXTREME_F32, np.uint32), rng.integers(0, 1 << 31, 20, dtype=np.uint32)]),
      "F16": np.concatenate([np.array(EXTREME_F16, np.uint16), random_f16(rng, 50)]),
      "BF16": np.concatenate([(np.array(EXTREME_F32, np.uint32) >> 16).astype(np.uint16), random_f16(rng, 50)]),
  }
  for name in [*plain, *SCALES]:
    blocks = plain[name].view(np.uint8) if name in plain else quantised_blocks(rng, name)
    with np.errstate(invalid="ignore"):
      values = dequantize(blocks, GGMLQuantizationType[name])
    assert values.dtype == np.float32
    (OUT / f"dequant_{name.lower()}.bin").write_bytes(blocks.tobytes() + values.tobytes())


def counting_bytes(n):
  return (np.arange(n) * 7 % 251).astype(np.uint8)


def make_tiny_gguf():
  writer = GGUFWriter(OUT / "tiny.gguf", "llama")
  writer.add_uint8("test.u8", 200)
  writer.add_int8("test.i8", -100)
  writer.add_uint16("test.u16", 60000)
  writer.add_int16("test.i16", -30000)
  writer.add_uint32("test.u32", 4000000000)
  writer.add_int32("test.i32", -2000000000)
  writer.add_uint64("test.u64", (1 << 64) - 1)
  writer.add_int64("test.i64", -(1 << 63))
  writer.add_float32("test.f32", 0.1)
  writer.add_float64("test.f64", 0.1)
  writer.add_bool("test.bool", True)
  writer.add_string("test.string", "h\u00e9llo\n")
  writer.add_array("test.strings", ["a", "", "\u2581b"])
  writer.add_array("test.ints", [3, -4, 5])
  writer.add_array("test.floats", [0.5, -1.25])
  writer.add_array("test.bools", [True, False])
  for name in ["F32", "F16", "BF16", *SCALES]:
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    row_bytes = block_bytes * (2 if block > 1 else 3)
    raw = counting_bytes(2 * row_bytes).reshape(2, row_bytes)
    writer.add_tensor(f"weight.{name.lower()}", raw, raw_dtype=GGMLQuantizationType[name])
  for name, dtype in {"i32": np.int32, "i64": np.int64}.items():
    writer.add_tensor(f"ids.{name}", counting_bytes(np.dtype(dtype).itemsize * 24).view(dtype).reshape(2, 3, 4))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def make_tiny_safetensors():
  dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.uint32]
  tensors = {}
  for dtype in dtypes:
    raw = torch.from_numpy(counting_bytes(6 * dtype.itemsize))
    tensors[f"{str(dtype).removeprefix('torch.')}.matrix"] = raw.view(dtype).reshape(2, 3)
  tensors["scalar"] = torch.from_numpy(counting_bytes(4)).view(torch.float32).reshape(())
  tensors["empty"] = torch.zeros(0, 5, dtype=torch.float16)
  save_file(tensors, OUT / "tiny.safetensors", {"who": "caf\u00e9"})


def main():
  OUT.mkdir(parents=True, exist_ok=True)
  make_dequant(np.random.Generator(np.random.PCG64(20240607)))
  make_tiny_gguf()
  make_tiny_safetensors()


if __name__ == "__main__":
  main()
