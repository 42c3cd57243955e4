"""Disks that are full or broken: whichever call on the files of a run fails, it is told and costs no checkpoint.

TEMPO_FAULTS=all: each call fails in turn, not a choice of those that are alike, and each run that one ended is resumed.
"""
import errno
import os
import re
import shutil

import pytest
import resumable_run as rr
from crash_states import read_tree
from recorded_calls import run_watched

ALL = os.environ.get("TEMPO_FAULTS") == "all"
ERRORS = errno.ENOSPC, errno.EIO
OPTIONS = {"train": {"steps": 4}, "schedule": {"name": "constant", "warmup_steps": 0}}
ARGUMENTS = "train.steps=4", "run.keep=1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the finished run `reference` of 4 steps, and `stopped`: the same, killed after the checkpoint at 2."""
    folder = tmp_path_factory.mktemp("faults").resolve()
    shards = rr.write_thirteen_rows(folder)
    rr.start(folder, shards, run={"checkpoint_every": 1, "keep": 0}, **OPTIONS).rename(folder / "reference")
    rr.stop_after(rr.restored(folder / "reference", folder / "stopped"), 2)
    return folder


def settled(path):
    """The path that a file has once it is no longer written aside."""
    return re.sub(r"\.([^/]+)\.writing-\d+", r"\1", path)


class Faults:
    """Runs that go on from the checkpoint at 2 to 4; in each a call on `watched` fails that is not on `but`."""

    def __init__(self, folder, watched="", but=None):
        self.folder, self.directory = folder, folder / "run"
        self.watched, self.but = self.directory / watched, self.directory / but if but else ""
        self.resumed = set()
        done, self.calls = self.go_on()
        assert done.returncode == 0, done.stderr

    def go_on(self, fail=""):
        rr.restored(self.folder / "stopped", self.directory)
        return run_watched(self.watched, "train", "--resume", self.directory, *ARGUMENTS, fail=fail, leave_out=self.but)

    def numbered(self):
        """(N, call): the call is the N-th of its name."""
        counts, numbered = {}, []
        for call in self.calls:
            counts[call.name] = counts.get(call.name, 0) + 1
            numbered.append((counts[call.name], call))
        return numbered

    def let_fail(self, name, number):
        """Returns the finished process, its calls and the one that failed, with each of ERRORS in turn; or None."""
        done, calls = self.go_on(f"{name}:{number}:{ERRORS[number % 2]}")
        return done, calls, next((call for call in calls if call.is_injected), None)

    def assert_told(self, done, failed):
        """Returns the line that tells it; none where reading the names in a folder, to tidy up, was done without."""
        if done.returncode == 0 and failed.name == "open" and failed.number & os.O_DIRECTORY:
            return None
        error = done.stderr.splitlines()[-1]
        assert done.returncode == 1 and " error " in error, f"exit {done.returncode}: {error}"
        assert str(self.watched) in error, error
        return error

    def keep_aside(self, place):
        """Moves the run away unless its checkpoints are as those of one that is resumed; returns whether it did."""
        tree = read_tree(self.directory / "checkpoints")
        key = frozenset((settled(path), content) for path, content in tree.items())
        is_new = ALL or key not in self.resumed
        if is_new:
            self.resumed.add(key)
            self.directory.rename(place)
        return is_new

    def assert_goes_on(self, directory):
        rr.resume(directory, *ARGUMENTS)
        rr.assert_same_outcome(directory, self.folder / "reference")
        shutil.rmtree(directory)


def collect_failures(calls, check):
    """Calls check(N, call) for each; tells all that fail, not only the first."""
    failures = []
    for number, call in calls:
        try:
            check(number, call)
        except AssertionError as error:
            failures.append(f"{call.name} {number}, {settled(call.path) or 'the folder'}: {error}")
    assert not failures, f"{len(failures)} of {len(calls)} calls:\n" + "\n".join(failures)


def saved_steps(calls):
    renamed = [re.fullmatch(r"step-(\d+)", call.target) for call in calls if call.name == "rename" and not call.error]
    return [int(match[1]) for match in renamed if match]


def assert_has_checkpoints(newest):
    """newest: {directory: step}. That checkpoint is intact, none is newer, and of others nothing is there by halves."""
    found = [folder for directory in newest for folder in rr.checkpoints(directory).values()]
    verdicts = dict(zip(found, rr.probe_checkpoints(*found)))
    for directory, step in newest.items():
        steps = rr.checkpoints(directory)
        assert max(steps) == step and verdicts[steps[step]] == f"intact {step}", steps
        for folder in steps.values():
            assert verdicts[folder].startswith("intact") or not (folder / "COMPLETE").exists(), verdicts[folder]


@pytest.fixture(scope="module")
def saves(folder):
    return Faults(folder, "checkpoints")


class TestFailureWhileSaving:
    @pytest.mark.parametrize("name", ["write", "fsync", "rename", "mkdir", "open", "unlink"])
    def test_is_told_and_costs_no_checkpoint(self, saves, name, tmp_path):
        newest = {}

        def check(number, call):
            done, calls, failed = saves.let_fail(name, number)
            assert failed is not None
            told = saves.assert_told(done, failed)
            if told is None:
                rr.assert_same_outcome(saves.directory, saves.folder / "reference")
                return
            assert os.strerror(failed.error) in told, told
            assert rr.hidden_leftovers(saves.directory) == []
            if saves.keep_aside(tmp_path / str(number)):
                newest[tmp_path / str(number)] = max([2, *saved_steps(calls)])

        collect_failures(self.choice(saves, name), check)
        assert_has_checkpoints(newest)
        for directory in newest:
            saves.assert_goes_on(directory)

    def choice(self, saves, name):
        """The calls of the first save, a third of the second's; of writes the first and the last of each file."""
        calls = saves.numbered()
        second = next(index for index, (_, call) in enumerate(calls) if "step-00000004" in call.path)
        chosen = [one for index, one in enumerate(calls) if ALL or index < second or index % 3 == 0 or name == "mkdir"]
        if name == "write" and not ALL:
            last = {call.path: number for number, call in calls if call.name == name}
            ends = set(last.values())
            begins = {1, *(number + 1 for number in ends)}
            chosen = [(number, call) for number, call in calls if number in ends | begins]
        return [(number, call) for number, call in chosen if call.name == name]


@pytest.fixture(scope="module")
def others(folder):
    return Faults(folder, but="checkpoints")


class TestFailureOnTheOtherFiles:
    def test_is_told_and_the_run_goes_on_from_its_checkpoint(self, others, tmp_path):
        def check(number, call):
            done, _, failed = others.let_fail(call.name, number)
            if failed is None:
                return  # how many lines the log gets depends on the clock
            if done.returncode != 0 or not failed.path.startswith("log/"):
                told = others.assert_told(done, failed)
                assert told is None or os.strerror(failed.error) in told, told
            assert rr.hidden_leftovers(others.directory) == []
            others.assert_goes_on(others.directory)

        collect_failures(self.choice(others), check)

    def choice(self, others):
        """Of the calls that differ in nothing but their data, in turn the first and the last."""
        alike = {}
        for number, call in others.numbered():
            alike.setdefault((call.name, re.sub(r"\d+", "", settled(call.path))), []).append((number, call))
        if ALL:
            return [one for calls in alike.values() for one in calls]
        return [calls[-(index % 2)] for index, calls in enumerate(alike.values())]


class TestShortWrites:
    """Each write writes half of what it is asked to."""

    def test_go_on_until_all_is_written(self, folder):
        shards = sorted(folder.glob("rows_*.hdf5"))
        config = rr.write_config(folder, shards, run={"checkpoint_every": 1}, **OPTIONS)
        shutil.rmtree(folder / "run", ignore_errors=True)
        for arguments in (["train", config], ["train", "--resume", folder / "run", *ARGUMENTS]):
            done, calls = run_watched(folder / "run", *arguments, fail="short:0")
            assert done.returncode == 0, done.stderr
            assert {call.is_injected for call in calls if call.name == "write"} == {True}
            rr.assert_same_outcome(folder / "run", folder / "reference")
            rr.stop_after(folder / "run", 2)
