"""One request, one digest: threads, chunk sizes, batches and instruction sets change no bit."""
import itertools
import json
import tempfile
import unittest

import cli

THREADS = (1, 2, 3, 5)
CHUNKS = (1, 7, 64, "all")


class Digests(unittest.TestCase):
    def check(self, model, requests, threads, chunks, isas, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(request) + "\n" for request in requests)
            file.flush()
            seen = {}
            for thread, chunk, isa in itertools.product(threads, chunks, isas):
                results = cli.score("-m", model, "-f", file.name, "--threads", thread, "--chunk-size", chunk,
                                    "--isa", isa, "--top-logprobs", 3, "--max-logit", *options)
                for result in results:
                    receipt = result["receipt"]
                    self.assertEqual(receipt["digest"], cli.digest(result))
                    self.assertEqual((receipt["threads"], receipt["chunk_size"], receipt["isa"]), (thread, chunk, isa))
                    first = seen.setdefault(result["id"], (receipt["digest"], thread, chunk, isa))
                    self.assertEqual(receipt["digest"], first[0],
                                     f'request {result["id"]}: threads {thread}, chunk {chunk}, {isa} against {first}')
            self.assertEqual(len(seen), len(requests))
            self.assertEqual(len({entry[0] for entry in seen.values()}), len(requests), "digests that say nothing")

    def requests(self, lengths, vocab):
        return [{"id": str(n), "tokens": [(7 * i * i + 13 * n + 5 * i) % vocab for i in range(n)]} for n in lengths]

    def test_tiny_models(self):
        isas = cli.supported_isas()
        self.assertIn("avx2", isas)
        # Token by token with more threads than processors is slow, so the full product gets short requests.
        self.check(cli.model_path("llama3"), self.requests((2, 17, 66), 333), THREADS, CHUNKS, isas)
        for name in ("gguf_llama", "mistral", "qwen2", "gguf_qwen3"):
            for compute in ("bf16", "f32"):
                with self.subTest(name, compute=compute):
                    self.check(cli.model_path(name), self.requests((17, 65, 130, 200), 333), (1, 3), (7, "all"), isas,
                               "--compute", compute)

    def test_default_model(self):
        isas = cli.supported_isas()
        model = cli.default_model()
        requests = self.requests((3, 70), 49152)
        self.check(model, requests, THREADS, (64,), isas)
        self.check(model, requests, (2,), CHUNKS, isas)

    def test_alone_or_in_a_batch(self):
        model = cli.model_path("smollm2")
        requests = self.requests((33, 2, 64, 100, 17, 90), 333)
        alone = {}
        for request in requests:
            result = cli.score("-m", model, "--tokens", cli.comma_list(request["tokens"]))[0]
            alone[request["id"]] = result["receipt"]["digest"]
        for size, order in itertools.product((1, 2, 6), (requests, requests[::-1])):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.writelines(json.dumps(request) + "\n" for request in order)
                file.flush()
                results = cli.score("-m", model, "-f", file.name, "--batch-size", size)
            self.assertEqual([r["id"] for r in results], [r["id"] for r in order])
            self.assertEqual({r["id"]: r["receipt"]["digest"] for r in results}, alone)

    def test_the_digest_sees_a_change(self):
        model = cli.model_path("smollm2")
        one, two = (cli.score("-m", model, "--tokens", ids)[0]["receipt"]["digest"] for ids in ("5,6,7", "5,6,8"))
        self.assertNotEqual(one, two)


if __name__ == "__main__":
    unittest.main()
