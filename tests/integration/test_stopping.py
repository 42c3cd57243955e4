"""Commands that are asked to end, by signals and by `tempo ctl`: they end well, and what they were at is not lost.

TEMPO_STOPS: how many random instants (12); TEMPO_SEED: which.
"""
import os
import random
import re
import shutil
import signal
import time

import prepared_shards as ps
import pytest
import resumable_run as rr
from bert_fixture import run

STOPS = int(os.environ.get("TEMPO_STOPS", 12))
SEED = int(os.environ.get("TEMPO_SEED", 1))
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]


def listens(process):
    """Whether the program has taken the signals: before that it is still being loaded and does nothing."""
    try:
        status = open(f"/proc/{process.process.pid}/status").read()
    except FileNotFoundError:
        return False
    caught = re.search(r"SigCgt:\s*(\w+)", status)
    return bool(caught) and int(caught.group(1), 16) >> (signal.SIGTERM - 1) & 1 == 1


def stop_at(seconds, number, *arguments):
    """Sends a signal so long after the program has begun to listen. Returns the process and whether it was in time."""
    process = rr.Process(*arguments)
    process.wait_for(lambda: listens(process))
    try:
        process.process.wait(timeout=seconds)
    except Exception:
        pass
    in_time = process.process.poll() is None
    process.process.send_signal(number)
    process.log = process.process.communicate(timeout=120)[1]
    return process, in_time


PHASES = {"before the first step": r"stopped after step 0 ", "while training": r"stopped after step \d*[1-9]\d* ",
          "while exporting": r"exported to"}


class TestRandomInstants:
    OPTIONS = {"train": {"steps": 40, "evaluate_every": 8}, "run": {"checkpoint_every": 3, "keep": 2, "log_every": 3}}

    @pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
    def test_of_training_leave_a_run_that_goes_on(self, tmp_path, optimizer):
        """Over all phases: reading and checking the shards, steps, evaluations, saves, the export; in resumed runs too."""
        draw = random.Random(f"{SEED} {optimizer}")
        shards = rr.write_thirteen_rows(tmp_path)
        rr.write_shard(tmp_path / "held.hdf5", rr.different_rows(400, seed=1))
        options = {**self.OPTIONS, "data": {"validation": [str(tmp_path / "held.hdf5")]}, "optimizer": {"name": optimizer}}
        begin = time.monotonic()
        rr.start(tmp_path, shards, "reference", **options)
        seconds = time.monotonic() - begin
        stops = trial = 0
        found = dict.fromkeys(PHASES, 0)
        while stops < STOPS // 2:
            config = rr.write_config(tmp_path, shards, f"trial_{trial}", **options)
            directory = tmp_path / f"trial_{trial}"
            arguments = ["train", config]
            while stops < STOPS // 2:
                window = draw.choice((0.02, 0.8 * seconds))  # loading is short
                process, in_time = stop_at(draw.uniform(0, window), draw.choice(SIGNALS), *arguments)
                if not in_time:
                    break
                assert process.process.returncode == 0, process.log
                stops += 1
                for phase, pattern in PHASES.items():
                    found[phase] += bool(re.search(pattern, process.log))
                assert rr.hidden_leftovers(directory) == [] and rr.newest_complete(directory) == max(
                    [0, *rr.checkpoints(directory)])
                arguments = ["train", "--resume", directory]
            rr.resume_until_finished(directory)
            rr.assert_same_outcome(directory, tmp_path / "reference")
            shutil.rmtree(directory)
            trial += 1
        print(found)
        assert found["while training"] >= stops // 4, found

    def test_of_preparing_leave_nothing_and_the_same_command_starts_over(self, tmp_path):
        draw = random.Random(SEED)
        words = [f"word{k}" for k in range(50)]
        ps.write_vocabulary(tmp_path / "vocab.txt", words)
        lines = [" ".join(draw.choices(words, k=12)) for _ in range(20000)]
        (tmp_path / "corpus.txt").write_text("\n".join(line + ("\n" if k % 20 == 0 else "") for k, line in enumerate(lines)))
        begin = time.monotonic()
        ps.prepare(tmp_path, 64, duplicates=40)
        seconds = time.monotonic() - begin
        expected = rr.files_of(tmp_path / "shards")
        shutil.rmtree(tmp_path / "shards")
        before = rr.files_of(tmp_path)
        stopped = 0
        for _ in range(STOPS // 2):
            process, in_time = stop_at(draw.uniform(0, seconds), draw.choice(SIGNALS), "prepare", tmp_path / "prepare.yaml")
            assert process.process.returncode == 0, process.log
            if "stopped by SIG" in process.log:
                stopped += 1
                assert rr.files_of(tmp_path) == before and not (tmp_path / "shards").exists()
            else:
                assert rr.files_of(tmp_path / "shards") == expected
                shutil.rmtree(tmp_path / "shards")
        assert stopped > 0
        run("prepare", tmp_path / "prepare.yaml")
        assert rr.files_of(tmp_path / "shards") == expected


@pytest.fixture(scope="module")
def evaluating(tmp_path_factory):
    """A run "reference" of 6 steps whose evaluations, at 4 and 6, take much longer than its steps, and its options."""
    folder = tmp_path_factory.mktemp("evaluating")
    shards = rr.write_thirteen_rows(folder)
    rr.write_shard(folder / "held.hdf5", rr.different_rows(6000, seed=1))
    options = {"data": {"validation": [str(folder / "held.hdf5")]}, "train": {"steps": 6, "evaluate_every": 4}}
    rr.start(folder, shards, "reference", **options)
    return folder, shards, options


class TestEvaluation:
    @pytest.mark.parametrize("step", [4, 6])
    @pytest.mark.parametrize("is_exported", [True, False])
    def test_is_cut_off_and_held_when_the_run_goes_on(self, evaluating, step, is_exported):
        folder, shards, options = evaluating
        name = f"stopped_{step}_{is_exported}"
        options = {**options, "run": {"export": is_exported}}
        directory = folder / name
        process = rr.Process("train", rr.write_config(folder, shards, name, **options))
        # The train line of a step follows its evaluation: one of the step before is the last sign.
        process.wait_for(lambda: step - 1 in rr.logged_steps(directory))
        time.sleep(0.1)
        begin = time.monotonic()
        assert process.stop_when(lambda: True, signal.SIGTERM) == 0
        assert time.monotonic() - begin < rr.read_records(folder / "reference")[-2]["seconds"]
        assert f"stopped after step {step} by SIGTERM" in process.log
        assert step not in rr.logged_steps(directory, "validation") and step in rr.logged_steps(directory)
        rr.resume(directory)
        assert "finished" in rr.resume(directory).stderr
        if is_exported:
            return rr.assert_same_outcome(directory, folder / "reference")
        assert rr.unmeasured(rr.read_records(directory)) == rr.unmeasured(rr.read_records(folder / "reference"))
        rr.assert_events_repeat_metrics(directory)


class TestSecondSignal:
    def test_ends_the_program_at_once(self, evaluating):
        folder, shards, _ = evaluating
        config = rr.write_config(folder, shards, "second", train={"steps": 10, "global_batch": 200000, "micro_batch": 2})
        (folder / "many.hdf5").exists() or rr.write_shard(folder / "many.hdf5", rr.different_rows(20000))
        process = rr.Process("train", config, f"data.shards={folder / 'many.hdf5'}")
        process.wait_for(lambda: (folder / "second/metrics.jsonl").exists())
        time.sleep(0.2)
        process.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.process.poll() is None, "the step had to be longer"
        assert process.stop_when(lambda: True, signal.SIGTERM, timeout=5) == -signal.SIGTERM


class TestCtl:
    @pytest.fixture
    def at_work(self, evaluating, request):
        folder, shards, _ = evaluating
        directory = folder / f"ctl_{request.node.name}"
        config = rr.write_config(folder, shards, directory.name, train={"steps": 100000},
                                 schedule={"name": "constant", "warmup_steps": 0}, optimizer={"lr": 1e-4})
        process = rr.Process("train", config)
        process.wait_for(lambda: 3 in rr.logged_steps(directory))
        yield directory, process
        if process.process.poll() is None:
            process.kill()

    def test_save_makes_a_checkpoint_while_the_run_goes_on(self, at_work):
        directory, process = at_work
        for count in (1, 2):
            done = run("ctl", directory, "save")
            assert f"{directory} is asked to save after the step at hand\n" == done.stdout
            process.wait_for(lambda: len(rr.checkpoints(directory)) == count)
        newest = max(rr.checkpoints(directory))
        process.wait_for(lambda: rr.logged_steps(directory)[-1] > newest + 1)
        assert process.process.poll() is None
        assert process.kill() and not (directory / ".request").exists()
        assert rr.continued_from(rr.resume(directory, f"train.steps={newest + 1}")) == newest

    def test_stop_ends_it_as_a_signal_does(self, at_work, evaluating):
        directory, process = at_work
        run("ctl", directory, "stop")
        assert process.process.wait(timeout=30) == 0
        step = max(rr.checkpoints(directory))
        assert rr.logged_steps(directory)[-1] == step and f"stopped after step {step} by tempo ctl" in (
            directory / "log/rank-0.log").read_text()
        assert "no tempo train works on this run" in run("ctl", directory, "stop", expect=2).stderr

    def test_refuses_what_is_no_run_and_what_is_no_request(self, tmp_path, at_work):
        directory, _ = at_work
        assert "is no folder of a run" in run("ctl", tmp_path / "gone", "save", expect=2).stderr
        assert "no tempo train works on this run" in run("ctl", tmp_path, "save", expect=2).stderr
        assert "pause" in run("ctl", directory, "pause", expect=2).stderr
        assert rr.hidden_leftovers(directory) == []
