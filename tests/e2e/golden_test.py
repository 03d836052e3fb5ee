"""The binary against the golden results of transformers: tiny models of every family, and the default model."""
import math
import statistics
import tempfile
import unittest

import cli

TINY_TOLERANCE = 1e-4     # absolute, on log-probs and attention maxima, both sides float32
DEFAULT_TOLERANCE = 1e-4


def sequence(golden, index):
    prefix = f"seq{index}."
    return {name[len(prefix):]: value for name, value in golden.items() if name.startswith(prefix)}


class TinyModels(unittest.TestCase):
    def test_every_folder(self):
        folders = sorted(path.parent.name for path in cli.GOLDEN.glob("*/golden.safetensors"))
        self.assertGreaterEqual(len(folders), 18)
        for name in folders:
            with self.subTest(name):
                self.check(name)

    def check(self, name):
        golden, metadata = cli.read_safetensors(cli.GOLDEN / name / "golden.safetensors")
        sequences = [sequence(golden, index) for index in range(6)]
        requests = "".join('{"id": "%d", "tokens": %s}\n' % (i, list(s["tokens"][1])) for i, s in enumerate(sequences))
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write(requests)
            file.flush()
            results = cli.score("-m", cli.model_path(name), "-f", file.name, "--compute", "f32", "--max-logit")
        self.assertEqual([r["id"] for r in results], [str(i) for i in range(6)])
        for want, got in zip(sequences, results):
            self.assertEqual(got["tokens"], list(want["tokens"][1]))
            self.assertIsNone(got["token_logprobs"][0])
            logprobs = want["logprobs"][1] if "logprobs" in want else []
            self.assertLess(cli.worst(got["token_logprobs"][1:], logprobs), TINY_TOLERANCE)
            layers, heads = want["max_logits"][0]
            self.assertEqual([len(row) for row in got["max_logits"]], [heads] * layers)
            self.assertLess(cli.worst(sum(got["max_logits"], []), want["max_logits"][1]), TINY_TOLERANCE)
        # The text, tokenised by the binary, gives the ids of the reference's tokenizer.
        text = cli.score("-m", cli.model_path(name), "-p", metadata["text"], "--compute", "f32")[0]
        self.assertEqual(text["tokens"], list(sequences[5]["tokens"][1]))


class DefaultModel(unittest.TestCase):
    def setUp(self):
        self.model = cli.default_model()
        self.golden, self.metadata = cli.read_safetensors(cli.ROOT / "tests/golden/default_model/golden.safetensors")

    def texts(self):
        for index in range(3):
            prefix = f"text{index}."
            yield self.metadata[f"text{index}"], {name[len(prefix):]: value[1] for name, value in self.golden.items()
                                                  if name.startswith(prefix)}

    def test_float32(self):
        for text, want in self.texts():
            got = cli.score("-m", self.model, "-p", text, "--compute", "f32", "--top-logprobs", 5, "--max-logit")[0]
            self.assertEqual(got["tokens"], list(want["tokens"]))
            self.assertEqual("".join(got["token_strings"]), text)
            self.assertLess(cli.worst(got["token_logprobs"][1:], want["logprobs"]), DEFAULT_TOLERANCE)
            self.assertEqual(got["ranks"][1:], list(want["ranks"]))
            top = [entry for row in got["top_logprobs"][1:] for entry in row]
            self.assertLess(cli.worst([entry["logprob"] for entry in top], want["top_logprobs"]), DEFAULT_TOLERANCE)
            self.assertEqual([entry["id"] for entry in top], list(want["top_tokens"]))
            self.assertLess(cli.worst(sum(got["max_logits"], []), want["max_logits"]), DEFAULT_TOLERANCE)

    def test_rounded_computes_stay_within_what_rounding_explains(self):
        """The bound of docs/numerics.md: s u sqrt(2 (2 L + 1)) in root mean square, 6 times that for one."""
        for compute, unit in (("bf16", 2**-8), ("int8", 2**-7)):
            for text, want in self.texts():
                got = cli.score("-m", self.model, "-p", text, "--compute", compute)[0]
                self.assertEqual(got["receipt"]["compute"], compute)
                bound = statistics.pstdev(want["last_logits_every_64"]) * unit * math.sqrt(2 * (2 * 30 + 1))
                errors = [a - b for a, b in zip(got["token_logprobs"][1:], want["logprobs"])]
                self.assertLess(math.sqrt(sum(e * e for e in errors) / len(errors)), bound, compute)
                self.assertLess(max(map(abs, errors)), 6 * bound, compute)


class Output(unittest.TestCase):
    """What product.md promises of the JSON itself."""

    def setUp(self):
        self.result = cli.score("-m", cli.model_path("smollm2"), "-p", "One row, one answer.", "--top-logprobs", 4,
                                "--max-logit")[0]

    def test_one_entry_per_token(self):
        n = len(self.result["tokens"])
        for name in ("token_strings", "token_logprobs", "top_logprobs", "ranks"):
            self.assertEqual(len(self.result[name]), n, name)
        for name in ("token_logprobs", "top_logprobs", "ranks"):
            self.assertIsNone(self.result[name][0], name)

    def test_top_is_ordered_and_holds_the_ranks(self):
        rows = zip(self.result["tokens"], self.result["token_logprobs"], self.result["ranks"],
                   self.result["top_logprobs"])
        for token, logprob, rank, top in list(rows)[1:]:
            self.assertEqual(len(top), 4)
            self.assertEqual(top, sorted(top, key=lambda entry: (-entry["logprob"], entry["id"])))
            if rank <= 4:
                self.assertEqual((top[rank - 1]["id"], top[rank - 1]["logprob"]), (token, logprob))
            else:
                self.assertNotIn(token, [entry["id"] for entry in top])

    def test_sums(self):
        logprobs = self.result["token_logprobs"][1:]
        self.assertAlmostEqual(self.result["sum_logprob"], sum(logprobs), places=3)
        self.assertAlmostEqual(self.result["perplexity"] / math.exp(-sum(logprobs) / len(logprobs)), 1.0, places=5)

    def test_numbers_are_the_float32_and_the_digest_is_theirs(self):
        receipt = self.result["receipt"]
        self.assertEqual(receipt["digest"], cli.digest(self.result))
        for name in ("numerics_version", "model_sha256", "compute", "isa", "threads", "tp", "dp", "pp", "ep", "cp",
                     "chunk_size"):
            self.assertIn(name, receipt)
        text = cli.run_ok("score", "-m", cli.model_path("smollm2"), "-p", "One row, one answer.", "--format",
                          "json", "--quiet").stdout
        printed = text.split('"token_logprobs"')[1].split("[", 1)[1].split("]")[0].split(",")[1:]
        for decimal in (entry.strip() for entry in printed):
            self.assertLessEqual(len(decimal.lstrip("-").replace(".", "")), 11, f"{decimal} is not the shortest")

    def test_context_and_continuation(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"id": "a", "context": "One row, one", "continuation": " answer."}\n'
                       '{"id": "b", "text": "One row, one answer."}\n')
            file.flush()
            pair, whole = cli.score("-m", cli.model_path("smollm2"), "-f", file.name)
        self.assertEqual((pair["id"], whole["id"]), ("a", "b"))
        self.assertEqual(pair["tokens"], whole["tokens"])
        self.assertGreater(pair["sum_logprob"], whole["sum_logprob"])


if __name__ == "__main__":
    unittest.main()
