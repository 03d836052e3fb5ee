"""Writes tests/corpus/tokenizer/: small tokenizers in the configurations of real models, and what Hugging Face
`tokenizers` makes of a corpus with each; and tests/golden/default_model/tokenizer_ids.json, the same for the tokenizer
of the default model.

    python tools/golden/make_tokenizers.py [default model's .gguf]

The tokenizers are trained here on pydoc_data.topics and the corpus; their files are the reference, not the training.
"""

import hashlib
import json
import pathlib
import random
import struct
import sys

from pydoc_data import topics
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from tokenizer_corpus import CORPUS, corpus_texts
from tokenizer_strings import generated_strings

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/corpus/tokenizer"
DEFAULT_MODEL = ROOT / "tests/golden/default_model/tokenizer_ids.json"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+"]


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **options}


def steps(*members):
    return {"type": "Sequence", "pretokenizers": list(members)}


def template(prefix, suffix=()):
    special = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    single = [*map(special, prefix), {"Sequence": {"id": "A", "type_id": 0}}, *map(special, suffix)]
    return {"type": "TemplateProcessing", "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [None], "tokens": [t]} for t in [*prefix, *suffix]}}


PREPEND = {"type": "Prepend", "prepend": "▁"}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
SPM_DECODER = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
               {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def sequence(kind, members):
    return {"type": "Sequence", kind: members}


NORMALIZED = {"normalized": True, "special": False}
BYTE_ADDED = [
    ("<|endoftext|>", {}), ("<|im_start|>", {}), ("<|im_start|>system", {}), ("<|im_end|>", {}),
    ("<|left|>", {"lstrip": True}), ("<|right|>", {"rstrip": True}), ("<|both|>", {"lstrip": True, "rstrip": True}),
    ("<|word|>", {"single_word": True}), ("Plumb", {"single_word": True, **NORMALIZED}), ("\t\t", NORMALIZED),
    ("    ", {"special": False}), ("caf\u0065\u0301", NORMALIZED), ("naïve", {"special": False}),
    ("<|norm|>", {"normalized": True}), ("ワード", NORMALIZED),
]
SPM_ADDED = [(t, f) for t, f in BYTE_ADDED if t != "<|endoftext|>"] + [("[INST]", {}), ("a b", NORMALIZED)]

# name: (the model's options, the rest of tokenizer.json, prefix tokens, suffix tokens)
BYTE_LEVEL = {
    "gpt2": dict(pre_tokenizer=byte_level(), post_processor=byte_level(trim_offsets=False)),
    "gpt2_prefix": dict(pre_tokenizer=byte_level(add_prefix_space=True), normalizer={"type": "NFC"}, missing_bytes=True,
                        unk_token="<|endoftext|>"),
    "llama3": dict(pre_tokenizer=steps(split(LLAMA3), byte_level(use_regex=False)), ignore_merges=True,
                   prefix=["<|endoftext|>"]),
    "qwen2": dict(pre_tokenizer=steps(split(QWEN2), byte_level(use_regex=False, trim_offsets=False)),
                  normalizer={"type": "NFC"}, post_processor=byte_level(trim_offsets=False)),
    "smollm": dict(pre_tokenizer=steps({"type": "Digits", "individual_digits": True}, byte_level())),
    "starcoder": dict(pre_tokenizer=steps({"type": "Digits", "individual_digits": False}, byte_level()),
                      missing_bytes=True),
    "o200k": dict(pre_tokenizer=steps(split(O200K), byte_level(use_regex=False)), ignore_merges=True, missing_bytes=True,
                  unk_token="<|endoftext|>", fuse_unk=True,
                  prefix=["<|im_start|>"], suffix=["<|endoftext|>", "<|im_end|>"]),
    "deepseek": dict(pre_tokenizer=steps(*map(split, DEEPSEEK), byte_level(use_regex=False)),
                     prefix=["<|endoftext|>"]),
}
SPM = {
    "llama2": dict(normalizer=sequence("normalizers", [PREPEND, REPLACE]), strip=True, prefix=["<s>"]),
    "llama2_unknown": dict(normalizer=sequence("normalizers", [PREPEND, REPLACE]), strip=True, byte_fallback=False,
                           fuse_unk=True, prefix=["<s>"], suffix=["</s>"]),
    "mistral": dict(pre_tokenizer=metaspace("first", False), strip=True, prefix=["<s>"]),
    "metaspace": dict(pre_tokenizer=metaspace("always", True), strip=True, byte_fallback=False, fuse_unk=False),
    "gemma": dict(normalizer=REPLACE, strip=False, prefix=["<s>"],
                  pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                 "invert": False}),
}


def training_text():
    lines = [line for topic in sorted(topics.topics) for line in topics.topics[topic].splitlines(keepends=True)]
    return lines[:2500] + [t for t in corpus_texts() for _ in range(8)]


def added_tokens(vocab, added):
    tokens = []
    next_id = len(vocab)
    for content, flags in added:
        token_id = vocab.get(content)
        if token_id is None:
            token_id, next_id = next_id, next_id + 1
        tokens.append({"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                       "normalized": False, "special": True, **flags})
    return tokens


def tokenizer_json(model, vocab, merges, added, config):
    ids = {**vocab, **{t["content"]: t["id"] for t in added}}
    post = config.get("post_processor")
    if "prefix" in config or "suffix" in config:
        post = template(config.get("prefix", []), config.get("suffix", []))
        for token, entry in post["special_tokens"].items():
            entry["ids"] = [ids[token]]
        if config.get("byte_level"):
            post = {"type": "Sequence", "processors": [byte_level(), post]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": config.get("normalizer"), "pre_tokenizer": config.get("pre_tokenizer"),
            "post_processor": post, "decoder": config["decoder"],
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      **model, "vocab": vocab, "merges": merges}}


def train(tokenizer, specials, alphabet, size, limit):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=alphabet,
                                  limit_alphabet=limit, show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def make_byte_level(name, config):
    plain = Tokenizer(models.BPE())
    untrained = {k: v for k, v in config.items() if k not in ("prefix", "suffix")}
    plain.pre_tokenizer = Tokenizer.from_str(json.dumps(
        tokenizer_json({}, {}, [], [], {**untrained, "decoder": None}))).pre_tokenizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab, merges = train(plain, ["<|endoftext|>"], alphabet, 700, 256)
    if config.get("missing_bytes"):
        # Some models lack the bytes that UTF-8 never has, and more.
        lost = set("ÀÁä½õö÷øùúûüýþÿ")
        kept = [t for t in sorted(vocab, key=vocab.get) if not any(c in lost for c in t)]
        vocab = {t: i for i, t in enumerate(kept)}
        merges = [m for m in merges if all(p in vocab for p in m) and "".join(m) in vocab]
    if config.get("ignore_merges"):
        # Tokens that no merge makes.
        for extra in ["Ġunreachable", "xyzzy", "Ġ1234", "'''"]:
            vocab.setdefault(extra, len(vocab))
    model = {k: config[k] for k in ("ignore_merges", "unk_token", "fuse_unk") if k in config}
    return tokenizer_json(model, vocab, merges, added_tokens(vocab, BYTE_ADDED),
                          {**config, "decoder": byte_level(add_prefix_space=True), "byte_level": True})


def make_spm(name, config):
    fallback = config.get("byte_fallback", True)
    plain = Tokenizer(models.BPE())
    if config.get("pre_tokenizer", {}).get("split"):
        plain.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    else:
        plain.normalizer = normalizers.Replace(" ", "▁")
        plain.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    specials = ["<unk>", "<s>", "</s>"] + (["<0x%02X>" % b for b in range(256)] if fallback else [])
    vocab, merges = train(plain, specials, ["▁"], 900, 180)
    if name == "gemma":
        # Runs of spaces and newlines, and a token that goes on over a space.
        for left, right in [("▁", "▁"), ("▁▁", "▁▁"), ("\n", "\n"), ("\n\n", "▁"), (".", "▁"), (".▁", "t")]:
            for token in (left, right, left + right):
                vocab.setdefault(token, len(vocab))
            merges.append([left, right])
    model = {"unk_token": "<unk>", "byte_fallback": fallback, "fuse_unk": config.get("fuse_unk", True)}
    added = [("<unk>", {}), ("<s>", {}), ("</s>", {}), *SPM_ADDED]
    decoder = sequence("decoders", SPM_DECODER + ([STRIP] if config["strip"] else []))
    return tokenizer_json(model, vocab, merges, added_tokens(vocab, added), {**config, "decoder": decoder})


def random_id_lists(name, vocab_size, seeds):
    rng = random.Random(name)
    lists = [[rng.randrange(vocab_size + 3) for _ in range(rng.randrange(1, 30))] for _ in range(30)]
    lists += [[rng.randrange(min(vocab_size, 300)) for _ in range(rng.randrange(1, 30))] for _ in range(30)]
    for ids in seeds:  # real ids, damaged
        ids = list(ids)
        for _ in range(2):
            if ids:
                ids.pop(rng.randrange(len(ids)))
        lists.append(ids)
    return lists


def chunk_digests(tokenizer):
    """SHA-256 of the ids (int32, -1 after each string) and of the decoded texts (0 after each), 500 strings a chunk."""
    digests = []
    for first in range(0, 12000, 500):
        ids_hash, text_hash = hashlib.sha256(), hashlib.sha256()
        for data in generated_strings(first, 500):
            ids = tokenizer.encode(data.decode("utf-8", "replace"), add_special_tokens=False).ids
            ids_hash.update(struct.pack("<%di" % (len(ids) + 1), *ids, -1))
            text_hash.update(tokenizer.decode(ids, skip_special_tokens=False).encode() + b"\0")
        digests.append([ids_hash.hexdigest(), text_hash.hexdigest()])
    return digests


def expectations(name, tokenizer):
    texts = corpus_texts()
    plain = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
    special = [tokenizer.encode(t, add_special_tokens=True).ids for t in texts]
    decode = lambda ids, skip: tokenizer.decode(ids, skip_special_tokens=skip)
    lists = random_id_lists(name, tokenizer.get_vocab_size(), plain[:40])
    return {
        "ids": plain,
        "ids_special": special[:12],
        "texts": [decode(ids, False) for ids in special],
        "texts_skip": [decode(ids, True) for ids in special],
        "random": [{"ids": ids, "text": decode(ids, False), "text_skip": decode(ids, True)} for ids in lists],
        "generated": chunk_digests(tokenizer),
    }


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def make_default_model(path):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [m.split(" ") for m in fields["tokenizer.ggml.merges"].contents()]
    types = fields["tokenizer.ggml.token_type"].contents()
    vocab = {t: i for i, t in enumerate(tokens)}
    added = added_tokens(vocab, [(tokens[i], {}) for i, kind in enumerate(types) if kind == 3])
    config = {**BYTE_LEVEL["smollm"], "decoder": byte_level()}
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json({}, vocab, merges, added, config)))
    cases = []
    for case, text in zip(CORPUS, corpus_texts()):
        cases.append({**case, "ids": tokenizer.encode(text, add_special_tokens=False).ids})
    write(DEFAULT_MODEL, cases)
    return tokenizer


def main():
    write(OUT / "corpus.json", CORPUS)
    for configs, make in ((BYTE_LEVEL, make_byte_level), (SPM, make_spm)):
        for name, config in configs.items():
            data = make(name, config)
            write(OUT / name / "tokenizer.json", data)
            write(OUT / name / "expected.json", expectations(name, Tokenizer.from_str(json.dumps(data))))
            print(name, len(data["model"]["vocab"]), len(data["model"]["merges"]))
    if len(sys.argv) > 1:
        make_default_model(sys.argv[1])


if __name__ == "__main__":
    main()
