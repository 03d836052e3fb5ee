"""What the end-to-end tests share: running the binary, reading what it wrote. Standard library only."""
import array
import hashlib
import json
import math
import os
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("PLUMBLINE_BINARY", str(ROOT / "build/release/plumbline"))
GOLDEN = ROOT / "tests/golden/models"
ISAS = ("avx2", "avx512", "avx512_bf16")


def run(*arguments, stdin="", **options):
    """Runs the binary; the result has returncode, stdout and stderr as text."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 300} | options
    return subprocess.run([BINARY, *map(str, arguments)], input=stdin, encoding="utf-8", **options)


def reject_constant(name):
    raise ValueError(f"not strict JSON: {name}")


def strict_json(text):
    return json.loads(text, parse_constant=reject_constant)


def run_ok(*arguments, **options):
    result = run(*arguments, **options)
    if result.returncode != 0:
        raise AssertionError(f"{arguments}: exit {result.returncode}: {result.stderr}")
    return result


def score(*arguments, **options):
    """The objects that `score --format jsonl` prints."""
    result = run_ok("score", *arguments, "--format", "jsonl", "--quiet", **options)
    return [strict_json(line) for line in result.stdout.splitlines()]


def default_model():
    fetch = subprocess.run([ROOT / "scripts/fetch_model"], capture_output=True, text=True)
    if fetch.returncode != 0:
        raise AssertionError(fetch.stderr)
    return fetch.stdout.strip()


def model_path(name):
    """What -m takes for a folder of tests/golden/models."""
    gguf = GOLDEN / name / "model.gguf"
    return gguf if gguf.exists() else GOLDEN / name


def supported_isas():
    """Those that this machine runs: the binary refuses the others."""
    model = model_path("llama3")
    return [isa for isa in ISAS if run("score", "-m", model, "--tokens", "1,2", "--isa", isa).returncode == 0]


def read_safetensors(path):
    """name -> (shape, array of float32 or int32), and the metadata."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        values = array.array({"F32": "f", "I32": "i"}[entry["dtype"]])
        begin, end = entry["data_offsets"]
        values.frombytes(data[8 + size + begin:8 + size + end])
        assert len(values) == math.prod(entry["shape"]), name
        tensors[name] = (entry["shape"], values)
    return tensors, metadata


def to_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def digest(result):
    """The receipt's digest, computed again from the printed numbers."""
    values = [value for value in result["token_logprobs"] if value is not None]
    for entries in result.get("top_logprobs", []):
        values += [entry["logprob"] for entry in entries or []]
    for heads in result.get("max_logits", []):
        values += heads
    return hashlib.sha256(struct.pack(f"<{len(values)}f", *values)).hexdigest()


def worst(got, want):
    """Largest absolute difference of two equally long sequences."""
    assert len(got) == len(want), (len(got), len(want))
    return max((abs(a - b) for a, b in zip(got, want)), default=0.0)


def comma_list(ids):
    return ",".join(map(str, ids))
