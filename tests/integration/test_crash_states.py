"""Power losses at every moment of a run: no saved checkpoint is lost, and the run goes on as if nothing had been.

TEMPO_CRASH_RESUMES: on how many of the states that they leave a run really goes on (25; all); TEMPO_SEED: on which.
"""
import os
import random
import re
import shutil
import subprocess

import pytest
import resumable_run as rr
from bert_fixture import TEMPO, run
from crash_states import crash_states, read_folder, read_tree, seen_tree, write_tree
from recorded_calls import run_watched

SEED = int(os.environ.get("TEMPO_SEED", 1))
RESUMES = os.environ.get("TEMPO_CRASH_RESUMES", "25")
CHECKPOINTS = "run/checkpoints"


class Recorded:
    """One start of the program on what a folder holds, and what power losses at each moment of it leave there."""

    def __init__(self, disk, *arguments):
        self.disk, self.arguments = disk, arguments
        before = read_folder(disk)
        done, self.calls = run_watched(disk, *arguments)
        assert done.returncode == 0, done.stderr
        self.states = list(crash_states(before, self.calls, random.Random(SEED)))
        assert seen_tree(before) == read_tree(disk), "the record lacks a call"

    def distinct(self):
        return list({state.fingerprint(): state for state in self.states}.values())

    def sample(self, share=1):
        """Distinct states, drawn evenly over the kinds of the last call before the power loss."""
        if RESUMES == "all":
            return self.distinct()
        after = {}
        for state in self.distinct():
            after.setdefault(self.calls[state.calls - 1].name if state.calls else "nothing", []).append(state)
        draw, kinds = random.Random(SEED), list(after.values())
        return [draw.choice(kinds[number % len(kinds)]) for number in range(int(int(RESUMES) * share))]

    def newest_checkpoints(self, folder):
        """Per state: the step of the checkpoint that a resume takes; 0: none."""
        trees = [{path[len(CHECKPOINTS) + 1:]: content for path, content in state.tree.items()
                  if path.startswith(CHECKPOINTS + "/")} for state in self.states]
        keys = [frozenset((path, hash(content)) for path, content in tree.items()) for tree in trees]
        distinct, written = dict(zip(keys, trees)), {}
        folders = [write_tree(tree, folder / str(number), written) for number, tree in enumerate(distinct.values())]
        done = subprocess.run([rr.CHECKPOINT_PROBE, "--newest", *folders], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        shutil.rmtree(folder)
        newest = dict(zip(distinct, (int(line.split()[-1].replace("none", "0")) for line in done.stdout.splitlines())))
        return [newest[key] for key in keys]

    def saved(self, before):
        """Per number of calls: the newest checkpoint that is on the disk for good, and the newest that has its name."""
        steps = [(before, before)]
        for call in self.calls:
            on_disk, named = steps[-1]
            renamed = re.fullmatch(CHECKPOINTS + r"/step-(\d+)", call.target)
            if call.name == "fsync" and call.path == CHECKPOINTS:
                on_disk = named
            steps.append((on_disk, int(renamed[1]) if renamed else named))
        return steps

    def assert_keeps_what_was_saved(self, before, folder):
        saved = self.saved(before)
        assert saved[-1][0] > before
        lost = [f"{newest}, not one of {saved[state.calls]}, {self.moment(state)}"
                for state, newest in zip(self.states, self.newest_checkpoints(folder))
                if newest not in saved[state.calls]]
        assert lost == [], f"{len(lost)} of {len(self.states)} states"

    def moment(self, state):
        last = self.calls[state.calls - 1] if state.calls else None
        return f"{state.kind} after {state.calls} calls" + (f": {last.name} {last.path} {last.target}" if last else "")

    def assert_each_passes(self, states, check):
        """`check` is called with what each of the states left in place."""
        failures = []
        for state in states:
            shutil.rmtree(self.disk)
            write_tree(state.tree, self.disk)
            try:
                check(self.disk / "run")
            except Exception as error:  # what cannot be read is as bad as what is not equal
                failures.append(f"{self.moment(state)}\n  {repr(error):.400}")
        assert not failures, f"{len(failures)} of {len(states)} states:\n" + "\n".join(failures)


def config(folder, name="run", **sections):
    shards = sorted(folder.glob("rows_*.hdf5"))
    steady, options = {"name": "constant", "warmup_steps": 0}, {"checkpoint_every": 1, "keep": 0}
    options["dir"] = str(folder / "disk/run")
    return rr.write_config(folder, shards, name, schedule=steady, run=options, **sections)


def train_aside(folder, name, **sections):
    """Trains in place and moves the run away: to FOLDER/NAME."""
    run("train", config(folder, name, **sections))
    (folder / "disk/run").rename(folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the finished runs `five` and `four`, of so many steps, and `other`, of 2 from another seed."""
    folder = tmp_path_factory.mktemp("power").resolve()
    rr.write_thirteen_rows(folder)
    (folder / "disk").mkdir()
    train_aside(folder, "five", train={"steps": 5})
    train_aside(folder, "four", train={"steps": 4})
    train_aside(folder, "other", train={"steps": 2, "seed": 8})
    return folder


@pytest.fixture(scope="module")
def resumed(folder):
    """Of four steps, whose last checkpoints are lost, on to five: it cuts back, replaces a checkpoint and an export."""
    directory = rr.restored(folder / "four", folder / "disk/run")
    shutil.rmtree(rr.checkpoints(directory)[3])
    rr.cut_half(rr.checkpoints(directory)[4] / "state.json")
    return Recorded(folder / "disk", "train", "--resume", directory, "train.steps=5", "run.keep=1")


class TestPowerLossInAResumedRun:
    def test_costs_no_saved_checkpoint(self, resumed, tmp_path):
        assert len(resumed.distinct()) >= 500
        resumed.assert_keeps_what_was_saved(2, tmp_path / "states")

    def test_leaves_a_run_that_goes_on_as_if_left_alone(self, resumed, folder):
        def check(directory):
            run(*resumed.arguments)
            rr.assert_same_outcome(directory, folder / "five")

        resumed.assert_each_passes(resumed.sample(), check)


@pytest.fixture(scope="module")
def begun(folder):
    shutil.rmtree(folder / "disk/run", ignore_errors=True)
    return Recorded(folder / "disk", "train", config(folder, train={"steps": 2, "seed": 8}), "run.overwrite=true")


@pytest.fixture(scope="module")
def overwritten(folder):
    rr.restored(folder / "four", folder / "disk/run")
    return Recorded(folder / "disk", "train", config(folder, train={"steps": 2, "seed": 8}), "run.overwrite=true")


def goes_on_or_is_refused(directory, *references):
    """A resumed run must become one of the references."""
    done = subprocess.run([TEMPO, "train", "--resume", directory], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 2), done.stderr
    if done.returncode == 2:
        error = done.stderr.splitlines()[-1]
        assert " error " in error and str(directory) in error, done.stderr
    else:
        ends = {rr.newest_complete(reference): reference for reference in references}
        rr.assert_same_outcome(directory, ends[rr.newest_complete(directory)])


class TestPowerLossInANewRun:
    def test_costs_no_saved_checkpoint(self, begun, tmp_path):
        begun.assert_keeps_what_was_saved(0, tmp_path / "states")

    def test_leaves_one_that_goes_on_or_is_refused_and_can_begin_again(self, begun, folder):
        def check(directory):
            goes_on_or_is_refused(directory, folder / "other")
            run(*begun.arguments)
            rr.assert_same_outcome(directory, folder / "other")

        begun.assert_each_passes(begun.sample(0.5), check)


class TestPowerLossInARunThatReplacesAnother:
    def test_leaves_either_of_them_or_none_and_it_can_begin_again(self, overwritten, folder):
        def check(directory):
            goes_on_or_is_refused(directory, folder / "four", folder / "other")
            run(*overwritten.arguments)
            rr.assert_same_outcome(directory, folder / "other")

        overwritten.assert_each_passes(overwritten.sample(0.5), check)
