"""Where results go: files, full disks, interruption, hidden states."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import time
import unittest

import cli


class Output(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.good = ("-m", cli.model_path("smollm2"), "--tokens", "1,2,3,4", "--quiet")

    def tearDown(self):
        self.folder.cleanup()

    def failed(self, result, *words):
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"\Aplumbline: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, result.stderr)

    def test_output_file_is_what_stdout_would_be(self):
        path = self.dir / "out.jsonl"
        printed = cli.run_ok("score", *self.good, "--format", "jsonl").stdout
        result = cli.run_ok("score", *self.good, "--format", "jsonl", "--output", path)
        self.assertEqual(result.stdout, "")
        self.assertEqual(path.read_text(), printed)

    def test_output_that_cannot_be_written(self):
        for path in (self.dir / "no/such/folder.jsonl", self.dir):
            result = cli.run("score", *self.good, "--output", path)
            self.assertIn(result.returncode, (1, 2))
            self.assertRegex(result.stderr, r"\Aplumbline: [^\n]+\n\Z")
            self.assertIn(str(path), result.stderr)

    def test_full_disk(self):
        self.failed(cli.run("score", *self.good, "--output", "/dev/full"), "/dev/full")
        with open("/dev/full", "w") as full:
            self.failed(cli.run("score", *self.good, "--format", "json", stdout=full))
            self.failed(cli.run("score", *self.good, "--format", "text", stdout=full))
            self.failed(cli.run("generate", *self.good, "-n", "4", stdout=full))
            self.failed(cli.run("info", *self.good[:2], stdout=full))

    def test_full_disk_leaves_no_hidden_states_behind(self):
        path = self.dir / "hidden.safetensors"

        def limit():  # a disk that is full after a kilobyte
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

        self.failed(cli.run("score", *self.good[:2], "--tokens", cli.comma_list(range(100)), "--quiet",
                            "--hidden-states", "all", "--hidden-states-out", path, preexec_fn=limit), str(path))
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_closed_pipe_ends_quietly(self):
        process = subprocess.Popen([cli.BINARY, "score", *map(str, self.good), "--format", "json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.close()
        stderr = process.stderr.read()
        process.stderr.close()
        process.wait(60)
        self.assertLessEqual(stderr.count("\n"), 1, stderr)

    def test_interrupt_keeps_what_is_done(self):
        requests = self.dir / "many.jsonl"
        ids = [(i * 37) % 49152 for i in range(200)]
        total = 400
        requests.write_text("".join(json.dumps({"id": str(i), "tokens": ids}) + "\n" for i in range(total)))
        out = self.dir / "out.jsonl"
        process = subprocess.Popen(
            [cli.BINARY, "score", "-m", cli.default_model(), "-f", requests, "--format", "jsonl", "--quiet",
             "--batch-size", "2", "--output", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if out.exists() and out.read_text().count("\n") >= 2:
                break
            time.sleep(0.05)
        self.assertIsNone(process.poll(), "it ended before it could be interrupted")
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        _, stderr = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - sent, 20)
        self.assertGreater(process.returncode, 0, "an exit code, not a death by signal")
        self.assertRegex(stderr, r"\Aplumbline: [^\n]+\n\Z")
        lines = out.read_text().splitlines()
        self.assertTrue(2 <= len(lines) < total, len(lines))
        for index, line in enumerate(lines):
            result = cli.strict_json(line)
            self.assertEqual(result["id"], str(index))
            self.assertEqual(result["receipt"]["digest"], cli.digest(result))


class HiddenStates(unittest.TestCase):
    """Every layer's rows against the reference; shapes and names as the file says them."""

    def setUp(self):
        self.golden, _ = cli.read_safetensors(cli.GOLDEN / "llama3" / "golden.safetensors")
        self.ids = list(self.golden["seq2.tokens"][1])

    def hidden(self, mode, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "hidden.safetensors")
            cli.run_ok("score", "-m", cli.model_path("llama3"), "--tokens", cli.comma_list(self.ids), "--compute",
                       "f32", "--hidden-states", mode, "--hidden-states-out", path, "--quiet", *options)
            return cli.read_safetensors(path)[0]

    def test_last_and_all(self):
        hidden_shape, hidden = self.golden["seq2.hidden"]
        layers, rows, width = hidden_shape
        normalized = self.golden["seq2.normalized"][1]
        for mode, want in (("all", hidden[-rows * width:]), ("all_normalized", normalized),
                           ("last", hidden[-width:])):
            (shape, got), = self.hidden(mode).values()
            self.assertEqual(shape[-1], width, mode)
            self.assertLess(cli.worst(got, want), 2e-4, mode)

    def test_selected_layers(self):
        layers, rows, width = self.golden["seq2.hidden"][0]
        got = self.hidden("selected_layers", "--layers", "0,1")
        values = [value for name in sorted(got) for value in got[name][1]]
        self.assertLess(cli.worst(values, self.golden["seq2.hidden"][1]), 2e-4)


if __name__ == "__main__":
    unittest.main()
