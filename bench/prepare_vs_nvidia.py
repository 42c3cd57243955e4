#!/usr/bin/env python3
"""Times `tempo prepare` beside NVIDIA's create_pretraining_data.py, alternately, on the same sentences.

usage: prepare_vs_nvidia.py FOLDER FILE... [--rounds 3] [--nvidia-bytes 350000] [--threads 1,2]

FOLDER holds NVIDIA's create_pretraining_data.py and tokenization.py (DeepLearningExamples, PyTorch/LanguageModeling/BERT,
2020). FILEs have one sentence a line and blank lines between documents. NVIDIA's script gets the first --nvidia-bytes of
them, as its time grows evenly; `tempo prepare` gets all. Five duplicates, 128 tokens, BERT's uncased vocabulary.
Counted is the CPU time of whole processes, starting them included, per byte of text; for several threads also the time on
the clock. Printed: medians and the ratio per round.
"""
import argparse
import json
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from wordpiece_vs_tokenizers import BUILD, bert_vocabulary

# Its imports of a downloader and of six are not needed for a vocabulary that lies on the disk.
NVIDIA = """
import sys, types
files = types.ModuleType("file_utils"); files.cached_path = None; sys.modules["file_utils"] = files
six = types.ModuleType("six"); six.PY3, six.PY2 = True, False; sys.modules["six"] = six
sys.path.insert(0, {folder!r})
import tokenization
tokenization.BertTokenizer.from_pretrained = classmethod(lambda c, name, **_: c({vocab!r}, do_lower_case=True))
import create_pretraining_data as script
sys.argv = ["", "--vocab_file", {vocab!r}, "--input_file", {text!r}, "--output_file", {output!r}, "--dupe_factor", "5"]
script.main()
"""


def timed(command):
    """Seconds of CPU time and on the clock."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    clock, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def main(arguments):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = b"\n".join(pathlib.Path(path).read_bytes() for path in arguments.files)
        (folder / "all.txt").write_bytes(text)
        (folder / "some.txt").write_bytes(text[:text.index(b"\n", arguments.nvidia_bytes)] + b"\n")
        sizes = {file: (folder / file).stat().st_size / 1e6 for file in ("all.txt", "some.txt")}
        print(f"tempo: {sizes['all.txt']:.2f} MB, NVIDIA's script: {sizes['some.txt']:.2f} MB")
        script = NVIDIA.format(folder=arguments.folder, vocab=arguments.vocab, text=str(folder / "some.txt"),
                               output=str(folder / "nvidia.hdf5"))
        (folder / "prepare.yaml").write_text(json.dumps({"data": {"sequence_length": 128}, "prepare": {
            "input": "all.txt", "tokenizer": arguments.vocab, "output": "shards", "documents": "blank_line",
            "sentences": "lines"}}))
        ratios, clocks = [], {threads: [] for threads in arguments.threads}
        for number in range(arguments.rounds):
            nvidia = timed([sys.executable, "-c", script])[0] / sizes["some.txt"]
            line = f"round {number + 1}: NVIDIA {nvidia:.2f} s/MB"
            for threads in arguments.threads:
                shutil.rmtree(folder / "shards", ignore_errors=True)
                seconds, clock = timed([BUILD / "tempo", "prepare", folder / "prepare.yaml", f"prepare.threads={threads}"])
                clocks[threads].append(clock)
                if threads == arguments.threads[0]:
                    ratios.append(nvidia / (seconds / sizes["all.txt"]))
                line += f", tempo on {threads}: {seconds / sizes['all.txt']:.4f} s/MB of CPU, {clock:.2f} s on the clock"
            print(line, flush=True)
        print(f"tempo is {statistics.median(ratios):.1f} times as fast  ({min(ratios):.1f} to {max(ratios):.1f})")
        first = arguments.threads[0]
        for threads in arguments.threads[1:]:
            gains = [one / many for one, many in zip(clocks[first], clocks[threads])]
            print(f"{threads} threads: {statistics.median(gains):.2f} times {first}'s speed on the clock "
                  f"({min(gains):.2f} to {max(gains):.2f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nvidia-bytes", type=int, default=350_000)
    parser.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2])
    parser.add_argument("--vocab", default=bert_vocabulary())
    main(parser.parse_args())
