#!/usr/bin/env python3
"""Ranks that are killed, and a launcher that is: the survivors name the dead and no process remains.

usage: mpi_kill_test.py MPIRUN MPI_TEST_PROGRAM
"""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
import uuid

MPIRUN, PROGRAM = sys.argv[1:3]


class Job:
    """mpirun of the program's KilledRank test; `mark` is found in the command line of every process of it."""

    def __init__(self, ranks, killed):
        self.mark = uuid.uuid4().hex
        # mpirun waits that long between SIGTERM and SIGKILL: on a busy machine 1 s, as it would, may be too short.
        command = [MPIRUN, "--mca", "odls_base_sigkill_timeout", "5", "--allow-run-as-root", "--oversubscribe", "-n",
                   str(ranks), PROGRAM, "--gtest_color=no", "--gtest_also_run_disabled_tests", f"--gtest_filter=KilledRank.*:{self.mark}"]
        self.process = subprocess.Popen(command, env=os.environ | {"PLUMBLINE_KILL": str(killed)}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def left(self):
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                line = (path / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if self.mark in line:
                found.append(int(path.name))
        return found

    def wait_until_gone(self):
        for _ in range(100):
            if not self.left():
                return True
            time.sleep(0.1)
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        return False


class KillTest(unittest.TestCase):
    def test_survivors_name_the_rank_that_died(self):
        for ranks, killed in ((2, 1), (3, 0), (4, 3)):
            with self.subTest(ranks=ranks, killed=killed):
                job = Job(ranks, killed)
                output, _ = job.process.communicate(timeout=120)
                for rank in set(range(ranks)) - {killed}:
                    self.assertIn(f"rank {rank} saw: rank {killed}: its process died\n", output)
                self.assertNotEqual(job.process.returncode, 0)
                self.assertTrue(job.wait_until_gone(), "processes remain")

    def test_no_rank_outlives_its_launcher(self):
        job = Job(3, -1)
        while len(job.left()) < 4:
            time.sleep(0.05)
        time.sleep(1)
        job.process.kill()
        job.process.communicate()
        self.assertTrue(job.wait_until_gone(), "processes remain")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
