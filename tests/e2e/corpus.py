#!/usr/bin/env python3
"""Writes a JSONL of ragged documents, many of which begin alike, for `score -f`.

usage: corpus.py FILE [--count 5000] [--vocab 333] [--shortest 5] [--longest 400] [--mean 50] [--seed 1]
"""
import argparse
import json
import random

PREFIXES = 20


def documents(count, vocab, shortest=5, longest=400, mean=50, seed=1):
    """Requests of token ids; two of three begin with one of a few prefixes."""
    rng = random.Random(seed)
    draw = lambda n: [rng.randrange(vocab) for _ in range(n)]
    prefixes = [draw(rng.randint(shortest, longest)) for _ in range(PREFIXES)]
    for number in range(count):
        length = min(longest, shortest + int(rng.expovariate(1 / max(1, mean - shortest))))
        head = rng.choice(prefixes)[:length] if rng.random() < 2 / 3 else []
        yield {"id": f"doc-{number}", "tokens": head + draw(length - len(head) if len(head) < length else 1)}


def write(path, requests):
    with open(path, "w") as file:
        file.writelines(json.dumps(request) + "\n" for request in requests)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    for name, default in (("count", 5000), ("vocab", 333), ("shortest", 5), ("longest", 400), ("mean", 50), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args())
    write(options.pop("file"), documents(**options))


if __name__ == "__main__":
    main()
