"""Every way of keeping less for the backward pass gives the losses and gradients of the baseline, on fixture F1."""
import json

import numpy as np
import pytest
import resumable_run as rr
from bert_fixture import READ_OUT, assert_gradients_agree, gradients, run, train, weights, write_model, write_shard

PRESETS = ["baseline", "tempo", "lean", "checkpoint"]
SINGLE = {"gelu": ["tempo", "recompute"], "layer_norm": ["tempo", "recompute"], "dropout": ["tempo", "regenerate"],
          "attention": ["tempo", "flash"], "recompute": ["ffn", "block"]}
MIXED = [{"preset": "lean", "recompute": "ffn"}, {"preset": "lean", "recompute": "block"},
         {"preset": "lean", "gelu": "tempo"}, {"preset": "lean", "gelu": "baseline"}, {"preset": "tempo", "masks": "byte"},
         {"preset": "tempo", "gelu": "recompute"}, {"preset": "tempo", "recompute": "ffn"},
         {"preset": "tempo", "dropout": "regenerate"}, {"preset": "checkpoint", "attention": "flash"}]
SETS = ([{"preset": name} for name in PRESETS] + [{key: value} for key, values in SINGLE.items() for value in values] + MIXED)


def name_of(layers):
    return "-".join(f"{key}_{value}" for key, value in layers.items())


@pytest.fixture(scope="module")
def f1(tmp_path_factory):
    folder = tmp_path_factory.mktemp("f1")
    write_model(folder / "model")
    write_shard(folder / "f1.hdf5")
    return folder


def step(f1, folder, layers, dropout, **train_options):
    return train(folder, f1 / "model", [f1 / "f1.hdf5"], layers=layers, optimizer=READ_OUT,
                 model={"hidden_dropout": dropout, "attention_dropout": dropout}, train={"threads": 1, **train_options})


@pytest.fixture(scope="module")
def baseline(f1, tmp_path_factory):
    return {dropout: step(f1, tmp_path_factory.mktemp("baseline"), {"preset": "baseline"}, dropout) for dropout in (0.0, 0.1)}


@pytest.mark.parametrize("layers", SETS, ids=name_of)
class TestStep:
    def test_has_the_loss_and_the_gradients_of_the_baseline(self, f1, tmp_path, baseline, layers):
        for dropout in (0.0, 0.1):
            trained = step(f1, tmp_path / str(dropout), layers, dropout)
            record, expected = trained.records[0], baseline[dropout].records[0]
            assert record["loss"] == pytest.approx(expected["loss"], rel=1e-6)
            if dropout == 0:
                assert record["loss"] == pytest.approx(4.864107, abs=2e-5)
                assert record["grad_norm"] == pytest.approx(306.97, abs=0.05)
            assert_gradients_agree(gradients(weights(), baseline[dropout]), gradients(weights(), trained))

    def test_does_not_depend_on_the_micro_batch(self, f1, tmp_path, layers):
        one, other = (step(f1, tmp_path / str(size), layers, 0.1, micro_batch=size) for size in (4, 1))
        assert one.records[0]["loss"] == pytest.approx(other.records[0]["loss"], rel=1e-6)
        assert one.records[0]["grad_norm"] == pytest.approx(other.records[0]["grad_norm"], rel=1e-5)


class TestRun:
    def test_says_what_its_layers_keep(self, f1, tmp_path):
        log = step(f1, tmp_path, {"preset": "lean", "gelu": "tempo"}, 0.1).log
        assert ("layers: lean (gelu tempo, layer_norm recompute, dropout regenerate, attention flash, recompute none, "
                "masks packed)") in log

    def test_goes_on_with_other_layers(self, f1, tmp_path):
        trained = step(f1, tmp_path, {"preset": "tempo"}, 0.1, steps=2)
        done = run("train", "--resume", trained.folder, "train.steps=3", "layers.preset=lean")
        assert "layers.preset: lean replaces tempo" in done.stderr
        assert "layers: lean (gelu recompute, layer_norm recompute, dropout regenerate, attention flash" in done.stderr

    @pytest.mark.parametrize("gammas", [0.0, 1e-8, -0.5, "mixed"])
    def test_is_right_where_a_norm_cannot_be_inverted(self, f1, tmp_path, gammas):  # case 18
        tensors = weights()
        name = "bert.encoder.layer.0.attention.output.LayerNorm.weight"
        tensors[name] = np.array([1e-8, -0.3, 0, 2, 1, -2, 0, 0.5] if gammas == "mixed" else [gammas] * 8, np.float32)
        write_model(tmp_path / "model", tensors)
        results = {}
        for preset in PRESETS:
            trained = train(tmp_path / preset, tmp_path / "model", [f1 / "f1.hdf5"], layers={"preset": preset},
                            optimizer=READ_OUT, train={"threads": 1})
            assert np.isfinite(trained.records[0]["loss"]) and np.isfinite(trained.records[0]["grad_norm"])
            results[preset] = trained.records[0], gradients(tensors, trained)
            told = [line for line in trained.log.splitlines() if "cannot be inverted" in line]
            is_unsafe = preset == "tempo" and gammas in (0.0, 1e-8, "mixed")
            assert len(told) == is_unsafe and (not told or name.removesuffix(".weight") in told[0]), trained.log
        for preset in PRESETS[1:]:
            assert results[preset][0]["loss"] == pytest.approx(results["baseline"][0]["loss"], rel=1e-6)
            # Where all rows are alike, the gradient of the next block's keys is rounding noise.
            alike = {name for name, gradient in results["baseline"][1].items() if np.abs(gradient).max() < 1e-5}
            ours, theirs = ({name: gradient for name, gradient in results[name_of_set][1].items() if name not in alike}
                            for name_of_set in ("baseline", preset))
            assert_gradients_agree(ours, theirs)


class TestCurves:
    def test_are_those_of_the_baseline_over_200_steps(self, tmp_path):
        shards = rr.write_thirteen_rows(tmp_path)
        options = {"train": {"steps": 200}, "optimizer": {"lr": 1e-3}, "schedule": {"name": "linear", "warmup_steps": 30}}
        losses = {}
        for preset in PRESETS:
            directory = rr.start(tmp_path, shards, preset, layers={"preset": preset}, **options)
            losses[preset] = np.convolve([record["loss"] for record in rr.read_records(directory)], np.ones(10) / 10, "valid")
        assert losses["baseline"][-1] < losses["baseline"][0] - 0.3
        for preset in PRESETS[1:]:
            assert np.abs(losses[preset] - losses["baseline"]).max() <= 1e-4, preset


class TestMistakes:
    @pytest.mark.parametrize("layers, names", [
        ({"gelu": "tempo", "recompute": "ffn"}, ["layers.gelu", "has no effect", "ffn"]),
        ({"masks": "byte"}, ["layers.masks", "has no effect"]),
        ({"preset": "lean", "masks": "packed"}, ["layers.masks", "has no effect"]),
        ({"preset": "leaner"}, ["layers.preset", "lean"]),
        ({"attention": "recompute"}, ["layers.attention", "flash"])])
    def test_are_named(self, f1, tmp_path, layers, names):
        config = {"data": {"shards": [str(f1 / "f1.hdf5")]}, "train": {"device": "cpu", "global_batch": 4, "steps": 1},
                  "init": {"from": str(f1 / "model")}, "run": {"dir": str(tmp_path / "run")}, "layers": layers}
        (tmp_path / "run.yaml").write_text(json.dumps(config))
        done = run("train", tmp_path / "run.yaml", expect=2)
        assert all(name in done.stderr for name in names) and not (tmp_path / "run").exists(), done.stderr
