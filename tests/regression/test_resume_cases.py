"""Faults that public bug reports describe in how other trainers save, resume and schedule, on fixture F1's model."""
import math
import os
import random
import re
import subprocess

import numpy as np
import pytest
import resumable_run as rr
from bert_fixture import TEMPO, train, write_model, write_shard
from safetensors.numpy import load_file

TEN_STEPS = {"run": {"checkpoint_every": 1, "keep": 0}}


@pytest.fixture(scope="module", params=["adamw", "lamb"])
def ten_steps(request, tmp_path_factory):
    """A folder with shards and the finished run "reference", which has a checkpoint at each of its 10 steps."""
    folder = tmp_path_factory.mktemp(request.param)
    shards = rr.write_thirteen_rows(folder)
    # It ran under the name "run": there the copies of it are stopped, in the place that they know.
    rr.start(folder, shards, optimizer={"name": request.param}, **TEN_STEPS).rename(folder / "reference")
    return folder


@pytest.fixture
def stopped(ten_steps):
    """stopped(step): the run as it stands when it is killed some time after the checkpoint at `step`."""

    def stop(step):
        directory = rr.restored(ten_steps / "reference", ten_steps / "run")
        rr.stop_after(directory, step)
        return directory

    return stop


@pytest.fixture(scope="module")
def adamw_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    rr.start(folder, rr.write_thirteen_rows(folder), **TEN_STEPS).rename(folder / "reference")
    return folder


class TestExactResume:  # case 9
    @pytest.mark.parametrize("step", [3, 4, 7])
    def test_goes_on_as_if_never_stopped(self, ten_steps, stopped, step):
        directory = stopped(step)
        assert rr.continued_from(rr.resume(directory)) == step
        rr.assert_same_outcome(directory, ten_steps / "reference")

    def test_after_a_kill_between_two_checkpoints_repeats_the_steps_since_the_last(self, ten_steps):
        optimizer = rr.read_config(ten_steps / "run.yaml")["optimizer"]
        shards = sorted(ten_steps.glob("rows_*.hdf5"))
        for attempt in range(20):  # steps take a few milliseconds: the kill may come after the next checkpoint
            name = f"killed_{attempt}"
            config = rr.write_config(ten_steps, shards, name, optimizer=optimizer, run={"checkpoint_every": 4})
            directory = ten_steps / name
            was_at_work = rr.Process("train", config).kill_when(
                lambda: 5 in rr.logged_steps(directory) and rr.newest_complete(directory))
            if was_at_work and rr.newest_complete(directory) == 4:
                break
        assert rr.newest_complete(directory) == 4 and 5 in rr.logged_steps(directory)
        assert rr.continued_from(rr.resume(directory)) == 4
        rr.assert_same_outcome(directory, ten_steps / "reference")

    def test_options_of_the_run_win_over_the_file_that_began_it(self, ten_steps, stopped):
        directory = stopped(4)
        (ten_steps / "run.yaml").rename(ten_steps / "away.yaml")
        try:
            rr.resume(directory)
        finally:
            (ten_steps / "away.yaml").rename(ten_steps / "run.yaml")
        rr.assert_same_outcome(directory, ten_steps / "reference")

    @pytest.mark.parametrize("where", ["in_a_line", "before_a_line", "within_the_last_byte"])
    def test_cuts_what_was_being_written(self, ten_steps, stopped, where):
        directory = stopped(4)
        lines = (directory / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        rest = {"in_a_line": 100, "before_a_line": 0, "within_the_last_byte": len(lines[5]) - 1}[where]
        os.truncate(directory / "metrics.jsonl", sum(map(len, lines[:5])) + rest)
        events, = rr.event_files(directory)
        offsets = rr.event_records(events)  # the first record is the file's version
        rest = {"in_a_line": 9, "before_a_line": 0, "within_the_last_byte": offsets[7] - offsets[6] - 1}[where]
        os.truncate(events, offsets[6] + rest)
        rr.resume(directory)
        rr.assert_same_outcome(directory, ten_steps / "reference")


class TestKilledWhileSaving:  # case 10 a
    def test_every_resume_takes_a_complete_checkpoint_no_older_than_the_last_saved(self, tmp_path):
        kills = int(os.environ.get("TEMPO_KILLS", 8))
        draw = random.Random(int(os.environ.get("TEMPO_SEED", 1)))
        shards = rr.write_thirteen_rows(tmp_path)
        steady = {"schedule": {"name": "constant", "warmup_steps": 0}, "optimizer": {"lr": 1e-4}}
        every_step = {"checkpoint_every": 1, "keep": 2}
        config = rr.write_config(tmp_path, shards, train={"steps": 100000}, run=every_step, **steady)
        directory = tmp_path / "run"
        saved = 0
        for kill in range(kills):
            arguments = ["train", "--resume", directory] if saved else ["train", config, "run.overwrite=true"]
            process = rr.Process(*arguments)
            assert process.kill_after(draw.uniform(0.2, 2)), process.log
            if saved and rr.said_where_it_goes_on(process.log):
                assert rr.continued_from(process.log) == saved, f"kill {kill}"
            newest = rr.newest_complete(directory) if (directory / "checkpoints").exists() else 0
            assert newest >= saved, f"kill {kill}"
            saved = newest
        last = saved + 3
        done = rr.resume(directory, f"train.steps={last}")
        assert rr.continued_from(done) == saved and rr.warnings_of(done) == []
        assert list(rr.checkpoints(directory)) == [last - 1, last]
        reference = rr.start(tmp_path, shards, "reference", train={"steps": last}, **steady)
        rr.assert_same_outcome(directory, reference)


class TestDamagedCheckpoint:  # case 10 b
    @pytest.mark.parametrize("damage", [rr.cut_half, rr.flip_bit])
    @pytest.mark.parametrize("file", rr.CHECKPOINT_FILES)
    def test_is_named_and_the_one_before_it_is_taken(self, adamw_run, file, damage):
        directory = rr.restored(adamw_run / "reference", adamw_run / "run")
        newest = rr.checkpoints(directory)[10]
        tensors = rr.tensor_names(newest / file)
        damage(newest / file)
        done = rr.resume(directory)
        warnings = [line for line in rr.warnings_of(done) if "step-00000010" in line]
        assert len(warnings) == 1, done.stderr
        assert file in warnings[0] or any(tensor in warnings[0] for tensor in tensors), done.stderr
        assert rr.continued_from(done) == 9
        rr.assert_same_outcome(directory, adamw_run / "reference")

    @pytest.mark.parametrize("file", rr.CHECKPOINT_FILES)
    def test_is_one_that_lacks_a_file(self, adamw_run, file):
        directory = rr.restored(adamw_run / "reference", adamw_run / "run")
        (rr.checkpoints(directory)[10] / file).unlink()
        done = rr.resume(directory)
        assert any("step-00000010" in line and file in line for line in rr.warnings_of(done)), done.stderr
        assert rr.continued_from(done) == 9
        rr.assert_same_outcome(directory, adamw_run / "reference")

    def test_several_are_each_named_until_an_intact_one(self, adamw_run):
        directory = rr.restored(adamw_run / "reference", adamw_run / "run")
        for step in (6, 8, 9, 10):
            rr.flip_bit(rr.checkpoints(directory)[step] / "optimizer.safetensors")
        done = rr.resume(directory)
        for step in (8, 9, 10):
            assert any(f"step-{step:08}" in line for line in rr.warnings_of(done)), done.stderr
        assert rr.continued_from(done) == 7
        rr.assert_same_outcome(directory, adamw_run / "reference")

    def test_if_none_is_intact_nothing_starts_and_nothing_changes(self, adamw_run):
        directory = rr.restored(adamw_run / "reference", adamw_run / "run")
        rr.stop_after(directory, 3)
        for folder in rr.checkpoints(directory).values():
            rr.cut_half(folder / "model.safetensors")
        before = rr.files_of(directory)
        done = rr.resume(directory, expect=2)
        for step in (1, 2, 3):
            assert f"step-{step:08}" in done.stderr
        assert " error " in done.stderr.splitlines()[-1]
        after = rr.files_of(directory)
        assert {name for name in before | after if before.get(name) != after.get(name)} <= {"log/rank-0.log"}


class TestDiskFull:  # case 10 c
    @pytest.mark.parametrize("kilobytes", [8, 20])  # less than the weights; less than the moments
    def test_while_saving_is_an_error_that_costs_no_checkpoint(self, adamw_run, kilobytes):
        directory = rr.restored(adamw_run / "reference", adamw_run / "run")
        rr.stop_after(directory, 4)
        before = {step: rr.files_of(folder) for step, folder in rr.checkpoints(directory).items()}
        assert len(before[4]["model.safetensors"]) < 20 * 1024 < len(before[4]["optimizer.safetensors"])
        done = self.resume_with_limit(directory, kilobytes)
        assert done.returncode == 1, done.stderr
        assert re.search(r" error .*step-00000005.*File too large", done.stderr.splitlines()[-1]), done.stderr
        assert {step: rr.files_of(folder) for step, folder in rr.checkpoints(directory).items()} == before
        assert rr.hidden_leftovers(directory) == []
        assert rr.continued_from(rr.resume(directory)) == 4
        rr.assert_same_outcome(directory, adamw_run / "reference")

    def resume_with_limit(self, directory, kilobytes):
        command = f"trap '' XFSZ; ulimit -f {kilobytes}; exec {TEMPO} train --resume {directory}"
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)

    def test_before_the_first_checkpoint_leaves_none(self, adamw_run):
        config = rr.write_config(adamw_run, sorted(adamw_run.glob("rows_*.hdf5")), "full", run={"checkpoint_every": 2})
        command = f"trap '' XFSZ; ulimit -f 8; exec {TEMPO} train {config}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 1 and "step-00000002" in done.stderr.splitlines()[-1], done.stderr
        assert "no checkpoint" in rr.resume(adamw_run / "full", expect=2).stderr


PEAK = 1e-3


def documented_lr(name, n, warmup, steps):
    """train/schedule.h's formulas with a floor of 0."""
    if n <= warmup:
        return PEAK * n / warmup
    if name == "constant":
        return PEAK
    n -= warmup == 0  # without a warm-up the first step stands where a warm-up would have ended
    if name == "linear":
        return PEAK * (steps - n) / (steps - warmup)
    if name == "poly":
        return PEAK * math.sqrt(1 - n / steps)
    return PEAK * (1 + math.cos(math.pi * (n - warmup) / (steps - warmup))) / 2


@pytest.fixture(scope="module")
def f1(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schedule")
    write_model(folder / "model")
    write_shard(folder / "f1.hdf5")
    return folder


class TestSchedule:  # case 11
    # The case's decay is 1; with 50 the float32 rounding of the weights is far below the tolerance.
    DECAY = 50.0

    def train(self, f1, folder, steps, **schedule):
        return train(folder, f1 / "model", [f1 / "f1.hdf5"], train={"steps": steps, "threads": 1},
                     optimizer={"lr": PEAK, "weight_decay": self.DECAY}, schedule=schedule,
                     run={"checkpoint_every": 1, "keep": 0, "export": False})

    def applied(self, f1, directory):
        """The rate of each step, read off position rows that are never used: they only decay."""
        tables = [load_file(folder / "model.safetensors")["bert.embeddings.position_embeddings.weight"]
                  for folder in [f1 / "model", *rr.checkpoints(directory).values()]]
        unused = [table[10:].astype(np.float64) for table in tables]
        return [np.mean(1 - after / before) / self.DECAY for before, after in zip(unused, unused[1:])]

    @pytest.mark.parametrize("name, warmup, steps", [
        ("constant", 4, 10), ("constant", 0, 10),
        *[(name, *plan) for name in ("linear", "poly", "cosine") for plan in ((4, 10), (0, 10), (1, 10), (0.1, 15))],
        ("linear", 10, 10), ("cosine", 10, 10)])
    def test_follows_the_documented_formula_and_is_logged_as_applied(self, f1, tmp_path, name, warmup, steps):
        share = {"warmup_ratio": warmup} if steps == 15 else {"warmup_steps": warmup}
        warmup = 1.5 if steps == 15 else warmup
        trained = self.train(f1, tmp_path, steps, name=name, **share)
        logged = [record["lr"] for record in trained.records]
        expected = [documented_lr(name, n, warmup, steps) for n in range(1, steps + 1)]
        assert logged == pytest.approx(expected, rel=1e-12, abs=1e-18)
        assert self.applied(f1, trained.folder) == pytest.approx(logged, rel=1e-5, abs=1e-9)
        assert all(0 <= lr <= PEAK for lr in logged) and (logged[0] == 0) + (logged[-1] == 0) <= 1
        if name != "constant":
            assert logged.count(PEAK) == (0 if warmup == 1.5 else 1)

    def test_with_warmup_4_of_10_rises_and_falls_in_equal_steps(self, f1, tmp_path):
        logged = [record["lr"] for record in self.train(f1, tmp_path, 10, name="linear", warmup_steps=4).records]
        assert max(logged) == PEAK == logged[3]
        assert np.diff([0, *logged[:4]]) == pytest.approx(2.5e-4, rel=1e-9)
        assert np.diff(logged[3:]) == pytest.approx(-PEAK / 6, rel=1e-9)

    @pytest.mark.parametrize("name", ["linear", "poly", "cosine"])
    def test_without_warmup_starts_at_the_peak_and_would_reach_0_after_the_end(self, f1, tmp_path, name):
        logged = [record["lr"] for record in self.train(f1, tmp_path, 10, name=name).records]
        assert logged[0] == PEAK and logged[-1] > 0 and np.all(np.diff(logged) < 0)
        if name == "linear":
            assert np.diff(logged) == pytest.approx(-PEAK / 10, rel=1e-9)

    @pytest.mark.parametrize("name", ["linear", "cosine"])
    def test_goes_on_at_the_next_step_after_a_resume(self, f1, tmp_path, name):
        trained = self.train(f1, tmp_path, 10, name=name, warmup_steps=4)
        rr.stop_after(trained.folder, 5)
        rr.resume(trained.folder)
        logged = [record["lr"] for record in rr.read_records(trained.folder)]
        assert logged == [record["lr"] for record in trained.records]
        applied = self.applied(f1, trained.folder)
        assert applied[5] == pytest.approx(documented_lr(name, 6, 4, 10), rel=1e-5)
        assert applied == pytest.approx(logged, rel=1e-5, abs=1e-9)

    def test_past_the_planned_end_is_that_of_the_longer_plan(self, f1, tmp_path):
        trained = self.train(f1, tmp_path, 10, name="linear", warmup_steps=4)
        rr.resume(trained.folder, "train.steps=13")
        logged = [record["lr"] for record in rr.read_records(trained.folder)]
        assert logged[:10] == [record["lr"] for record in trained.records]
        expected = [documented_lr("linear", n, 4, 13) for n in (11, 12, 13)]
        assert logged[10:] == pytest.approx(expected, rel=1e-12, abs=1e-18)
        assert self.applied(f1, trained.folder) == pytest.approx(logged, rel=1e-5, abs=1e-9)
