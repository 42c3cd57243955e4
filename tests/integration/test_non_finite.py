"""Steps whose loss or gradients are not finite: skipped, counted, told, and after too many in a row the end."""
import json

import numpy as np
import pytest
import resumable_run as rr
from bert_fixture import run, weights, write_model

BAD_LABEL = 9


@pytest.fixture
def poisoned(tmp_path):
    """Shards for a model that cannot predict one word: its bias is minus infinity, and so the loss of its labels infinite."""
    shards = rr.write_thirteen_rows(tmp_path)
    tensors = weights()
    tensors["cls.predictions.bias"][BAD_LABEL] = -np.inf
    write_model(tmp_path / "model", tensors)
    rows = [(*row[:4], [5 if label == BAD_LABEL else label for label in row[4]], row[5]) for row in rr.different_rows(13)]
    rows[6][4][0] = BAD_LABEL  # one example of an epoch
    for path, part in zip(shards, (rows[:5], rows[5:9], rows[9:])):
        rr.write_shard(path, part)
    return tmp_path, shards


OPTIONS = {"train": {"steps": 10}, "run": {"checkpoint_every": 1, "keep": 0}, "schedule": {"name": "constant", "warmup_steps": 0}}


class TestSkippedStep:
    def test_changes_nothing_and_is_counted_and_told(self, poisoned):
        folder, shards = poisoned
        done = run("train", rr.write_config(folder, shards, **OPTIONS))
        records = rr.read_records(folder / "run")
        skipped = [record["step"] for record in records if record["loss"] is None]
        assert 2 <= len(skipped) <= 3, "an epoch is 4 steps, and one of each is bad"
        states = rr.checkpoints(folder / "run")
        before = None
        for step, directory in states.items():
            files = rr.files_of(directory)
            state = json.loads(files["state.json"])
            so_far = sum(bad <= step for bad in skipped)
            assert (state["optimizer_updates"], state["skipped_steps"]) == (step - so_far, so_far)
            assert records[step - 1]["skipped_steps"] == so_far and records[step - 1]["sequences"] == state["sequences"]
            if step > 1:
                is_same = [files[name] == before[name] for name in ("model.safetensors", "optimizer.safetensors")]
                assert is_same == [step in skipped] * 2, step
            before = files
        told = [line for line in rr.warnings_of(done) if "is skipped: the loss is inf, the gradient norm " in line]
        assert [f"step {step} is" in line for step, line in zip(skipped, told)] == [True] * len(skipped) == [True] * len(told)
        events = rr.event_scalars(folder / "run")["train/skipped_steps"]
        assert [value for _, value in events] == [record["skipped_steps"] for record in records]

    @pytest.mark.parametrize("step", [3, 6])
    def test_is_skipped_again_by_a_run_that_goes_on(self, poisoned, step):
        folder, shards = poisoned
        rr.start(folder, shards, **OPTIONS).rename(folder / "reference")
        directory = rr.restored(folder / "reference", folder / "run")
        rr.stop_after(directory, step)
        rr.resume(directory)
        rr.assert_same_outcome(directory, folder / "reference")


class TestTooManySkippedSteps:
    def bad_rows(self, folder, shards):
        rows = rr.different_rows(13)
        for row in rows:
            row[4][0] = BAD_LABEL
        for path, part in zip(shards, (rows[:5], rows[5:9], rows[9:])):
            rr.write_shard(path, part)

    @pytest.mark.parametrize("allowed", [0, 2])
    def test_end_the_run_with_what_it_had_learned_saved(self, poisoned, allowed):
        folder, shards = poisoned
        self.bad_rows(folder, shards)
        config = rr.write_config(folder, shards, train={"steps": 10, "max_skipped_steps": allowed})
        done = run("train", config, expect=1)
        last = done.stderr.splitlines()[-1]
        assert f"step {allowed + 1}: {allowed + 1} steps in a row were skipped" in last and " error " in last
        assert "train.max_skipped_steps" in last and "the weights cls.predictions.bias are not finite" in last
        assert list(rr.checkpoints(folder / "run")) == [allowed + 1]
        # Who goes on may skip as many again.
        again = rr.resume(folder / "run", expect=1).stderr.splitlines()[-1]
        assert f"step {2 * allowed + 2}: {allowed + 1} steps in a row" in again

    def test_name_the_weights_that_have_the_fault(self, poisoned):
        folder, shards = poisoned
        tensors = weights()
        tensors["bert.encoder.layer.1.output.dense.weight"][3, 2] = np.nan
        write_model(folder / "model", tensors)
        done = run("train", rr.write_config(folder, shards), "train.max_skipped_steps=1", expect=1)
        assert "the weights bert.encoder.layer.1.output.dense.weight are not finite" in done.stderr.splitlines()[-1]

    def test_name_the_gradient_where_the_weights_are_whole(self, poisoned):
        folder, shards = poisoned
        tensors = weights()
        tensors["cls.seq_relationship.weight"] = np.sign(tensors["cls.seq_relationship.weight"]) * np.float32(3e38)
        write_model(folder / "model", tensors)
        done = run("train", rr.write_config(folder, shards), "train.max_skipped_steps=1", expect=1)
        assert "the gradient of bert." in done.stderr.splitlines()[-1]

    def test_in_a_row_are_counted_across_a_resume(self, poisoned):
        folder, shards = poisoned
        self.bad_rows(folder, shards)
        config = rr.write_config(folder, shards, train={"steps": 2, "max_skipped_steps": 3},
                                 schedule={"name": "constant", "warmup_steps": 0})
        run("train", config)
        done = rr.resume(folder / "run", "train.steps=10", expect=1)
        assert "step 4: 4 steps in a row were skipped" in done.stderr.splitlines()[-1]
