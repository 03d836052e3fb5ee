"""Bad input: one line on stderr that says what was wrong, exit code 2, nothing on stdout, no crash."""
import json
import pathlib
import random
import shutil
import tempfile
import unittest

import cli


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.model = cli.model_path("smollm2")

    def tearDown(self):
        self.folder.cleanup()

    def refused(self, *arguments, says="", code=2, stdin=""):
        result = cli.run(*arguments, stdin=stdin)
        self.assertEqual(result.returncode, code, (arguments, result.stderr))
        self.assertEqual(result.stdout, "", arguments)
        self.assertRegex(result.stderr, r"\Aplumbline: [^\n]+\n\Z", arguments)
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, result.stderr, arguments)

    def write(self, name, data):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def hf_copy(self, name, **changes):
        """A copy of a golden Hugging Face folder with keys of config.json changed (None removes one)."""
        target = self.dir / f"{name}_copy"
        shutil.copytree(cli.GOLDEN / name, target)
        config = json.loads((target / "config.json").read_text())
        config = {key: value for key, value in (config | changes).items() if value is not None}
        (target / "config.json").write_text(json.dumps(config))
        return target

    def score(self, model, **checks):
        self.refused("score", "-m", model, "--tokens", "1,2,3", **checks)

    # ---- Usage. ----

    def test_usage(self):
        good = ("-m", self.model, "--tokens", "1,2,3")
        self.refused()
        self.refused("conjure")
        self.refused("score")
        self.refused("score", *good, "--no-such-option")
        self.refused("score", "-m", self.model)
        self.refused("score", *good, "-p", "text too")
        for option, value in (("--threads", "-1"), ("--threads", "many"), ("--chunk-size", "-3"), ("--isa", "sse2"),
                              ("--compute", "f64"), ("--format", "xml"), ("--top-logprobs", "-1"),
                              ("--batch-size", "0"), ("--kv-page-size", "63")):
            self.refused("score", *good, option, value, says=value)
        self.refused("generate", *good, "-n", "-4", says="-4")
        self.refused("generate", *good, "-n", "4", "--temperature", "-1", says="-1")
        self.refused("generate", *good, "-n", "4", "--top-p", "1.5", says="1.5")

    def test_version(self):
        self.assertRegex(cli.run_ok("--version").stdout, r"\Aplumbline \d+\.\d+\.\d+ \(numerics \d+\)\n\Z")

    def test_help_is_no_error(self):
        for arguments in (("--help",), ("score", "--help"), ("generate", "--help")):
            self.assertEqual(cli.run(*arguments).returncode, 0, arguments)

    def test_integers_want_a_quantised_weight(self):
        self.refused("score", "-m", cli.model_path("smollm2"), "--tokens", "1,2,3", "--compute", "int8", says="int8")

    # ---- Models. ----

    def test_missing_empty_and_foreign_files(self):
        self.score(self.dir / "nowhere.gguf", says="nowhere.gguf")
        self.score(self.write("empty.gguf", b""), says="empty.gguf")
        self.score(self.write("text.gguf", "just some words, not a model at all"), says="text.gguf")
        (self.dir / "folder").mkdir()
        self.score(self.dir / "folder", says="model.safetensors")

    def test_truncated_gguf(self):
        data = cli.model_path("gguf_llama").read_bytes()
        for size in (3, 4, 8, 23, 100, 5000, len(data) // 2, len(data) - 32):  # the last 31 bytes may be padding
            self.score(self.write("cut.gguf", data[:size]), says="cut.gguf")

    def test_unknown_quantisation(self):
        data = cli.model_path("gguf_llama").read_bytes()
        # A tensor's entry: name, dimension count, dimensions, type (4 bytes).
        name = b"blk.0.ffn_up.weight"
        at = data.index(name) + len(name) + 4 + 16
        for number in (4, 99, 0xffffffff):
            broken = data[:at] + number.to_bytes(4, "little") + data[at + 4:]
            self.score(self.write("strange.gguf", broken), says=["blk.0.ffn_up.weight", str(number)])

    def test_flipped_bytes_never_crash(self):
        data = cli.model_path("gguf_qwen3").read_bytes()
        generator = random.Random(20)
        for _ in range(60):
            broken = bytearray(data)
            for _ in range(generator.randint(1, 4)):
                broken[generator.randrange(9000)] = generator.randrange(256)
            result = cli.run("score", "-m", self.write("flipped.gguf", bytes(broken)), "--tokens", "1,2,3")
            self.assertIn(result.returncode, (0, 1, 2), result.stderr)
            self.assertRegex(result.stderr, r"\A[^\x00-\x1f\x7f]*\n?\Z")

    def test_broken_folders(self):
        self.score(self.hf_copy("llama3", architectures=["MambaForCausalLM"], model_type="mamba"), says="amba")
        self.score(self.hf_copy("qwen3", hidden_size=None), says="hidden_size")
        self.score(self.hf_copy("qwen2", hidden_size=64), says="64")
        self.score(self.hf_copy("mistral", num_hidden_layers=3), says="layers.2")
        self.score(self.hf_copy("smollm2", rope_scaling={"rope_type": "longrope"}), says="longrope")
        folder = self.hf_copy("llama2")
        (folder / "config.json").write_text('{"architectures": [')
        self.score(folder, says="config.json")
        folder = self.hf_copy("llama_linear")
        (folder / "model-00002-of-00003.safetensors").unlink()
        self.score(folder, says="model-00002-of-00003.safetensors")

    def test_broken_safetensors(self):
        folder = self.hf_copy("llama3")
        data = (folder / "model.safetensors").read_bytes()
        for broken in (b"", data[:7], data[:200], data[:-2], b"\xff" * 8 + data[8:], data[:8] + b"}" + data[9:]):
            (folder / "model.safetensors").write_bytes(broken)
            self.score(folder, says="model.safetensors")

    def test_broken_tokenizer(self):
        folder = self.hf_copy("llama3")
        (folder / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
        self.refused("score", "-m", folder, "-p", "text", says="tokenizer.json")

    # ---- Requests. ----

    def test_tokens(self):
        for ids, word in (("1,333", "333"), ("1,-2", "-2"), ("1,x", "x"), ("1,,2", ""), ("", ""),
                          ("99999999999999999999", "")):
            self.refused("score", "-m", self.model, "--tokens", ids, says=word)

    def test_empty_prompt(self):
        self.refused("score", "-m", self.model, "-p", "")
        self.refused("score", "-m", self.model, "-f", self.write("empty.txt", ""))

    def test_longer_than_the_context(self):
        ids = cli.comma_list([5] * 513)
        self.refused("score", "-m", self.model, "--tokens", ids, says=["513", "512"])
        windows = cli.score("-m", self.model, "--tokens", ids, "--stride", 256)
        self.assertEqual(len(windows[0]["token_logprobs"]), 513)
        self.refused("generate", "-m", self.model, "--tokens", cli.comma_list([5] * 500), "-n", "13", says="512")

    def test_jsonl_names_the_line(self):
        good = '{"id": "0", "text": "fine"}\n'
        for bad in ('{"id": "1", "text": ', "[1]", '{"id": "1"}', '{"id": "1", "tokens": "x"}', '{"id": "1", "tokens": [-7]}',
                    '{"id": "1", "text": 5}', '{"id": "1", "context": "only half"}'):
            path = self.write("requests.jsonl", good + good.replace('"0"', '"z"') + bad + "\n")
            result = cli.run("score", "-m", self.model, "-f", path, "--format", "jsonl")
            self.assertEqual(result.returncode, 2, (bad, result.stderr))
            self.assertIn("requests.jsonl, line 3", result.stderr, bad)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_jsonl_names_the_request_whose_tokens_are_wrong(self):
        for tokens, word in (("[1, 999]", "999"), ("[]", "no tokens")):
            path = self.write("requests.jsonl", '{"id": "a", "tokens": [1, 2]}\n{"id": "b", "tokens": %s}\n' % tokens)
            self.refused("score", "-m", self.model, "-f", path, says=[word, "request b"])

    def test_missing_request_file(self):
        self.refused("score", "-m", self.model, "-f", self.dir / "nothing.txt", says="nothing.txt")

    def test_broken_utf8_is_scored(self):
        result = cli.score("-m", self.model, "-f", self.write("bytes.txt", b"ok \xff\xfe then"))[0]
        self.assertGreater(len(result["tokens"]), 3)


if __name__ == "__main__":
    unittest.main()
