"""Strings made from integers alone, the same here and in src/plumbline/text/generated_strings.h: string i of
`generated_strings` depends on i only. Some are well-formed UTF-8, some are not."""

MASK = (1 << 64) - 1

# (first, last) code points; a string draws a range, then a character of it.
RANGES = [
    (0x20, 0x7E), (0x61, 0x7A), (0x61, 0x7A), (0x20, 0x20), (0x09, 0x0D), (0x30, 0x39), (0x41, 0x5A), (0x21, 0x2F),
    (0x80, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2150, 0x218F),
    (0x2190, 0x2BFF), (0x2581, 0x2581), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF),
    (0xFE00, 0xFEFF), (0x1D165, 0x1D1BB), (0x1F1E6, 0x1F1FF), (0x1F300, 0x1FAFF), (0x20000, 0x323AF), (0, 0x10FFFF),
]
FRAGMENTS = [
    "the", " the", "ing", " return", "'s", "'LL", "'\u017f", " statement", "\r\n", "\n\n", "    ", "<|im_start|>",
    "<|im_end|> ", " <|left|>", "<|right|>  ", "  <|both|>\t", "<|word|>", " Plumb ", "\t\t", "cafe\u0301",
    "caf\u00e9", "na\u00efve", "<s>", "</s>", "<0x41>", "\u200d", "\ufe0f", "12345", "\u30ef\u30fc\u30c9", "<|norm|>",
    "a b", "[INST]",
]


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return z ^ z >> 31

    def below(self, n):
        return self.next() % n


def generated_string(index):
    rng = SplitMix(index)
    kind = rng.below(16)
    out = bytearray()
    if kind == 0:  # bytes: mostly broken UTF-8
        for _ in range(1 + rng.below(40)):
            out.append(rng.below(256))
        return bytes(out)
    length = 1 + rng.below(400 if kind == 1 else 40)
    ranges = 1 + rng.below(6)
    chosen = [rng.below(len(RANGES)) for _ in range(ranges)]
    while length > 0:
        length -= 1
        if rng.below(10) == 0:
            out += FRAGMENTS[rng.below(len(FRAGMENTS))].encode()
            continue
        first, last = RANGES[chosen[rng.below(ranges)]]
        code = first + rng.below(last - first + 1)
        if 0xD800 <= code < 0xE000:
            code = 0xFFFD
        repeat = 1 + (rng.below(30) if rng.below(20) == 0 else 0)
        out += chr(code).encode() * repeat
    if kind == 2:  # cut somewhere, perhaps in a character
        del out[rng.below(len(out)):]
    return bytes(out)


def generated_strings(first, count):
    return [generated_string(i) for i in range(first, first + count)]
