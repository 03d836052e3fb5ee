#!/usr/bin/env python3
"""Every C++ file is as clang-format 14 and the repository's .clang-format lay it out.

usage: check_format.py [ROOT] [--fix]
"""
import pathlib
import shutil
import subprocess
import sys

ROOTS = ("src", "tests", "fuzz", "bindings", "bench", "examples")


def main():
    arguments = [a for a in sys.argv[1:] if a != "--fix"]
    root = pathlib.Path(arguments[0] if arguments else ".").resolve()
    tool = shutil.which("clang-format-14")
    if tool is None:
        print("clang-format-14: not found (scripts/setup installs it)")
        return 1
    files = sorted(str(p) for top in ROOTS for p in (root / top).rglob("*") if p.suffix in (".h", ".cc", ".cu"))
    mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
    result = subprocess.run([tool, *mode, *files], cwd=root)
    print(f"{len(files)} files")
    return 0 if files and result.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
