"""Scoring never holds [tokens, vocab]: peak memory is weights, KV and a bound that a longer prompt does not move."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import cli

VOCAB = 131072
LAYERS, KV_WIDTH = 2, 32
MIB = 1 << 20


def peak_bytes(*arguments):
    """Runs the binary; its largest resident set, file mappings included."""
    process = subprocess.Popen([cli.BINARY, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    stderr = process.stderr.read().decode()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, stderr
    return usage.ru_maxrss * 1024


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = pathlib.Path(cls.folder.name) / "model"
        subprocess.run([sys.executable, cli.ROOT / "tools/make_random_model.py", cls.model, "--vocab", str(VOCAB),
                        "--layers", str(LAYERS), "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--context",
                        "16384"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def score(self, tokens):
        path = pathlib.Path(self.folder.name) / f"{tokens}.jsonl"
        path.write_text(json.dumps({"id": "0", "tokens": [(i * i) % VOCAB for i in range(tokens)]}) + "\n")
        return peak_bytes("score", "-m", self.model, "-f", path, "--top-logprobs", 5, "--max-logit", "--threads", 2,
                          "--format", "jsonl", "--quiet")

    def test_a_long_prompt_costs_its_kv_and_its_results(self):
        short, long = self.score(256), self.score(16384)
        kv = 16384 * LAYERS * 2 * KV_WIDTH * 2
        results = 16384 * 4096  # a record of token, string, log-prob, rank and five alternatives, printed as JSON
        self.assertLess(long - short, kv + results)
        self.assertLess(long, 600 * MIB)  # [tokens, vocab] in float32 would be 8 GiB


if __name__ == "__main__":
    unittest.main()
