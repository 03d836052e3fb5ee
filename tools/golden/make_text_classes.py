"""Writes tests/corpus/tokenizer/unicode.json: for every code point, what the classes of regular expressions, the
digits, the word characters and NFC of `tokenizers` make of it, as digests.

    python tools/golden/make_text_classes.py
"""

import hashlib

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from make_text_tables import CHARS, matched
from make_tokenizers import OUT, write

PATTERNS = [r"\p{%s}" % name for name in (
    "L M N P S Z Lu Ll Lt Lm Lo Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Cc Han").split()]
PATTERNS += [r"\s", r"\S", r"\d", r"\P{L}", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", "(?i:s)", "(?i:'ll)"]
# What each character is put between, for NFC.
NFC_CONTEXTS = [("", ""), ("q\u0334", "\u0301"), ("a", "\u0323\u0345"), ("\u1100", "\u11a8")]


def digest(chars):
    return hashlib.sha256("".join(chars).encode()).hexdigest()


def digits():
    splitter = pre_tokenizers.Digits(individual_digits=True)
    return [c for c in CHARS if len(splitter.pre_tokenize_str("a" + c)) == 2]


def word_characters():
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.add_tokens([AddedToken("\ue000", normalized=False, single_word=True)])
    return [c for c in CHARS if 1 not in tokenizer.encode("\ue000" + c).ids]


def main():
    nfc = normalizers.NFC().normalize_str
    write(OUT / "unicode.json", {
        "patterns": [{"pattern": p, "digest": digest(matched(p))} for p in PATTERNS],
        "digits": digest(digits()),
        "word_characters": digest(word_characters()),
        "nfc": [{"before": b, "after": a, "digest": digest(nfc(b + c + a) for c in CHARS)} for b, a in NFC_CONTEXTS],
    })


if __name__ == "__main__":
    main()
