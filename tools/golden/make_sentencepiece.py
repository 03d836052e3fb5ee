"""Writes tests/corpus/tokenizer/sentencepiece.json: the pieces and scores of a small SentencePiece BPE model, as a GGUF
file holds them, and the ids SentencePiece gives for the corpus.

    python tools/golden/make_sentencepiece.py
"""

import io
import json

import sentencepiece

from make_tokenizers import OUT, training_text, write
from tokenizer_corpus import corpus_texts


def main():
    model = io.BytesIO()
    sentences = (line.replace("\n", " ") for line in training_text())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences, model_writer=model, model_type="bpe", vocab_size=900, byte_fallback=True,
        character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=True, split_digits=True, allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(processor.vocab_size())
    write(OUT / "sentencepiece.json", {
        "tokens": [processor.id_to_piece(i) for i in ids],
        "scores": [processor.get_score(i) for i in ids],
        "unk_id": processor.unk_id(),
        "ids": [processor.encode(t) for t in corpus_texts()],
    })


if __name__ == "__main__":
    main()
