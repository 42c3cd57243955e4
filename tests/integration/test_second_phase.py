"""Runs that start from another run's checkpoint: BERT's second phase, which keeps the moments and begins everything else anew."""
import json

import numpy as np
import pytest
import resumable_run as rr
from bert_fixture import run
from safetensors.numpy import load_file

LONGER = 12


@pytest.fixture(scope="module")
def first_phase(tmp_path_factory):
    """Per optimizer: a folder with a finished run "first" of 5 steps at 10 tokens, and a shard of 12 tokens for the second."""
    made = {}
    for optimizer in ("adamw", "lamb"):
        folder = tmp_path_factory.mktemp(optimizer)
        shards = rr.write_thirteen_rows(folder)
        rr.start(folder, shards, "first", train={"steps": 5}, optimizer={"name": optimizer}, run={"checkpoint_every": 4})
        rows = [(ids + [0] * (LONGER - len(ids)), *rest) for ids, *rest in rr.different_rows(9, seed=5)]
        made[optimizer] = folder, rr.write_shard(folder / "longer.hdf5", rows)
    return made


def second(first_phase, name, optimizer="adamw", init=None, **sections):
    folder, shard = first_phase[optimizer]
    start = {"from": str(rr.checkpoints(folder / "first")[5]), "optimizer": "keep", "step": 0}
    options = {"train": {"steps": 4, "seed": 8}, "run": {"checkpoint_every": 1, "keep": 0}, **sections}
    return rr.write_config(folder, [shard], f"{optimizer}_{name}", init={**start, **(init or {})},
                           optimizer={"name": optimizer, "lr": 0.003}, **options)


def tensors_after(config, step):
    folder = rr.checkpoints(config.with_suffix(""))[step]
    return load_file(folder / "optimizer.safetensors"), load_file(folder / "model.safetensors")


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
class TestSecondPhase:
    def test_begins_step_rate_and_data_anew(self, first_phase, optimizer):
        config = second(first_phase, "anew", optimizer)
        run("train", config)
        records = rr.read_records(config.with_suffix(""))
        assert [record["step"] for record in records] == [1, 2, 3, 4]
        assert [record["lr"] for record in records[:3]] == pytest.approx([0.001, 0.002, 0.003])
        assert records[0]["epoch"] == 0 and records[0]["sequences"] == 4 and records[0]["tokens"] == 4 * LONGER
        state = json.loads((rr.checkpoints(config.with_suffix(""))[4] / "state.json").read_text())
        assert state["optimizer_updates"] == 5 + 4

    def test_keeps_the_moments(self, first_phase, optimizer):
        """The first step sees the same gradients with and without: what differs is exactly what was kept."""
        kept, fresh = (second(first_phase, name, optimizer, init={"optimizer": name}) for name in ("keep", "fresh"))
        for config in (kept, fresh):
            run("train", config)
        folder, _ = first_phase[optimizer]
        before = load_file(rr.checkpoints(folder / "first")[5] / "optimizer.safetensors")
        (with_kept, weights), (without, _) = tensors_after(kept, 1), tensors_after(fresh, 1)
        for name, tensor in before.items():
            decay = 0.9 if name.startswith("moment.") else 0.999
            assert np.abs(tensor).max() > 0
            np.testing.assert_allclose(with_kept[name] - without[name], decay * tensor.astype(np.float64), rtol=0,
                                       atol=4e-7 * max(np.abs(with_kept[name]).max(), np.abs(without[name]).max()))
        if optimizer == "adamw":
            self.check_update(folder, with_kept, weights)

    def check_update(self, folder, state, after, lr=0.001, decay=0.01, t=6):
        """AdamW's formula in double with the kept number of updates."""
        start = load_file(rr.checkpoints(folder / "first")[5] / "model.safetensors")
        for name, weight in start.items():
            m, v = (state[f"{kind}.{name}"].astype(np.float64) for kind in ("moment", "variance"))
            u = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
            expected = weight.astype(np.float64) * (1 - lr * decay * (weight.ndim > 1)) - lr * u
            np.testing.assert_allclose(after[name], expected, rtol=1e-6, atol=1e-8)

    def test_goes_on_after_a_kill(self, first_phase, optimizer):
        config = second(first_phase, "killed", optimizer)
        run("train", config)
        directory = config.with_suffix("")
        directory.rename(directory.parent / f"whole_{optimizer}")
        rr.restored(directory.parent / f"whole_{optimizer}", directory)
        rr.stop_after(directory, 2)
        rr.resume(directory)
        rr.assert_same_outcome(directory, directory.parent / f"whole_{optimizer}")


class TestStep:
    def test_goes_on_with_rate_and_data_after_it(self, first_phase):
        """With the same configuration a start from step 4's checkpoint repeats what the run itself did after it."""
        folder, _ = first_phase["adamw"]
        first = rr.read_config(folder / "first.yaml")
        init = {"from": str(rr.checkpoints(folder / "first")[4]), "optimizer": "keep", "step": 4}
        config = rr.write_config(folder, first["data"]["shards"], "continued", train={"steps": 5}, init=init)
        run("train", config)
        one, = rr.read_records(folder / "continued")
        other = rr.read_records(folder / "first")[-1]
        for key in ("step", "epoch", "loss", "grad_norm", "lr"):
            assert one[key] == other[key], key
        assert load_file(folder / "continued/export/model.safetensors").keys() == load_file(
            folder / "first/export/model.safetensors").keys()
        assert rr.files_of(folder / "continued/export") == rr.files_of(folder / "first/export")


class TestMistakes:
    def refused(self, config, *overrides, names):
        done = run("train", config, *overrides, expect=2)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        for name in names:
            assert name in done.stderr, done.stderr
        assert not config.with_suffix("").exists()

    def test_of_keys_are_named(self, first_phase):
        self.refused(second(first_phase, "a"), "init.optimizer=warm", names=["init.optimizer", "keep", "fresh"])
        self.refused(second(first_phase, "b"), "init.step=4", names=["init.step", "4", "train.steps"])
        config = second(first_phase, "c")
        written = rr.read_config(config)
        del written["init"]["from"], written["init"]["step"]
        config.write_text(json.dumps(written))
        self.refused(config, names=["init.optimizer", "has no effect", "init.from"])

    def test_of_a_folder_without_moments_are_named(self, first_phase):
        folder, _ = first_phase["adamw"]
        self.refused(second(first_phase, "d", init={"from": str(folder / "model")}),
                     names=["init.optimizer", str(folder / "model"), "no checkpoint"])

    def test_of_a_damaged_checkpoint_are_named(self, first_phase, tmp_path):
        folder, _ = first_phase["adamw"]
        copy = rr.restored(rr.checkpoints(folder / "first")[5], tmp_path / "copy")
        rr.flip_bit(copy / "optimizer.safetensors")
        self.refused(second(first_phase, "e", init={"from": str(copy)}), names=["optimizer.safetensors", "damaged"])
