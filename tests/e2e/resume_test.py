"""`score --resume`: an interrupted run and its rest are, byte for byte, the run that was not interrupted."""
import json
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import cli


class Resume(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.model = cli.model_path("llama3")
        self.out = self.dir / "out.jsonl"

    def tearDown(self):
        self.folder.cleanup()

    def requests(self, count, length=40, vocab=333):
        path = self.dir / "requests.jsonl"
        with open(path, "w") as file:
            for r in range(count):
                ids = [(7 * i * i + 13 * r + 5 * i) % vocab for i in range(1 + length + r % 7)]
                file.write(json.dumps({"id": f"r{r}", "tokens": ids}) + "\n")
        return path

    def arguments(self, requests, *options, model=None):
        return ("score", "-m", model or self.model, "-f", requests, "--format", "jsonl", "--quiet", "--threads", "2",
                "--output", self.out, *options)

    def whole(self, requests, *options, model=None):
        cli.run_ok(*self.arguments(requests, *options, model=model))
        text = self.out.read_bytes()
        self.out.unlink()
        return text

    def refused(self, requests, *words, options=("--resume",)):
        before = self.out.read_bytes() if self.out.exists() else None
        result = cli.run(*self.arguments(requests, *options))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"\Aplumbline: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, result.stderr)
        if before is not None:
            self.assertEqual(self.out.read_bytes(), before, "a refused run changes nothing")

    def interrupt(self, arguments, sig, at_least):
        """Starts the run, signals it once it has written a few records, returns how many there are."""
        process = subprocess.Popen([cli.BINARY, *map(str, arguments)], stderr=subprocess.DEVNULL)
        before = self.out.read_bytes().count(b"\n") if self.out.exists() else 0
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if self.out.exists() and self.out.read_bytes().count(b"\n") >= before + at_least:
                break
            time.sleep(0.01)
        self.assertIsNone(process.poll(), "it ended before it could be interrupted")
        process.send_signal(sig)
        process.wait(60)
        return self.out.read_bytes().count(b"\n")

    def test_interrupted_runs_end_as_one_run(self):
        options = ("--batch-size", "3", "--chunk-size", "128", "--top-logprobs", "2")
        model = cli.default_model()
        for sig in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(sig.name):
                requests = self.requests(24, length=100, vocab=49152)
                whole = self.whole(requests, *options, model=model)
                arguments = self.arguments(requests, "--resume", *options, model=model)
                done = self.interrupt(arguments, sig, 2)
                self.assertLess(done, 24)
                again = self.interrupt(arguments, sig, 2)
                self.assertGreater(again, done)
                cli.run_ok(*arguments)
                self.assertEqual(self.out.read_bytes(), whole)
                self.out.unlink()

    def test_cut_anywhere(self):
        requests = self.requests(6)
        whole = self.whole(requests, "--max-logit")
        first = whole.index(b"\n") + 1
        for size in (0, 1, first - 1, first, first + 1, first + 300, len(whole) - 1, len(whole)):
            with self.subTest(size):
                self.out.write_bytes(whole[:size])
                cli.run_ok(*self.arguments(requests, "--resume", "--max-logit"))
                self.assertEqual(self.out.read_bytes(), whole)

    def test_no_file_yet(self):
        requests = self.requests(3)
        whole = self.whole(requests)
        cli.run_ok(*self.arguments(requests, "--resume"))
        self.assertEqual(self.out.read_bytes(), whole)

    def test_records_of_other_requests(self):
        requests = self.requests(4)
        lines = self.whole(requests).splitlines(keepends=True)
        self.out.write_bytes(lines[0] + lines[2])
        self.refused(requests, "r2", "r1", "line 2")
        self.out.write_bytes(b"".join(lines) + lines[0])
        self.refused(requests, "4 records")
        self.out.write_bytes(b"not json\n")
        self.refused(requests, "line 1")
        self.out.write_bytes(lines[0])
        self.refused(self.requests(4, length=50), "tokens", "r0")

    def test_records_of_another_run(self):
        requests = self.requests(4)
        lines = self.whole(requests, "--compute", "f32").splitlines(keepends=True)
        self.out.write_bytes(lines[0])
        self.refused(requests, "compute", "f32", "bf16")
        self.refused(requests, "--top-logprobs", options=("--resume", "--compute", "f32", "--top-logprobs", "3"))
        self.refused(requests, "--max-logit", options=("--resume", "--compute", "f32", "--max-logit"))
        self.out.write_bytes(lines[0].replace(b'"model_sha256": "', b'"model_sha256": "0'))
        self.refused(requests, "SHA-256", options=("--resume", "--compute", "f32"))

    def test_wrong_usage(self):
        requests = self.requests(2)
        result = cli.run("score", "-m", self.model, "-f", requests, "--format", "json", "--output", self.out, "--resume")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--format json, want jsonl", result.stderr)
        base = ("score", "-m", self.model, "-f", requests, "--format", "jsonl", "--quiet", "--resume")
        for extra in ((), ("--output", "/dev/null"), ("--output", self.dir)):
            result = cli.run(*base, *extra)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertRegex(result.stderr, r"\Aplumbline: [^\n]+\n\Z")


if __name__ == "__main__":
    unittest.main()
