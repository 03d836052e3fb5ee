#!/usr/bin/env python3
"""Includes go down the list of levels only (HOUSE.md).

Every file of src/plumbline/<level> and bindings/<name> may include its own level, the levels named for it in
DIRECT, and what those may include. `testing` is for *_test.cc and *_bench.cc files alone. A *_isa.cc file is
compiled once per instruction set, so it may include only plain C headers and headers that hold no ordinary
inline function.
"""
import pathlib
import re
import sys

DIRECT = {
    "base": [],
    "tensor": ["base"],
    "comm": ["base"],
    "text": ["base"],
    "kernels": ["tensor"],
    "io": ["tensor"],
    "nn": ["kernels", "comm"],
    "models": ["nn", "io"],
    "pipelines": ["models", "text"],
    "serve": ["pipelines"],
    "cli": ["serve"],
    "testing": ["tensor", "io"],
    "bindings/python": ["pipelines"],
    "bindings/jax": ["kernels"],
}
ISA_SAFE_SYSTEM = {"immintrin.h", "cstdint", "cstddef", "cstring", "stdint.h", "stddef.h", "string.h", "cfloat",
                   "climits", "math.h", "cmath"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def allowed_levels(level):
    seen, pending = set(), [level]
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += DIRECT[name]
    return seen


def level_of(root, path):
    parts = path.relative_to(root).parts
    return "/".join(parts[:2]) if parts[0] == "bindings" else parts[2]


def check_include(root, path, level, kind, name):
    """A sentence saying what is wrong, or None."""
    if kind == "<":
        if path.name.endswith("_isa.cc") and name not in ISA_SAFE_SYSTEM:
            return f"<{name}> in a file that is compiled once per instruction set"
        return None
    if name.startswith(f"bindings/{path.parent.name}/") and (root / name).exists():
        return None
    if not name.startswith("plumbline/"):
        return f'"{name}": want a path that begins with plumbline/, or one of the same binding'
    if not (root / "src" / name).exists() and not (root / "bindings" / name).exists():
        return f'"{name}": no such file under src/'
    target = name.split("/")[1]
    if target not in DIRECT:
        return f'"{name}": unknown level {target} (add it to HOUSE.md and to the table of this check)'
    if target == "testing" and re.search(r"_(test|bench)\.cc$", path.name):
        return None
    if target not in allowed_levels(level):
        return f'"{name}": {level} may include {", ".join(sorted(allowed_levels(level)))} only'
    return None


def check(root):
    faults = []
    files = [p for top in ("src/plumbline", "bindings") for p in (root / top).rglob("*") if p.suffix in (".h", ".cc")]
    for path in sorted(files):
        relative = path.relative_to(root)
        level = level_of(root, path)
        if level not in DIRECT:
            faults.append(f"{relative}: unknown level {level}")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            fault = match and check_include(root, path, level, *match.groups())
            if fault:
                faults.append(f"{relative}:{number}: {fault}")
    return len(files), faults


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    count, faults = check(root)
    print("\n".join(faults + [f"{count} files, {len(faults)} faults"]))
    return 1 if faults or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
