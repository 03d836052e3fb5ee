#!/usr/bin/env python3
"""No file over 400 lines, no function over 60 (HOUSE.md).

Functions of C++ are found by layout, which clang-format keeps: a body begins with a line that ends in `{` at
the indentation of a namespace (0) or of a class member (2) and ends with the first `}` at that same indentation.
"""
import ast
import pathlib
import re
import sys

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
ROOTS = ("src", "tests", "fuzz", "tools", "bindings", "bench", "examples")
CODE = {".h", ".cc", ".py", ".cu"}
NOT_A_FUNCTION = re.compile(
    r"^\s*(namespace|class|struct|union|enum|extern|template\s*<[^>]*>\s*(class|struct)|#|\}|public|private|else|do\b)")


def cpp_functions(lines):
    """(first line number, length, text) of each function body."""
    index = 0
    while index < len(lines):
        line = lines[index]
        indent = len(line) - len(line.lstrip())
        starts = line.rstrip().endswith("{") and indent in (0, 2, 4) and not NOT_A_FUNCTION.match(line)
        if not starts or "=" in line.split("(")[0] or "(" not in line + lines[max(0, index - 1)]:
            index += 1
            continue
        closing = " " * min(indent, indent // 4 * 4 + indent % 4) + "}"
        end = next((i for i in range(index + 1, len(lines))
                    if lines[i].startswith(closing) or (indent == 4 and lines[i].startswith("}"))), len(lines) - 1)
        yield index + 1, end - index + 1, line.strip()
        index = end + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, f"def {node.name}"


def check(root):
    faults, count = [], 0
    for path in sorted(p for top in ROOTS for p in (root / top).rglob("*") if p.suffix in CODE):
        count += 1
        name = path.relative_to(root)
        text = path.read_text()
        lines = text.splitlines()
        if len(lines) > MAX_FILE_LINES:
            faults.append(f"{name}: {len(lines)} lines, want at most {MAX_FILE_LINES}")
        functions = python_functions(text) if path.suffix == ".py" else cpp_functions(lines)
        faults += [f"{name}:{line}: {length} lines, want at most {MAX_FUNCTION_LINES}: {head}"
                   for line, length, head in functions if length > MAX_FUNCTION_LINES]
    return count, faults


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    count, faults = check(root)
    print("\n".join(faults + [f"{count} files, {len(faults)} faults"]))
    return 1 if faults or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
