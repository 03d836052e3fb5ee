"""Scoring never holds [tokens, vocab]: peak memory is weights, KV and a bound that a longer prompt does not move."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import cli
import corpus

VOCAB = 131072
LAYERS, HIDDEN = 2, 256
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
                        "--layers", str(LAYERS), "--hidden", str(HIDDEN), "--heads", "4", "--kv-heads", "2",
                        "--context", "16384"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def score(self, tokens):
        path = pathlib.Path(self.folder.name) / f"{tokens}.jsonl"
        path.write_text(json.dumps({"id": "0", "tokens": [(i * i) % VOCAB for i in range(tokens)]}) + "\n")
        return peak_bytes("score", "-m", self.model, "-f", path, "--top-logprobs", 5, "--max-logit", "--threads", 2,
                          "--format", "jsonl", "--quiet")

    def test_scoring_peaks_at_weights_kv_and_64_mib(self):
        info = json.loads(cli.run_ok("info", "-m", self.model, "--format", "json").stdout)
        kv = info["kv_bytes_full_context"]
        self.assertEqual(kv, 16384 * LAYERS * 2 * (HIDDEN // 2) * 2)
        self.assertGreaterEqual(info["packed_weight_bytes"], VOCAB * HIDDEN * 2)
        # [tokens, vocab] in float32 would be 8 GiB.
        self.assertLess(self.score(16384), info["packed_weight_bytes"] + kv + 64 * MIB)

    def test_a_memory_limit_is_kept_and_changes_nothing(self):
        model = cli.default_model()
        info = json.loads(cli.run_ok("info", "-m", model, "--format", "json", "--threads", 2, "--memory-limit",
                                     "1B").stdout)
        limit = info["memory_limit_least"] + 16 * info["memory_limit_page_bytes"]
        path, out = (pathlib.Path(self.folder.name) / name for name in ("many.jsonl", "out.jsonl"))
        corpus.write(path, corpus.documents(16, info["vocab"], shortest=250, longest=350, mean=300))
        common = ("score", "-m", model, "-f", path, "--top-logprobs", 5, "--threads", 2, "--format", "jsonl", "--quiet",
                  "--output", out)
        free = peak_bytes(*common)
        want = out.read_bytes()
        limited = peak_bytes(*common, "--memory-limit", limit)
        self.assertEqual(out.read_bytes(), want)
        self.assertLess(limited, limit)
        self.assertGreater(free, limit, "a limit that nothing would have passed")

    def test_a_memory_limit_holds_for_generation_too(self):
        model = cli.default_model()
        info = json.loads(cli.run_ok("info", "-m", model, "--format", "json", "--threads", 2, "--memory-limit",
                                     "1B").stdout)
        limit = info["memory_limit_least"] + 4 * info["memory_limit_page_bytes"]
        common = ("generate", "-m", model, "--tokens", cli.comma_list(range(100, 160)), "-n", 30, "--threads", 2,
                  "--top-logprobs", 3, "--format", "json", "--quiet")
        want = cli.strict_json(cli.run_ok(*common).stdout)
        got = cli.strict_json(cli.run_ok(*common, "--memory-limit", limit).stdout)
        self.assertEqual(got["receipt"]["digest"], want["receipt"]["digest"])
        self.assertLess(peak_bytes(*common, "--memory-limit", limit), limit)
        refused = cli.run(*common, "--memory-limit", info["memory_limit_least"])
        self.assertEqual(refused.returncode, 2, refused.stderr)

    def test_a_short_prompt_needs_no_long_ones_kv(self):
        info = json.loads(cli.run_ok("info", "-m", self.model, "--format", "json").stdout)
        self.assertLess(self.score(256), info["packed_weight_bytes"] + info["kv_bytes_per_page"] * 4 + 64 * MIB)


if __name__ == "__main__":
    unittest.main()
