"""One byte-level BPE tokenizer of 333 tokens for all tiny models: <s>, </s>, the 256 bytes and 75 merges."""
import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. A model reads a token and returns the log-probability of it.",
    "One row, one answer: the same request gives the same bits however it is run, alone or in any batch.",
    "It was the best of times, it was the worst of times, and the reason was that there were many of them.",
]


def make(vocab_size, add_bos):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS * 4, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    assert tokenizer.get_vocab_size() == vocab_size, tokenizer.get_vocab_size()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False) if not add_bos else (
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]))
    return tokenizer


def save_json(tokenizer, path):
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")


def gguf_lists(tokenizer):
    """tokens by id, token types (1 normal, 3 control), merges as "left right"."""
    spec = json.loads(tokenizer.to_str())
    tokens = [piece for piece, _ in sorted(spec["model"]["vocab"].items(), key=lambda item: item[1])]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in spec["model"]["merges"]]
    return tokens, [3, 3] + [1] * (len(tokens) - 2), merges
