"""Many ragged documents under a memory limit, interrupted at any moment and resumed; what is wrong with an input or an
output is said before anything runs."""
import json
import os
import pathlib
import pty
import random
import signal
import subprocess
import tempfile
import time
import unittest

import cli
import corpus

COUNT = 300


class Corpus(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.model = cli.model_path("llama3")
        self.input, self.out = self.dir / "in.jsonl", self.dir / "out.jsonl"

    def tearDown(self):
        self.folder.cleanup()

    def limit(self, pages):
        """Bytes that leave room for just so many KV pages."""
        info = lambda limit: cli.strict_json(cli.run_ok("info", "-m", self.model, "--threads", 2, "--memory-limit", limit,
                                                        "--format", "json").stdout)
        one = info("1B")
        limit = one["memory_limit_least"] + (pages - 1) * one["memory_limit_page_bytes"]
        self.assertEqual([info(limit + more)["memory_limit_pages"] for more in (-1, 0)], [pages - 1, pages])
        return limit

    def arguments(self, *options):
        return [str(part) for part in ("score", "-m", self.model, "-f", self.input, "--format", "jsonl", "--quiet",
                                       "--threads", 2, "--output", self.out, *options)]

    def refused(self, *words, options=()):
        before = self.out.read_bytes() if self.out.exists() else None
        result = cli.run(*self.arguments(*options))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"\Aplumbline: [^\n]+\n\Z")
        for word in words:
            self.assertIn(str(word), result.stderr)
        self.assertEqual(self.out.read_bytes() if self.out.exists() else None, before, "a refused run changes nothing")

    def test_interrupted_at_any_moment(self):
        requests = list(corpus.documents(COUNT, 333))
        for number in range(0, COUNT, 10):
            requests[number] = {"id": f"pair-{number}", "context": "a token ", "continuation": f"and {number} more"}
        corpus.write(self.input, requests)
        options = ("--memory-limit", self.limit(12), "--top-logprobs", 2)
        cli.run_ok(*self.arguments("--top-logprobs", 2))
        free = self.out.read_bytes()
        cli.run_ok(*self.arguments(*options))
        whole = self.out.read_bytes()
        self.assertEqual([json.loads(line)["id"] for line in whole.splitlines()], [request["id"] for request in requests])
        self.assertEqual(whole, free, "the limit changes no byte")
        self.out.unlink()
        rng, interrupted, patience = random.Random(1), 0, 0.05
        for _ in range(200):
            process = subprocess.Popen([cli.BINARY, *self.arguments(*options, "--resume")], stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0, patience))
            process.send_signal(rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)))
            code = process.wait(60)
            if code == 0:
                break
            interrupted += 1
            patience *= 1.1
            if self.out.exists():
                written = self.out.read_bytes()
                self.assertTrue(whole.startswith(written))
                if rng.random() < 0.3:  # as if killed within a write
                    self.out.write_bytes(written[:rng.randint(len(written) * 9 // 10, len(written))])
        self.assertEqual(code, 0)
        self.assertGreater(interrupted, 0)
        self.assertEqual(self.out.read_bytes(), whole)
        cli.run_ok(*self.arguments(*options, "--resume"))
        self.assertEqual(self.out.read_bytes(), whole, "nothing is left to do")

    def test_a_request_that_never_fits(self):
        corpus.write(self.input, [{"id": "small", "tokens": [1, 2]}, {"id": "large", "tokens": [1] * 129}])
        limit = self.limit(2)
        self.refused("request large", limit, "3 KV pages", options=("--memory-limit", limit))
        cli.run_ok(*self.arguments("--memory-limit", self.limit(3)))
        least = self.limit(1)
        self.refused(least, "1 KV pages", options=("--memory-limit", least - 1))
        self.refused("packed weights", options=("--memory-limit", "1kB"))
        for text in ("0", "-1", "5 MiB", "1.5GiB", "x", "99999999999999999999", "99999999999GiB"):
            self.refused("--memory-limit", options=("--memory-limit", text))

    def test_inputs_and_outputs_that_are_wrong(self):
        good = list(corpus.documents(20, 333))
        corpus.write(self.input, good)
        cli.run_ok(*self.arguments())
        first = self.out.read_bytes().splitlines(keepends=True)[0]
        self.out.write_bytes(first)
        lines = self.input.read_text().splitlines(keepends=True)
        for bad, words in (("{not json\n", ("line 11", "malformed")), (lines[3], ("line 11", "doc-3", "twice")),
                           ('{"id": "e", "text": ""}\n', ("empty", "request e")),
                           ('{"id": "e", "tokens": []}\n', ("no tokens", "request e")),
                           (json.dumps({"id": "long", "tokens": [1] * 513}) + "\n", ("513", "context of 512", "request long")),
                           ('{"id": "c", "context": "a", "continuation": ""}\n', ("continuation", "request c"))):
            self.input.write_text("".join(lines[:10] + [bad] + lines[10:]))
            self.refused(*words)
            self.refused(*words, options=("--resume",))
        self.input.write_text("".join(lines[1:]))
        self.refused("doc-0", "doc-1", "line 1", options=("--resume",))

    def test_progress_on_a_terminal(self):
        corpus.write(self.input, corpus.documents(1000, 333))
        ours, theirs = pty.openpty()
        arguments = [part for part in self.arguments() if part != "--quiet"]
        process = subprocess.Popen([cli.BINARY, *arguments], stderr=theirs)
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 4096)
            except OSError:  # the end of a terminal
                break
            shown += block
        os.close(ours)
        self.assertEqual(process.wait(60), 0)
        self.assertRegex(shown.decode(), r"scoring \[#*\.*\] +\d+%  \d+ tokens/s  \d+ s left")


if __name__ == "__main__":
    unittest.main()
