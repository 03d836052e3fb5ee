#!/usr/bin/env python3
"""Measures plumbline and llama.cpp (PyPI's llama-cpp-python) in turn on one GGUF file and the same threads, and prints
ratios beside the limits of the machine. Needs llama-cpp-python, built for this machine:

    CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python

usage: compare_llama_cpp.py MODEL.gguf [--raw FILE.jsonl] [--rounds N] [--threads N] [--prompt 128,512]
                            [--streams 1,16,32,64] [--new-tokens N] [--plumbline PATH] [--compute bf16|f32|int8]
       compare_llama_cpp.py MODEL.gguf --raw FILE.jsonl --rounds 0

A round is one run of `plumbline bench`, of `plumbline generate`, and of llama.cpp with each of its settings (file mapped
or read, flash attention on or off), each in a process of its own. What was measured is appended to --raw; the report is
made of all that the file holds about the model and plumbline's compute type: of each line the best of all rounds, and of llama.cpp's settings the
best for each line. llama.cpp is not charged for sampling, nor for making log-probs of its logits, nor for starting
Python.
"""
import argparse
import ctypes
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETTINGS = [{"mmap": mmap, "flash": flash} for mmap in (False, True) for flash in (True, False)]
DECODE_PROMPT = 16
FIRST_PROMPT = 128


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--raw", type=pathlib.Path, default=pathlib.Path("compare.jsonl"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", default="128,512")
    parser.add_argument("--streams", default="1,16,32,64")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--plumbline", default=str(ROOT / "build/plumbline"))
    parser.add_argument("--compute", default="bf16", help="plumbline's; llama.cpp multiplies integers where it can")
    parser.add_argument("--settings", type=int, choices=range(len(SETTINGS)), help="of llama.cpp, only this one")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.prompts = [int(n) for n in options.prompt.split(",")]
    options.sequences = [int(n) for n in options.streams.split(",")]
    return options


def tokens(count, vocab):
    return [(7919 * i + 101) % vocab for i in range(count)]


class LlamaCpp:
    """llama.cpp's own C interface: one model, a context for each line."""

    def __init__(self, path, threads, mmap, flash):
        import llama_cpp
        self.api, self.threads, self.flash = llama_cpp, threads, flash
        quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        self.quiet = quiet
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.begin = time.perf_counter()
        params = llama_cpp.llama_model_default_params()
        params.use_mmap = mmap
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def context(self, length, sequences, batch):
        api = self.api
        params = api.llama_context_default_params()
        params.n_ctx, params.n_seq_max = length * sequences, sequences
        params.n_batch = params.n_ubatch = batch
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = 1 if self.flash else 0
        return api.llama_init_from_model(self.model, params)

    def batch(self, rows):
        """rows: (token, position, sequence, whether its logits are wanted)."""
        batch = self.api.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wanted
        return batch

    def decode(self, context, batch):
        if self.api.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        self.api.llama_synchronize(context)

    def seconds(self, context, batch):
        self.api.llama_memory_clear(self.api.llama_get_memory(context), True)
        begin = time.perf_counter()
        self.decode(context, batch)
        return time.perf_counter() - begin

    def prompt_seconds(self, length, all_logits, repetitions):
        context = self.context(max(256, length), 1, length)
        rows = [(t, i, 0, all_logits or i == length - 1) for i, t in enumerate(tokens(length, self.vocab))]
        batch = self.batch(rows)
        best = min(self.seconds(context, batch) for _ in range(repetitions))
        self.api.llama_batch_free(batch)
        self.api.llama_free(context)
        return best

    def decode_seconds(self, sequences, new_tokens, repetitions):
        context = self.context(256, sequences, max(512, sequences * DECODE_PROMPT))
        prompt = self.batch([(t, i, s, i == DECODE_PROMPT - 1) for s in range(sequences)
                             for i, t in enumerate(tokens(DECODE_PROMPT, self.vocab))])
        steps = [self.batch([(t, DECODE_PROMPT + step, s, True) for s, t in enumerate(tokens(sequences, self.vocab))])
                 for step in range(new_tokens)]
        best = 1e9
        for _ in range(repetitions):
            self.seconds(context, prompt)
            begin = time.perf_counter()
            for step in steps:
                self.decode(context, step)
            best = min(best, time.perf_counter() - begin)
        self.api.llama_free(context)
        return best


def resident(field):
    return int(re.search(rf"{field}:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) * 1024


def worker(options):
    """llama.cpp with one setting; prints JSON."""
    import llama_cpp  # noqa: F401, counted before the start
    setting, before = SETTINGS[options.settings], resident("VmRSS")
    llama = LlamaCpp(options.model, options.threads, **setting)
    llama.prompt_seconds(FIRST_PROMPT, False, 1)
    result = {"first_token": time.perf_counter() - llama.begin, "peak_bytes": resident("VmHWM") - before}
    lines = {f"prefill {n}": n / llama.prompt_seconds(n, False, 2) for n in options.prompts}
    for n in options.sequences:
        lines[f"decode {n}"] = n * options.new_tokens / llama.decode_seconds(n, options.new_tokens, 2)
    longest = max(options.prompts)
    lines[f"score {longest}"] = longest / llama.prompt_seconds(longest, True, 2)
    print(json.dumps({**result, "lines": lines}))


def run_llama(options, index):
    command = [sys.executable, __file__, options.model, "--worker", "--settings", str(index), "--threads",
               str(options.threads), "--prompt", options.prompt, "--streams", options.streams, "--new-tokens",
               str(options.new_tokens)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def run_plumbline(options):
    command = [options.plumbline, "bench", "-m", options.model, "--threads", str(options.threads), "--prompt",
               options.prompt, "--streams", options.streams, "--new-tokens", str(options.new_tokens), "--repetitions",
               "3", "--format", "jsonl", "--compute", options.compute]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    ids = ",".join(str(t) for t in tokens(FIRST_PROMPT, 40000))
    begin = time.perf_counter()
    process = subprocess.Popen([options.plumbline, "generate", "-m", options.model, "--tokens", ids, "-n", "1",
                                "--threads", str(options.threads), "--compute", options.compute, "--quiet"], stdout=subprocess.DEVNULL)
    import os
    usage = os.wait4(process.pid, 0)[2]
    return {"report": report, "first_token": time.perf_counter() - begin, "peak_bytes": usage.ru_maxrss * 1024}


def cpu_name():
    return re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1]


def append(options, record):
    with options.raw.open("a") as file:
        file.write(json.dumps({"model": pathlib.Path(options.model).name, **record}) + "\n")


def plumbline_lines(report):
    return {re.sub(r" x \d+", "", line["work"]): line for line in report["lines"]}


def ratio_line(name, ours, theirs, limits=""):
    best, peer = max(ours), max(theirs)
    middle = statistics.median(ours) / statistics.median(theirs)
    return f"{name:28} {best:>10.1f} {peer:>10.1f} {best / peer:>7.2f} {middle:>7.2f}   {limits}"


def report(options):
    records = [json.loads(line) for line in options.raw.read_text().splitlines()]
    records = [r for r in records if r["model"] == pathlib.Path(options.model).name]
    ours = [r["plumbline"] for r in records
            if "plumbline" in r and r["plumbline"]["report"]["compute"] == options.compute]
    peers = [r["llama"] for r in records if "llama" in r]
    limits = {key: max(r["report"][key] for r in ours)
              for key in ("read_bytes_per_second", "multiply_add_flops", "dot_bf16_flops")}
    print(f"{pathlib.Path(options.model).name}, {ours[0]['report']['threads']} threads, {cpu_name()}, "
          f"{ours[0]['report']['isa']}, {options.compute}, rounds: {len(ours)}")
    print(f"limits: reads {limits['read_bytes_per_second'] * 1e-9:.1f} GB/s, multiply-adds "
          f"{limits['multiply_add_flops'] * 1e-9:.0f} GFLOP/s, vdpbf16ps {limits['dot_bf16_flops'] * 1e-9:.0f} GFLOP/s")
    print(f"{'tokens/s':28} {'plumbline':>10} {'llama.cpp':>10} {'ratio':>7} {'median':>7}   "
          "share of read, multiply-add, vdpbf16ps")
    runs = [plumbline_lines(r["report"]) for r in ours]
    # A share compares two speeds of the same minute: the best share of the rounds, not of the best rounds' limits.
    for name in runs[0]:
        peer = re.sub(",.*", "", name)
        shares = [max(run[name][key] for run in runs) for key in ("read_share", "multiply_add_share", "dot_bf16_share")]
        # The medians compare the setting of llama.cpp that has the best line.
        best = max(peers, key=lambda p: p["lines"][peer])["setting"]
        theirs = [p["lines"][peer] for p in peers if p["setting"] == best]
        print(ratio_line(name, [run[name]["tokens_per_second"] for run in runs], theirs,
                         "{:4.0%} {:4.0%} {:4.0%}".format(*shares)))
    print(f"{'start to first token, s':28} {min(r['first_token'] for r in ours):>10.2f} "
          f"{min(p['first_token'] for p in peers):>10.2f}   ({FIRST_PROMPT} tokens, the file loaded first)")
    print(f"{'peak resident, MB':28} {min(r['peak_bytes'] for r in ours) / 1e6:>10.0f} "
          f"{min(p['peak_bytes'] for p in peers) / 1e6:>10.0f}   (the same run)")


def main():
    options = parse()
    if options.worker:
        return worker(options)
    indices = range(len(SETTINGS)) if options.settings is None else [options.settings]
    for _ in range(options.rounds):
        for index in indices:
            append(options, {"plumbline": run_plumbline(options)})
            append(options, {"llama": {"setting": index, **run_llama(options, index)}})
    report(options)


if __name__ == "__main__":
    main()
