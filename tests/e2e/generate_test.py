"""`generate`: greedy continuation, its log-probs, stopping, sampling with a seed."""
import unittest

import cli

TEXT = "The three primary colours are"


def generate(*arguments):
    result = cli.run_ok("generate", *arguments, "--format", "json", "--quiet")
    return cli.strict_json(result.stdout)


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = cli.default_model()

    def test_logprobs_equal_those_of_score(self):
        for model, options in ((self.model, ()), (cli.model_path("mistral"), ("--compute", "f32")),
                               (self.model, ("--temperature", 1.5, "--seed", 3))):
            compute = [option for option in options if option in ("--compute", "f32")]
            out = generate("-m", model, "-p", TEXT, "-n", 24, "--logprobs", "--top-logprobs", 3, *options)
            ids = out["tokens"] + out["output_tokens"]
            scored = cli.score("-m", model, "--tokens", cli.comma_list(ids), "--top-logprobs", 3, *compute)[0]
            first = len(out["tokens"])
            self.assertEqual(out["output_logprobs"], scored["token_logprobs"][first:])
            self.assertEqual(out["top_logprobs"], scored["top_logprobs"][first:])

    def test_greedy_takes_the_most_likely_token(self):
        out = generate("-m", self.model, "-p", TEXT, "-n", 12, "--temperature", 0, "--logprobs", "--top-logprobs", 1)
        self.assertEqual(out["output_tokens"], [top[0]["id"] for top in out["top_logprobs"]])
        self.assertEqual(out["finish_reason"], "length")
        self.assertEqual(len(out["output_tokens"]), 12)
        self.assertEqual("".join(out["output_token_strings"]), out["text"])

    def test_chunks_threads_and_isa_change_nothing(self):
        common = ("-m", self.model, "-p", TEXT, "-n", 16, "--logprobs", "--temperature", 0.8, "--top-p", 0.95,
                  "--seed", 11)
        want = generate(*common)
        for options in (("--threads", 1), ("--threads", 3), ("--chunk-size", 2), ("--isa", "avx2")):
            got = generate(*common, *options)
            self.assertEqual(got["output_tokens"], want["output_tokens"], options)
            self.assertEqual(got["output_logprobs"], want["output_logprobs"], options)

    def test_a_seed_decides(self):
        common = ("-m", self.model, "-p", TEXT, "-n", 16, "--temperature", 1.2)
        one, again, other = (generate(*common, "--seed", seed)["output_tokens"] for seed in (1, 1, 2))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)

    def test_top_k_of_one_is_greedy(self):
        common = ("-m", self.model, "-p", TEXT, "-n", 8)
        greedy = generate(*common, "--temperature", 0)
        self.assertEqual(generate(*common, "--temperature", 1.5, "--top-k", 1)["output_tokens"],
                         greedy["output_tokens"])

    def test_stop_string_and_stop_id(self):
        whole = generate("-m", self.model, "-p", TEXT, "-n", 24, "--temperature", 0)
        stop = whole["text"][8:11]
        out = generate("-m", self.model, "-p", TEXT, "-n", 24, "--temperature", 0, "--stop", "never this", "--stop",
                       stop)
        self.assertEqual(out["finish_reason"], "stop")
        self.assertEqual(out["text"], whole["text"][:whole["text"].index(stop)])
        ids = whole["output_tokens"]
        out = generate("-m", self.model, "-p", TEXT, "-n", 24, "--temperature", 0, "--stop-id", ids[5])
        self.assertEqual(out["finish_reason"], "stop")
        self.assertLessEqual(len(out["output_tokens"]), ids.index(ids[5]) + 1)

    def test_text_form_streams_the_same_text(self):
        common = ("-m", self.model, "-p", TEXT, "-n", 16, "--temperature", 0)
        out = generate(*common)
        text = cli.run_ok("generate", *common, "--format", "text", "--quiet").stdout
        self.assertIn(out["text"].strip(), text)

    def test_tokens_as_a_prompt(self):
        common = ("-n", 6, "--temperature", 0)
        out = generate("-m", self.model, "-p", TEXT, *common)
        again = generate("-m", self.model, "--tokens", cli.comma_list(out["tokens"]), *common)
        self.assertEqual(again["output_tokens"], out["output_tokens"])


class Tokenize(unittest.TestCase):
    def test_ids_and_pieces(self):
        model = cli.default_model()
        text = "Naïve café — 42 ✓\n"
        out = cli.strict_json(cli.run_ok("tokenize", "-m", model, "-p", text, "--format", "json").stdout)
        self.assertEqual(out["tokens"], cli.score("-m", model, "-p", text)[0]["tokens"])

    def test_no_bos(self):
        model = cli.model_path("llama3")
        with_bos = cli.score("-m", model, "-p", "a token")[0]["tokens"]
        without = cli.score("-m", model, "-p", "a token", "--no-bos")[0]["tokens"]
        self.assertEqual(with_bos, [0] + without)


class Info(unittest.TestCase):
    def test_text_and_json(self):
        for model in (cli.default_model(), cli.model_path("qwen3"), cli.model_path("llama_linear")):
            text = cli.run_ok("info", "-m", model).stdout
            self.assertIn("layers", text)
            cli.strict_json(cli.run_ok("info", "-m", model, "--format", "json").stdout)


if __name__ == "__main__":
    unittest.main()
