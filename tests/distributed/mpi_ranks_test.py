"""Ranks as processes: one rank's digests, one line and exit code 1 or 2 for what fails, nothing left behind.

usage: mpi_ranks_test.py (PLUMBLINE_BINARY: the binary)
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import cli  # noqa: E402

MODEL = cli.model_path("llama3")
DEGREES = (["--tp", 2], ["--dp", 2], ["--pp", 2], ["--cp", 2], ["--tp", 2, "--dp", 2], ["--tp", 2, "--pp", 2, "--cp", 2])


def write_requests(folder, count, length):
    path = pathlib.Path(folder) / "requests.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            tokens = [(7 * i + 3 * j * j + j) % 250 for j in range(length + i % 7)]
            file.write(json.dumps({"id": str(i), "tokens": tokens}) + "\n")
    return path


def processes_of(marker):
    """Process ids whose command line has `marker`, with the parent and the environment of each."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if marker in command and state[0] != "Z":
            found[int(entry.name)] = int(state[1]), dict(v.split("=", 1) for v in environment.split("\0") if "=" in v)
    return found


def rank_of(marker, rank):
    """The process that runs a rank: of those that mpirun made one, the child."""
    ours = {pid: parent for pid, (parent, environment) in processes_of(marker).items()
            if environment.get("OMPI_COMM_WORLD_RANK") == str(rank)}
    return next((pid for pid, parent in ours.items() if parent in ours), None)


class MpiRanks(unittest.TestCase):
    def test_digests_are_one_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            requests = write_requests(folder, 5, 70)
            arguments = ["-m", MODEL, "-f", requests, "--top-logprobs", 3, "--max-logit", "--chunk-size", 32]
            want = [r["receipt"]["digest"] for r in cli.score(*arguments)]
            for degrees in DEGREES:
                got = cli.score(*arguments, *degrees, "--launcher", "mpi")
                self.assertEqual([r["receipt"]["digest"] for r in got], want, degrees)
                self.assertEqual(got[0]["receipt"]["tp"], degrees[1] if "--tp" in degrees else 1)

    def test_experts_over_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["-m", cli.model_path("qwen3_moe"), "-f", write_requests(folder, 3, 50)]
            want = [r["receipt"]["digest"] for r in cli.score(*arguments)]
            for degrees in (["--dp", 2, "--ep", 2], ["--tp", 2, "--dp", 2, "--ep", 4]):
                got = cli.score(*arguments, *degrees, "--launcher", "mpi")
                self.assertEqual([r["receipt"]["digest"] for r in got], want, degrees)
                self.assertEqual(got[0]["receipt"]["ep"], degrees[-1])

    def test_generate_gives_one_ranks_text(self):
        arguments = ["generate", "-m", MODEL, "--tokens", "1,5,9", "-n", 12, "--temperature", 0.8, "--seed", 3, "--format", "json"]
        want = cli.strict_json(cli.run_ok(*arguments).stdout)
        got = cli.strict_json(cli.run_ok(*arguments, "--tp", 2, "--pp", 2, "--launcher", "mpi").stdout)
        self.assertEqual(got["receipt"]["digest"], want["receipt"]["digest"])

    def test_what_cannot_be_is_one_line_and_exit_code_2(self):
        for arguments, says in ((["-m", "/nonexistent", "--tp", 2], "/nonexistent"), (["-m", MODEL, "--tp", 7], "--tp: got 7"),
                                (["-m", MODEL, "--tp", 2, "--ep", 2], "--ep: got 2"),
                                (["-m", MODEL, "--tp", 2, "--tokens", "1,999999"], "999999")):
            tokens = [] if "--tokens" in arguments else ["--tokens", "1,2,3"]
            result = cli.run("score", *arguments, *tokens, "--launcher", "mpi")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(says, result.stderr)

    def kill_in_the_middle(self, launcher, rank):
        """Kills a rank of `score -f` on two ranks; the exit code, what was said, and the whole results."""
        with tempfile.TemporaryDirectory() as folder:
            requests = write_requests(folder, 4000, 60)
            output = pathlib.Path(folder) / "out.jsonl"
            command = launcher + [cli.BINARY, "score", "-m", str(MODEL), "-f", str(requests), "--format", "jsonl", "--output", str(output),
                                  "--quiet", "--tp", "2", "--threads", "1", "--launcher", "mpi"]
            run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            victim = None
            deadline = time.monotonic() + 60
            while victim is None and time.monotonic() < deadline and run.poll() is None:
                if output.exists() and output.stat().st_size > 2000:
                    victim = rank_of(str(output), rank)
                time.sleep(0.02)
            self.assertIsNotNone(victim, "the run ended before a rank could be killed")
            os.kill(victim, signal.SIGKILL)
            _, errors = run.communicate(timeout=60)
            lines = output.read_text().splitlines(keepends=True)
            self.assertGreater(len(lines), 2)
            for line in lines[:-1]:
                cli.strict_json(line)
            deadline = time.monotonic() + 20
            while processes_of(str(output)) and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual(processes_of(str(output)), {})
            return run.returncode, errors

    def test_a_killed_rank_ends_all_and_leaves_whole_results(self):
        own = ["mpirun", "--quiet", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
        for launcher in ([], own):
            with self.subTest(launcher=launcher):
                code, errors = self.kill_in_the_middle(launcher, 1)
                self.assertEqual(code, 1, errors)
                self.assertIn("rank 1", errors)

    def test_a_killed_first_rank_is_exit_code_1_too(self):
        code, errors = self.kill_in_the_middle([], 0)
        self.assertEqual(code, 1, errors)


if __name__ == "__main__":
    unittest.main()
