"""Every command that README.md and docs/ show in a `sh` block runs."""
import os
import re
import subprocess
import unittest

import cli


class Docs(unittest.TestCase):
    def test_commands_run(self):
        environment = dict(os.environ, MODEL=str(cli.default_model()))
        count = 0
        for page in [cli.ROOT / "README.md", *sorted((cli.ROOT / "docs").glob("*.md"))]:
            for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S):
                for line in block.splitlines():
                    self.assertTrue(line.startswith("build/plumbline "), f"{page.name}: {line}")
                    command = line.replace("build/plumbline", cli.BINARY, 1)
                    result = subprocess.run(["bash", "-c", command], env=environment, cwd=cli.ROOT,
                                            capture_output=True, text=True)
                    self.assertEqual(result.returncode, 0, f"{page.name}: {line}\n{result.stderr}")
                    self.assertTrue(result.stdout, f"{page.name}: {line}")
                    count += 1
        self.assertGreaterEqual(count, 10)


if __name__ == "__main__":
    unittest.main()
