#!/usr/bin/env python3
"""Objects compiled for one instruction set share no code with the rest of the program.

A *_isa.cc file is compiled three times with different -march flags. An ordinary inline function in it would be
emitted as a weak symbol of which the linker keeps any one copy, so the baseline could end up running AVX-512
code. So every weak or global function such an object defines must lie in a namespace of its instruction set.

usage: check_isa_symbols.py BUILD_DIR
"""
import pathlib
import re
import subprocess
import sys

OWN = re.compile(r"plumbline::isa_(avx2|avx512|avx512_bf16)::")


def main():
    objects = sorted(p for p in pathlib.Path(sys.argv[1]).rglob("*_isa.cc.o"))
    faults = []
    for path in objects:
        listing = subprocess.run(["nm", "-C", "--defined-only", "--extern-only", str(path)], check=True,
                                 capture_output=True, text=True).stdout
        for line in listing.splitlines():
            kind, name = line.split(maxsplit=2)[1:]
            if kind in "TWVu" and not OWN.search(name):
                faults.append(f"{path.name} ({path.parents[0].name}): {kind} {name}")
    print("\n".join(faults + [f"{len(objects)} objects, {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
