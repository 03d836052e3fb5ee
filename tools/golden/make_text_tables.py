"""Writes src/plumbline/text/unicode_*.cc: the Unicode data in which Hugging Face `tokenizers` and the
libraries this runtime uses differ, and the data of NFC. Every value is probed from `tokenizers` itself, because its
parts follow different Unicode versions (regular expressions 16, NFC 9, digits 17).

    python tools/golden/make_text_tables.py
"""

import pathlib
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHARS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp").split()


def matched(pattern):
    """The characters a pattern of one character matches."""
    pieces = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str("".join(CHARS))
    left = set()
    for piece, _ in pieces:
        left.update(piece)
    return [c for c in CHARS if c not in left]


def category_delta():
    """Ranges (first, last, category) that the regular expressions of `tokenizers` know and Unicode 14 does not."""
    known = {}
    for category in CATEGORIES:
        for c in matched(r"\p{%s}" % category):
            if unicodedata.category(c) == "Cn":
                known[ord(c)] = category
    ranges = []
    for code in sorted(known):
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == known[code]:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, known[code]])
    return ranges


def nfc_data():
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    pairs, singles, uncomposed = [], [], []
    for c in CHARS:
        parts = unicodedata.decomposition(c).split()
        if not parts or parts[0].startswith("<") or nfd(c) == c:
            continue
        codes = [int(p, 16) for p in parts]
        if len(codes) == 1:
            singles.append((ord(c), codes[0]))
        else:
            pairs.append((ord(c), *codes))
            if nfc(nfd(c)) != c:
                uncomposed.append(ord(c))
    classes = []
    for c in CHARS:
        value = unicodedata.combining(c)
        # A mark that NFC of `tokenizers` does not know is never reordered before or after one that it knows.
        if value and all(nfd("q" + s) == "q" + s for s in (c + "\u0334", c + "\u0345", "\u0334" + c, "\u0345" + c)):
            value = 0
        if not value:
            continue
        if classes and classes[-1][1] == ord(c) - 1 and classes[-1][2] == value:
            classes[-1][1] = ord(c)
        else:
            classes.append([ord(c), ord(c), value])
    return pairs, singles, uncomposed, classes


def array(declaration, items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 110:
            lines.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join([declaration + " = {", *lines, line, "};"]) + "\n"


def source(tables, functions):
    return "\n".join([
        "// Written by tools/golden/make_text_tables.py; do not edit.",
        '#include "plumbline/text/unicode_tables.h"\n',
        "// clang-format off",
        "namespace plumbline::unicode {",
        "namespace {\n",
        *tables,
        "}  // namespace\n",
        *functions,
        "\n}  // namespace plumbline::unicode",
    ]) + "\n"


def main():
    pairs, singles, uncomposed, classes = nfc_data()
    flat = lambda rows: [str(v) for row in rows for v in row]
    folder = ROOT / "src/plumbline/text"
    (folder / "unicode_later.cc").write_text(source(
        [array("constexpr CategoryRange kLater[]", ['{%d, %d, "%s"}' % tuple(r) for r in category_delta()])],
        ["std::span<const CategoryRange> LaterCategories() { return kLater; }"]))
    (folder / "unicode_decompositions.cc").write_text(source(
        [array("constexpr char32_t kPairs[]", flat(pairs)), array("constexpr char32_t kSingles[]", flat(singles))],
        ["std::span<const char32_t> DecompositionPairs() { return kPairs; }",
         "std::span<const char32_t> DecompositionSingles() { return kSingles; }"]))
    (folder / "unicode_composition.cc").write_text(source(
        [array("constexpr char32_t kUncomposed[]", [str(c) for c in uncomposed]),
         array("constexpr char32_t kClasses[]", flat(classes))],
        ["std::span<const char32_t> NeverComposed() { return kUncomposed; }",
         "std::span<const char32_t> CombiningClasses() { return kClasses; }"]))


if __name__ == "__main__":
    main()
