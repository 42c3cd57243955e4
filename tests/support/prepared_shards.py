"""Runs `tempo prepare` on small corpora, and reads what it wrote by NVIDIA's rules with h5py."""
import json
import pathlib

import h5py
import numpy as np
from bert_fixture import run

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_vocabulary(path, words):
    pathlib.Path(path).write_text("".join(word + "\n" for word in [*SPECIALS, *words]))
    return path


def write_config(folder, length, **prepare):
    """FOLDER/prepare.yaml for FOLDER/{corpus.txt, vocab.txt} -> FOLDER/shards."""
    keys = {"input": "corpus.txt", "tokenizer": "vocab.txt", "output": "shards", "documents": "blank_line",
            "sentences": "lines", **prepare}
    path = pathlib.Path(folder) / "prepare.yaml"
    path.write_text(json.dumps({"data": {"sequence_length": length}, "prepare": keys}))
    return path


def prepare(folder, length=128, *overrides, expect=0, **keys):
    return run("prepare", write_config(folder, length, **keys), *overrides, expect=expect)


def read_as_nvidia_does(path):
    """The six datasets, and the labels of each row: up to the first position 0 (run_pretraining.py's rule)."""
    with h5py.File(path) as file:
        names = ["input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels"]
        data = [np.asarray(file[name][:]) for name in names]
    ids, mask, segments, positions, labels, next_sentence = data
    rows = []
    for r in range(len(ids)):
        zero = np.flatnonzero(positions[r] == 0)
        count = zero[0] if len(zero) else positions.shape[1]
        original = ids[r].copy()
        original[positions[r, :count]] = labels[r, :count]
        length = int(mask[r].sum())
        rows.append({"ids": ids[r], "original": original[:length], "length": length, "mask": mask[r], "segments": segments[r],
                     "positions": positions[r, :count], "labels": labels[r, :count], "rest": positions[r, count:],
                     "random": int(next_sentence[r])})
    return rows


def all_rows(folder, pattern="*_training_*.hdf5"):
    return [row for path in sorted(pathlib.Path(folder).glob(pattern)) for row in read_as_nvidia_does(path)]
