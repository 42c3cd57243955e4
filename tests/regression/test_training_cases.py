"""Faults that public bug reports describe in other trainers, on fixture F1 with the right answers worked out beforehand."""
import json

import numpy as np
import pytest
from bert_fixture import (READ_OUT, ROWS, assert_gradients_agree, gradients, run, train, weights, write_model, write_shard)

LOSS, GRAD_NORM = 4.864107, 306.97


@pytest.fixture(scope="module")
def f1(tmp_path_factory):
    folder = tmp_path_factory.mktemp("f1")
    write_model(folder / "model")
    write_shard(folder / "F1_training_0.hdf5")
    return folder


def shard(f1):
    return [f1 / "F1_training_0.hdf5"]


def check_step(record):
    assert record["loss"] == pytest.approx(LOSS, abs=2e-5)
    assert record["mlm_loss"] == pytest.approx(3.961009, abs=2e-5)
    assert record["nsp_loss"] == pytest.approx(0.903097, abs=2e-5)
    assert record["grad_norm"] == pytest.approx(GRAD_NORM, abs=0.05)


def test_one_step_has_the_known_loss_and_gradient_norm(f1, tmp_path):
    check_step(train(tmp_path, f1 / "model", shard(f1)).records[0])


class TestSplitsOfAGlobalBatch:  # case 8
    def test_loss_norm_and_gradients_do_not_depend_on_the_micro_batch(self, f1, tmp_path):
        read = {}
        for micro in (4, 1, 2, 3):
            trained = train(tmp_path / str(micro), f1 / "model", shard(f1), optimizer=READ_OUT, train={"micro_batch": micro})
            check_step(trained.records[0])
            read[micro] = gradients(weights(), trained)
        for micro in (1, 2, 3):
            assert_gradients_agree(read[4], read[micro])

    def test_an_epochs_last_global_batch_is_short_and_counts_its_own_labels(self, f1, tmp_path):
        gentle = {"eps": 1.0, "lr": 0.1}
        seven = write_shard(tmp_path / "seven.hdf5", ROWS + ROWS[:3])
        first = train(tmp_path / "first", f1 / "model", shard(f1), optimizer=gentle)
        whole = train(tmp_path / "whole", f1 / "model", [seven], optimizer=gentle, train={"micro_batch": 1, "steps": 2})
        assert [r["sequences"] for r in whole.records] == [4, 7]
        three = write_shard(tmp_path / "three.hdf5", ROWS[:3])
        # Continuing from the weights after the first step has no moments: what must agree is loss and gradient norm.
        second = train(tmp_path / "second", first.folder / "export", [three], optimizer=gentle,
                       train={"global_batch": 3, "micro_batch": 3})
        assert whole.records[1]["loss"] == pytest.approx(second.records[0]["loss"], abs=2e-6)
        assert whole.records[1]["grad_norm"] == pytest.approx(second.records[0]["grad_norm"], rel=1e-5)


class TestWeightDecay:  # case 12
    def test_goes_to_matrices_only_and_is_decoupled(self, f1, tmp_path):
        decay = {"lr": 0.01, "weight_decay": 0.1}
        plain = train(tmp_path / "plain", f1 / "model", shard(f1), optimizer={"lr": 0.01})
        decayed = train(tmp_path / "decayed", f1 / "model", shard(f1), optimizer=decay)
        for name, before in weights().items():
            moved = decayed.weights[name] - plain.weights[name]
            if name.endswith(".weight") and "LayerNorm" not in name:
                assert np.abs(moved + 0.001 * before).max() <= 3e-7, name
            else:
                assert np.all(moved == 0.0), name
        positions = "bert.embeddings.position_embeddings.weight"
        assert decayed.weights[positions][10:] == pytest.approx(weights()[positions][10:] * 0.999, rel=1e-6)
        assert "2194 parameters (1920 decayed, 274 not)" in decayed.log


class TestLamb:  # case 13
    @pytest.mark.parametrize("bias_correction, largest", [(True, 0.01), (False, 0.0316)])
    def test_moves_each_decayed_tensor_by_its_own_norm_and_zero_tensors_plainly(self, tmp_path, bias_correction, largest):
        before = weights()
        zeroed = [name for name in before if name.endswith("intermediate.dense.bias")]
        for name in zeroed:
            before[name][:] = 0
        model = write_model(tmp_path / "model", before)
        lamb = {"name": "lamb", "lr": 0.01, "weight_decay": 0.01, "betas": [0.9, 0.999], "eps": 1e-6,
                "bias_correction": bias_correction}
        after = train(tmp_path, model, [write_shard(tmp_path / "f1.hdf5")], optimizer=lamb).weights
        for name, start in before.items():
            assert np.all(np.isfinite(after[name])), name
            if start.ndim >= 2:
                moved = np.linalg.norm(after[name].astype(np.float64) - start) / np.linalg.norm(start.astype(np.float64))
                assert moved == pytest.approx(0.01, abs=1e-5), name
        for name in zeroed:
            assert np.all(after[name] != 0) and np.abs(after[name]).max() == pytest.approx(largest, rel=0.01)


class TestImport:  # case 14
    def loss_of(self, folder, tensors):
        model = write_model(folder / "model", tensors)
        return train(folder, model, [write_shard(folder / "f1.hdf5")])

    def renamed(self, change):
        return {change(name): tensor for name, tensor in weights().items()}

    def test_reads_gamma_and_beta(self, tmp_path):
        old = self.renamed(lambda n: n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"))
        trained = self.loss_of(tmp_path, old)
        check_step(trained.records[0])
        assert set(trained.weights) == set(weights())

    def test_ignores_buffers_and_equal_tied_tensors(self, tmp_path):
        tensors = weights()
        tensors["bert.embeddings.position_ids"] = np.arange(12, dtype=np.int64)[None]
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()
        trained = self.loss_of(tmp_path, tensors)
        check_step(trained.records[0])
        assert set(trained.weights) == set(weights())

    def test_loads_a_bare_encoder_and_lists_the_heads_it_had_to_start(self, tmp_path):
        bare = {name[5:]: tensor for name, tensor in weights().items() if name.startswith("bert.")}
        log = self.loss_of(tmp_path, bare).log
        heads = [name for name in weights() if name.startswith("cls.")]
        listed = next(line for line in log.splitlines() if "start from the seed" in line)
        assert sorted(listed.split(": ")[-1].split(", ")) == sorted(heads)

    def test_names_the_tensor_that_is_missing_unknown_or_untied(self, tmp_path):
        missing = weights()
        del missing["bert.encoder.layer.1.output.dense.bias"]
        extra = {**weights(), "bert.encoder.layer.2.output.dense.bias": np.zeros(8, np.float32)}
        untied = {**weights(), "cls.predictions.decoder.bias": weights()["cls.predictions.bias"] + 1}
        for key, tensors in (("bert.encoder.layer.1.output.dense.bias", missing),
                             ("bert.encoder.layer.2.output.dense.bias", extra), ("cls.predictions.decoder.bias", untied)):
            folder = tmp_path / key
            model = write_model(folder / "model", tensors)
            done = run("convert", "--from", model, "--to", folder / "out", expect=2)
            assert key in done.stderr and not (folder / "out").exists()


class TestTiedTensors:  # case 15
    def test_stay_one_tensor_through_import_training_and_export(self, f1, tmp_path):
        three = train(tmp_path / "three", f1 / "model", shard(f1), train={"steps": 3})
        assert sum(w.size for w in three.weights.values()) == 2194
        four = train(tmp_path / "four", f1 / "model", shard(f1), train={"steps": 4})
        again = train(tmp_path / "again", three.folder / "export", shard(f1))
        assert again.records[0]["loss"] == pytest.approx(four.records[3]["loss"], abs=1e-6)
        words = "bert.embeddings.word_embeddings.weight"
        first = train(tmp_path / "one", f1 / "model", shard(f1)).weights[words]
        for row in (1, 9, 11, 13):  # never an input: they move because the output layer is the same tensor
            assert np.all(first[row] != weights()[words][row]), row

    def test_padding_of_the_vocabulary_changes_no_loss_and_is_not_exported(self, f1, tmp_path):
        plain = train(tmp_path / "plain", f1 / "model", shard(f1), train={"steps": 3})
        padded = train(tmp_path / "padded", f1 / "model", shard(f1), train={"steps": 3}, model={"vocab_multiple": 12})
        for one, other in zip(plain.records, padded.records):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)
        assert {n: w.shape for n, w in plain.weights.items()} == {n: w.shape for n, w in padded.weights.items()}

    def test_a_checkpoint_made_by_convert_gives_the_same_folder_back(self, f1, tmp_path):
        run("convert", "--from", f1 / "model", "--to", tmp_path / "checkpoint", "--vocab-multiple", 8)
        assert {p.name for p in (tmp_path / "checkpoint").iterdir()} == {"model.safetensors", "config.json", "state.json", "COMPLETE"}
        summary = json.loads(run("inspect", tmp_path / "checkpoint", "--json").stdout)
        assert summary["kind"] == "checkpoint" and summary["parameters"] == 2194
        run("convert", "--from", tmp_path / "checkpoint", "--to", tmp_path / "back")
        check_step(train(tmp_path, tmp_path / "back", shard(f1)).records[0])


class TestArchitectureFollowsTheModelsConfig:  # case 17
    @pytest.mark.parametrize("config, loss", [({"hidden_act": "gelu"}, 4.864107), ({"hidden_act": "gelu_new"}, 4.863100),
                                              ({"hidden_act": "gelu_pytorch_tanh"}, 4.863100), ({"layer_norm_eps": 1e-5}, 4.139814)])
    def test_gelu_form_and_eps(self, f1, tmp_path, config, loss):
        model = write_model(tmp_path / "model", **config)
        assert train(tmp_path, model, shard(f1)).records[0]["loss"] == pytest.approx(loss, abs=2e-5)

    def test_an_unknown_activation_is_refused(self, f1, tmp_path):
        model = write_model(tmp_path / "model", hidden_act="swish")
        done = run("convert", "--from", model, "--to", tmp_path / "out", expect=2)
        assert "hidden_act" in done.stderr and "swish" in done.stderr and "gelu" in done.stderr


class TestReportedNumbers:  # case 19, one process
    @pytest.mark.parametrize("micro, accumulation", [(2, 3), (2, 1), (2, 6)])
    def test_sequences_are_exact_and_rates_fit_the_times(self, f1, tmp_path, micro, accumulation):
        many = write_shard(tmp_path / "many.hdf5", ROWS * 36)
        trained = train(tmp_path, f1 / "model", [many],
                        train={"global_batch": micro * accumulation, "micro_batch": micro, "steps": 12})
        per_step = micro * accumulation
        assert [r["sequences"] for r in trained.records] == [per_step * n for n in range(1, 13)]
        assert trained.records[-1]["tokens"] == 12 * per_step * 10
        for record in trained.records:
            assert record["sequences_per_s"] * record["step_ms"] / 1000 == pytest.approx(per_step, rel=0.02)
            assert record["tokens_per_s"] == pytest.approx(record["sequences_per_s"] * 10, rel=1e-9)
            assert record["peak_allocated_bytes"] > 4 * 4 * 2194  # parameters, gradients and two moments at least

    def test_padding_counts_as_tokens_but_not_as_real_tokens(self, f1, tmp_path):
        record = train(tmp_path, f1 / "model", shard(f1)).records[0]
        assert (record["tokens"], record["real_tokens"]) == (40, 8 + 7 + 9 + 10)
