"""`verify`: the invariance suite on a model, its digests and its exit code."""
import unittest

import cli

QUANTITIES = ["log_probs", "top_k", "max_logits", "hidden_states_all_normalized", "hidden_states_last",
              "generated_tokens", "generated_log_probs"]


class Verify(unittest.TestCase):
    def report(self, name, *options):
        result = cli.run_ok("verify", "-m", cli.model_path(name), "--format", "json", "--quiet", *options,
                            timeout=900)
        return cli.strict_json(result.stdout)

    def check(self, report):
        self.assertIs(report["ok"], True)
        self.assertEqual(report["cases"], 19 + len(cli.supported_isas()))
        self.assertEqual(list(report["digests"]), QUANTITIES)
        for digest in report["digests"].values():
            self.assertRegex(digest, r"\A[0-9a-f]{64}\Z")
        self.assertEqual(len(set(report["digests"].values())), len(QUANTITIES))

    def test_the_digests_see_the_compute_type(self):
        bf16, f32 = self.report("gguf_qwen3"), self.report("gguf_qwen3", "--compute", "f32")
        self.check(bf16)
        self.check(f32)
        self.assertNotEqual(bf16["digests"]["log_probs"], f32["digests"]["log_probs"])

    def test_text_and_digests_whatever_the_reference_is(self):
        report = self.report("llama3", "--threads", "1", "--isa", "avx2")
        self.check(report)
        lines = cli.run_ok("verify", "-m", cli.model_path("llama3"), "--quiet", timeout=900).stdout.splitlines()
        for name in ("threads 3", "chunk 1", "chunk all", "batch 33", "page 128", "isa avx2"):
            self.assertIn(f"{name:16} ok", lines)
        self.assertEqual(dict(line.split() for line in lines[-len(QUANTITIES):]), report["digests"])


if __name__ == "__main__":
    unittest.main()
