"""`verify`: the invariance suite on a model, its table, its digests and its exit code."""
import unittest

import cli

QUANTITIES = ["log_probs", "top_k", "hidden_states", "max_logits", "generated_tokens"]
AXES = {
    "threads": {"1", "2", "3", "5"},
    "chunk": {"1", "2", "7", "16", "64", "all"},
    "strangers": {"alone", "1", "2", "7", "8", "31", "33"},
    "page": {"128"},
    "prefix": {"cold", "full", "cut 63", "cut 64", "cut 65"},
    "drafts": {"0", "1", "2", "3", "7"},
    "mix": {"1", "2", "3", "4"},
}


class Verify(unittest.TestCase):
    def report(self, name, *options):
        result = cli.run_ok("verify", "-m", cli.model_path(name), "--format", "json", "--quiet", *options,
                            timeout=900)
        return cli.strict_json(result.stdout)

    def check(self, report):
        self.assertIs(report["ok"], True)
        self.assertEqual(list(report["digests"]), QUANTITIES)
        for digest in report["digests"].values():
            self.assertRegex(digest, r"\A[0-9a-f]{64}\Z")
        self.assertEqual(len(set(report["digests"].values())), len(QUANTITIES))
        seen = {}
        for case in report["cases"]:
            self.assertIs(case["equal"], True, case)
            self.assertEqual(case["digests"], report["digests"], case)
            seen.setdefault(case["axis"], set()).add(case["value"])
        self.assertEqual(seen.pop("reference"), {""})
        # As the model can be cut: these by every one.
        self.assertLessEqual({"tp 2", "dp 2", "pp 2", "cp 2", "tp 2 dp 2 cp 2"}, seen.pop("ranks"))
        self.assertEqual(seen, AXES | {"isa": set(cli.supported_isas())})

    def test_the_digests_see_the_compute_type(self):
        bf16, f32 = self.report("gguf_qwen3"), self.report("gguf_qwen3", "--compute", "f32")
        self.check(bf16)
        self.check(f32)
        for quantity in ("log_probs", "hidden_states", "max_logits"):
            self.assertNotEqual(bf16["digests"][quantity], f32["digests"][quantity])

    def test_text_and_digests_whatever_the_reference_is(self):
        report = self.report("llama3", "--threads", "1", "--isa", "avx2")
        self.check(report)
        lines = cli.run_ok("verify", "-m", cli.model_path("llama3"), "--quiet", timeout=900).stdout.splitlines()
        self.assertEqual(lines[0].split(), ["axis", "value", *QUANTITIES, "equal"])
        self.assertEqual(dict(line.split() for line in lines[-len(QUANTITIES):]), report["digests"])
        rows = lines[1:-len(QUANTITIES)]
        self.assertEqual(len(rows), len(report["cases"]))
        shown = [digest[:12] for digest in report["digests"].values()]
        for row, case in zip(rows, report["cases"]):
            self.assertEqual(row.split(), [*f'{case["axis"]} {case["value"]}'.split(), *shown, "yes"])


if __name__ == "__main__":
    unittest.main()
