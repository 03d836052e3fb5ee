"""The texts on which tokenizers are compared: {"text": ...}, or {"base64": ...} where they are not UTF-8."""

import base64

TEXTS = [
    "", " ", "  ", "\n", "\t", "a", "Hello, world!", " Hello world", "Hello  world   again    and     again",
    "The quick brown fox jumps over the lazy dog.", "I'm you're he's we've they'll I'd don't IT'S WE'LL 'tis o'clock",
    "can't 'S 'T 'RE x'ſ K'Ll don’t", "unreachable xyzzy 1234 ''' unreachables", "def f(x):\n    return x + 1\n",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];\r\n\t}\r\n}\n", "\n\n\n\n  \n \n\t\n", "a\n\n\nb\r\n\r\nc\rd",
    "   leading", "trailing   ", "  both  ", "tab\tseparated\tvalues\t\t\tend", "0 1 12 123 1234 12345 123456 1234567",
    "3.14159, 2,718.28 and 1e-9; 0xDEADBEEF 1_000_000", "٣٤٥ ৪৫৬ ४५६ 一二三 ½ ² ⅷ ⑳ 𝟘𝟙𝟚 🄀", "x² + y³ = z⁴",
    "Ünïcödé àéîõü ÀÉÎÕÜ ßẞ ŒœÆæ ǅǈǋ", "e\u0301 = é; cafe\u0301 café; A\u030a Å Å", "q\u0323\u0307 q\u0307\u0323 a\u0315\u0300\u05ae\u0062",
    "ﬁ ﬂ ﬀ ﬃ ﬄ", "Ω Ω K K Å", "\u0344 \u0958 \u2126 \uf900 \U0002f800 \u0f73", "각 각 가 각 ᄀ",
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку.", "Η γρήγορη καφέ αλεπού πηδά πάνω από τον σκύλο.",
    "השועל החום המהיר קופץ מעל הכלב העצלן. שָׁלוֹם", "الثعلب البني السريع يقفز فوق الكلب الكسول. مُحَمَّد",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। क्षत्रिय", "দ্রুত বাদামী শিয়াল অলস কুকুরের উপর লাফ দেয়।",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ", "སྐད་ཡིག མྱན်မာဘာသာ ភាសាខ្មែរ", "敏捷的棕色狐狸跳过了懒狗。你好，世界！",
    "素早い茶色の狐がのろまな犬を飛び越える。カタカナ ひらがな ワード", "빠른 갈색 여우가 게으른 개를 뛰어넘는다.",
    "Tiếng Việt: Con cáo nâu nhanh nhẹn nhảy qua con chó lười", "Zażółć gęślą jaźń. Příliš žluťoučký kůň. İstanbul ığdır",
    "😀 😃😄 😁", "👍🏽 👩🏿‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇩🇪🇫🇷🇯🇵🇺🇸 🇩", "❤️ ❤ ☕️ ©️ 1️⃣ *️⃣", "a😀b 😀c😀 d😀 ",
    "→ ⇒ ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ≤ ∞ ∑∏∫", "“quotes” ‘single’ «guillemets» — en–dash … ‰ §", "$100 €50 £20 ¥1000 ₹500 ₿1",
    "user@example.com https://example.org/path?query=1&x=%20#frag", "C:\\Windows\\System32 /usr/local/bin ~/.bashrc",
    "SELECT * FROM t WHERE a='x' AND b<>\"y\";", "<html><body class=\"x\">&nbsp;</body></html>", "{\"a\": [1, 2, {\"b\": null}]}",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case x1y2z3", "!!!???...---___***###@@@", "a.b,c;d:e!f?g",
    "((()))[[[]]]{{{}}}<<<>>>", "\\n \\t \\u0041 \\x41", "' '' ''' \" \"\" \"\"\"", "-1 +1 ~1 !1 *1 &1",
    "no\u00a0break thin\u2009space ideographic\u3000space zero\u200bwidth nel\u0085sep\u2028par\u2029end \u180e \u202f",
    "\u00a0\u00a0 \u2003\u2003 x", " \u3000 \u3000y", "a\u200db \ufeffbom \u00adsoft", "\x00\x01\x02\x1b[0m\x7f \x1c\x1d\x1e\x1f",
    "▁ ▁▁ a▁b ▁a a▁ ▁", " ▁ ▁ x", "<0x41> <0x0A> <0xFF> <unk> <s> </s>", "<s>Hello</s>", "<s> Hello </s> world",
    "<|endoftext|>", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "a<|endoftext|>b", "<|im_start|>user\nHi<|im_end|>\n",
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\n", "<|im_start|> system <|im_start|>systemd <|im_start",
    "a  <|left|>  b", "a  <|right|>  b", "a \n <|both|> \t b", "<|left|><|right|> <|left|> <|right|>    <|both|>    <|left|>",
    "<|word|>", "a<|word|>", "<|word|>b", "a <|word|> b", "é<|word|>é", "_<|word|>-<|word|>1", ".<|word|>, 🙂<|word|>ⓐ",
    "Plumb line Plumbline Plumb. aPlumb Plumb1 Plumb-Plumb Plumb", "x\t\ty\t\t\tz", "a    b        c     d", "\t\t    \t",
    "cafe\u0301s cafe\u0301 café", "naïve na\u00efvely nai\u0308ve", "<|norm|> a<|norm|>b <|norm|><|norm|>", "ワードワード ワ",
    "[INST] hi [/INST] [INST]", "a b a  b aa b a bb", " a b", "a b", "Hello<s> Hello<s>Hello", "<s>", "</s> x", "<s> x",
    " the of and to in is that for it", "theoftheand.theof", "internationalization antidisestablishmentarianism",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 60, "=" * 80,
    " " * 70 + "x", "\n" * 40, "- " * 40, "abc def ghi " * 12, "的" * 50, "😀" * 20, "e" + "\u0301" * 40, "\u0301\u0301a",
    "\U00010d4a\U00011f02 \U0001e6c0 \u1c89\u1c8a \ua7cb", "\U00011de0\U00011de5 \U00016ff4 \U0001ccf0", "㏀㈠㋿ ꧰ 𐒠 𖩠",
    "\ufffd \ufffe \uffff \U0010ffff", "Ⓐⓐ 🄰 🅐 🅰 ª º ʰ", "ABCDEF abcDEFghi XMLHttpRequest iPhone McDonald's",
    "一二三abc一二三123あいうアイウ。、", "print('hello')\n# comment\n\nif x:\n        pass\n", "a\u0301\u0323 \u1ea1\u0301 \u1ea5",
    "The statement ends here. the next.\n\n The next paragraph.  the end. ", "x. t. the .the . the", "\n\n a\n\n  b\n \n c",
]
BYTES = [
    b"\xff", b"abc\xffdef", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82(\xac", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0\x9f",
    b"\x80\x80\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
    b"\xe2\x96 \xe2\x96\x81\xe2", b"ok \xf0\x9f\x98\x80 \xf0\x28\x8c\xbc end", b"\xef\xbf\xbd\xef\xbf", b"<|im_\xffstart|>",
    b"<|im_start|>\xc3<|im_end|>\xa9", b"\xe4\xbd\xa0\xe5\xa5", b" \xff  \xfe the",
]

CORPUS = [{"text": t} for t in TEXTS] + [{"base64": base64.b64encode(b).decode()} for b in BYTES]


def corpus_texts():
    """Each ill-formed stretch is read as U+FFFD, one for each maximal subpart."""
    return TEXTS + [b.decode("utf-8", "replace") for b in BYTES]
