"""The tiny BERT "F1" that the regression cases are worked out on, and ways to run the program on it.

Weights: names in ASCII order, k-th tensor (from 0), i-th element (from 1) in row-major order: x = sin(12.9898 (k+1) + 78.233 i).
"""
import json
import os
import pathlib
import subprocess

import h5py
import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TEMPO_BUILD", ROOT / "build/release"))
TEMPO = BUILD / "tempo"
PROBE = BUILD / "model_probe"

CONFIG = dict(model_type="bert", architectures=["BertForPreTraining"], vocab_size=16, hidden_size=8, num_hidden_layers=2,
              num_attention_heads=2, intermediate_size=32, max_position_embeddings=12, type_vocab_size=2, hidden_act="gelu",
              layer_norm_eps=1e-12, pad_token_id=0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)

# token ids, first slot of segment 1, length, masked positions, their labels, next-sentence label
ROWS = [([2, 5, 6, 4, 3, 7, 8, 3, 0, 0], 5, 8, [3], [9], 0),
        ([2, 15, 4, 3, 4, 8, 3, 0, 0, 0], 4, 7, [2, 4], [6, 7], 0),
        ([2, 6, 4, 8, 4, 3, 5, 4, 3, 0], 6, 9, [2, 4, 7], [7, 10, 12], 1),
        ([2, 4, 10, 4, 3, 4, 12, 4, 14, 3], 5, 10, [1, 3, 5, 7], [5, 11, 9, 13], 1)]


def weight_shapes(vocab=16, hidden=8, layers=2, intermediate=32, positions=12):
    shapes = {f"bert.embeddings.{name}_embeddings.weight": (rows, hidden)
              for name, rows in (("word", vocab), ("position", positions), ("token_type", 2))}

    def linear(name, rows, columns):
        shapes[name + ".weight"], shapes[name + ".bias"] = (rows, columns), (rows,)

    def norm(name):
        shapes[name + ".weight"] = shapes[name + ".bias"] = (hidden,)

    norm("bert.embeddings.LayerNorm")
    for layer in range(layers):
        prefix = f"bert.encoder.layer.{layer}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            linear(prefix + name, hidden, hidden)
        linear(prefix + "intermediate.dense", intermediate, hidden)
        linear(prefix + "output.dense", hidden, intermediate)
        norm(prefix + "attention.output.LayerNorm")
        norm(prefix + "output.LayerNorm")
    linear("bert.pooler.dense", hidden, hidden)
    shapes["cls.predictions.bias"] = (vocab,)
    linear("cls.predictions.transform.dense", hidden, hidden)
    norm("cls.predictions.transform.LayerNorm")
    linear("cls.seq_relationship", 2, hidden)
    return shapes


def weights():
    tensors = {}
    for k, (name, shape) in enumerate(sorted(weight_shapes().items())):
        i = np.arange(1, np.prod(shape) + 1, dtype=np.float64)
        x = np.sin(12.9898 * (k + 1) + 78.233 * i).reshape(shape)
        if "LayerNorm" in name:
            x = 1 + 0.2 * x if name.endswith("weight") else 0.1 * x
        elif "transform.dense" in name:
            x = 0.002 * x
        else:
            x = (0.1 if name.endswith("bias") else 0.5) * x
        tensors[name] = x.astype(np.float32)
    return tensors


def write_model(folder, tensors=None, **config):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights() if tensors is None else tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}, indent=1))
    return folder


def write_shard(path, rows=ROWS, max_predictions=4):
    length = len(rows[0][0])
    columns = {"input_ids": (length, "i4"), "input_mask": (length, "i1"), "segment_ids": (length, "i1"),
               "masked_lm_positions": (max_predictions, "i4"), "masked_lm_ids": (max_predictions, "i4")}
    data = {name: np.zeros((len(rows), width), kind) for name, (width, kind) in columns.items()}
    data["next_sentence_labels"] = np.array([row[5] for row in rows], "i1")
    for r, (ids, segment, real, positions, labels, _) in enumerate(rows):
        data["input_ids"][r] = ids
        data["input_mask"][r, :real] = 1
        data["segment_ids"][r, segment:real] = 1
        data["masked_lm_positions"][r, :len(positions)] = positions
        data["masked_lm_ids"][r, :len(labels)] = labels
    with h5py.File(path, "w") as file:
        for name, values in data.items():
            file.create_dataset(name, data=values, compression="gzip")
    return path


def run(*arguments, expect=0):
    """Runs tempo; returns the finished process after checking its exit code."""
    done = subprocess.run([TEMPO, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, f"exit {done.returncode}, not {expect}\n{done.stdout}\n{done.stderr}"
    return done


class Trained:
    """What a finished run left behind."""

    def __init__(self, folder, process):
        self.folder = folder
        self.log = process.stderr
        self.records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.weights = load_file(folder / "export/model.safetensors") if (folder / "export").exists() else None


def train(folder, start, shards, /, **sections):
    """Trains in FOLDER/run from the model folder `start` (None: from the seed) on `shards`; keyword sections go over the defaults below."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"data": {"shards": [str(s) for s in shards], "shuffle": False},
              "train": {"device": "cpu", "global_batch": 4, "micro_batch": 4, "steps": 1, "grad_clip": 0, "seed": 1},
              "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.0},
              "schedule": {"name": "constant"},
              "run": {"dir": str(folder / "run"), "log_every": 1}}
    if start is not None:
        config["init"] = {"from": str(start)}
        config["model"] = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    for section, values in sections.items():
        config.setdefault(section, {}).update(values)
    (folder / "run.yaml").write_text(json.dumps(config))
    return Trained(folder / "run", run("train", folder / "run.yaml"))


# One AdamW step with these settings moves a weight by -lr g / eps: the gradient can be read off the weights.
READ_OUT = {"name": "adamw", "lr": 1e8, "eps": 1e6, "weight_decay": 0.0}


def gradients(before, trained):
    scale = READ_OUT["eps"] / READ_OUT["lr"]
    return {name: (before[name].astype(np.float64) - trained.weights[name]) * scale for name in before}


def assert_gradients_agree(one, other, tolerance=1e-4):
    """Within `tolerance` of each tensor's largest entry; the key bias has a gradient of zero and is rounding noise."""
    for name in one:
        if not name.endswith("attention.self.key.bias"):
            largest = max(np.abs(one[name]).max(), 1e-6)
            assert np.abs(one[name] - other[name]).max() <= tolerance * largest, name
