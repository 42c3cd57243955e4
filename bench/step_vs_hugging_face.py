#!/usr/bin/env python3
"""Times a training step of 4 BERT-Large-sized layers beside Hugging Face eager, alternately, on the CPU.

usage: step_vs_hugging_face.py [--rounds 4] [--steps 4] [--batch 4] [--length 512] [--threads 2]

Each round runs, one after another: our program; transformers' BertForPreTraining (eager attention, dropout 0.1, AdamW, clipping)
as shipped; the same with MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ raised, so that glibc keeps freed blocks; and a
matrix product of the step's commonest shape, for the machine's sgemm rate. The first step of each process is not counted. Both
train on the same full-length rows. Printed: medians, ratios per round, and the share of the sgemm rate that the useful products
of our step reach.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))
HIDDEN, LAYERS, HEADS, INTERMEDIATE, VOCAB = 1024, 4, 16, 4096, 30522
KEEP_BLOCKS = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}


def rows(arguments):
    import numpy as np
    generator = np.random.default_rng(0)
    predictions = -(-5 * arguments.length // 32)
    result = []
    for _ in range(arguments.batch * arguments.steps):
        ids = generator.integers(1000, VOCAB, arguments.length).tolist()
        positions = np.sort(generator.choice(np.arange(1, arguments.length), predictions, replace=False))
        result.append((ids, arguments.length // 2, arguments.length, positions.tolist(),
                       generator.integers(1000, VOCAB, predictions).tolist(), int(generator.integers(2))))
    return result, predictions


def hugging_face(arguments):
    """In a process of its own: prints one time per step, in ms."""
    import h5py
    import torch
    from transformers import BertConfig, BertForPreTraining
    torch.set_num_threads(arguments.threads)
    model = BertForPreTraining(BertConfig(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                                          intermediate_size=INTERMEDIATE, attn_implementation="eager")).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    with h5py.File(arguments.shard) as file:
        data = {name: torch.from_numpy(file[name][:].astype("int64")) for name in file}
    for step in range(arguments.steps):
        begin = time.perf_counter()
        rows_of_step = slice(step * arguments.batch, (step + 1) * arguments.batch)
        labels = torch.full_like(data["input_ids"][rows_of_step], -100)
        labels.scatter_(1, data["masked_lm_positions"][rows_of_step], data["masked_lm_ids"][rows_of_step])
        optimizer.zero_grad()
        out = model(input_ids=data["input_ids"][rows_of_step], attention_mask=data["input_mask"][rows_of_step],
                    token_type_ids=data["segment_ids"][rows_of_step], labels=labels,
                    next_sentence_label=data["next_sentence_labels"][rows_of_step])
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(json.dumps((time.perf_counter() - begin) * 1000), flush=True)


def sgemm(arguments):
    """Prints the rate of the step's commonest product in GFLOP/s: the median of 12."""
    import torch
    torch.set_num_threads(arguments.threads)
    a, b = torch.randn(arguments.batch * arguments.length, HIDDEN), torch.randn(HIDDEN, INTERMEDIATE)
    out = a @ b
    rates = []
    for _ in range(12):
        begin = time.perf_counter()
        torch.mm(a, b, out=out)
        rates.append(2 * a.shape[0] * HIDDEN * INTERMEDIATE / (time.perf_counter() - begin) / 1e9)
    print(json.dumps(statistics.median(rates)))


def child(mode, arguments, environment=()):
    command = [sys.executable, __file__, "--mode", mode, "--shard", arguments.shard]
    for name in ("steps", "batch", "length", "threads"):
        command += [f"--{name}", str(getattr(arguments, name))]
    text = subprocess.run(command, env={**os.environ, **dict(environment)}, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def ours(arguments, folder):
    tempo = pathlib.Path(os.environ.get("TEMPO_BUILD", ROOT / "build/release")) / "tempo"
    (folder / "run.yaml").write_text(json.dumps({
        "model": {"hidden_size": HIDDEN, "num_layers": LAYERS, "num_heads": HEADS, "intermediate_size": INTERMEDIATE},
        "data": {"shards": arguments.shard, "shuffle": False},
        "train": {"device": "cpu", "global_batch": arguments.batch, "micro_batch": arguments.batch, "steps": arguments.steps,
                  "threads": arguments.threads},
        "run": {"dir": str(folder / "run"), "log_every": 1, "overwrite": True, "export": False}}))
    subprocess.run([tempo, "train", folder / "run.yaml"], check=True, capture_output=True)
    return [json.loads(line)["step_ms"] for line in (folder / "run/metrics.jsonl").read_text().splitlines()]


def useful_flops(arguments, predictions):
    """Multiply-adds count two; forward, and twice that backward."""
    tokens, labels = arguments.batch * arguments.length, arguments.batch * predictions
    block = 2 * tokens * (4 * HIDDEN ** 2 + 2 * HIDDEN * INTERMEDIATE) + 4 * arguments.batch * arguments.length ** 2 * HIDDEN
    return 3 * (LAYERS * block + 2 * labels * (HIDDEN ** 2 + HIDDEN * VOCAB))


def compare(arguments):
    from bert_fixture import write_shard
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data, predictions = rows(arguments)
        arguments.shard = str(write_shard(folder / "bench.hdf5", data, predictions))
        flops = useful_flops(arguments, predictions)
        rounds = []
        for number in range(arguments.rounds):
            row = {"tempo": statistics.median(ours(arguments, folder)[1:]),
                   "shipped": statistics.median(child("hugging-face", arguments)[1:]),
                   "tuned": statistics.median(child("hugging-face", arguments, KEEP_BLOCKS.items())[1:]),
                   "sgemm": child("sgemm", arguments)[0]}
            row["share"] = flops / row["tempo"] / 1e6 / row["sgemm"]
            rounds.append(row)
            print(f"round {number + 1}: tempo {row['tempo']:.0f} ms, Hugging Face {row['shipped']:.0f} ms as shipped, "
                  f"{row['tuned']:.0f} ms tuned, sgemm {row['sgemm']:.0f} GFLOP/s", flush=True)
        for name, of in (("as shipped", "shipped"), ("tuned", "tuned")):
            ratios = sorted(row["tempo"] / row[of] for row in rounds)
            print(f"tempo / Hugging Face {name}: median {statistics.median(ratios):.3f}  ({ratios[0]:.3f} to {ratios[-1]:.3f})")
        shares = sorted(row["share"] for row in rounds)
        print(f"useful products: {flops / 1e9:.0f} GFLOP a step, {statistics.median(shares):.0%} of the sgemm rate "
              f"({shares[0]:.0%} to {shares[-1]:.0%})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, default in (("rounds", 4), ("steps", 4), ("batch", 4), ("length", 512), ("threads", 2)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--mode", choices=["compare", "hugging-face", "sgemm"], default="compare", help=argparse.SUPPRESS)
    parser.add_argument("--shard", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    {"compare": compare, "hugging-face": hugging_face, "sgemm": sgemm}[chosen.mode](chosen)
