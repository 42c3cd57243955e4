"""Runs that are killed, damaged and resumed: in the end they are what a run that was left alone is, or a clear error.

TEMPO_KILLS and TEMPO_FLIPS: how often (20 and 200); TEMPO_SEED: which instants and bits.
"""
import os
import random
import shutil
import signal
import time

import pytest
import resumable_run as rr
from bert_fixture import run

KILLS = int(os.environ.get("TEMPO_KILLS", 20))
FLIPS = int(os.environ.get("TEMPO_FLIPS", 200))
SEED = int(os.environ.get("TEMPO_SEED", 1))


RUN_OPTIONS = {"adamw": {"log_every": 1, "keep": 0}, "lamb": {"log_every": 3, "keep": 2}}


def fourteen_steps(folder, optimizer, checkpoint_every):
    return {"train": {"steps": 14, "evaluate_every": 4}, "data": {"validation": [str(folder / "held.hdf5")]},
            "optimizer": {"name": optimizer}, "run": {**RUN_OPTIONS[optimizer], "checkpoint_every": checkpoint_every}}


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory):
    """Per optimizer: a folder with the run "reference" that was left alone, its shards, and how long it took."""
    made = {}
    for optimizer in RUN_OPTIONS:
        folder = tmp_path_factory.mktemp(optimizer)
        shards = rr.write_thirteen_rows(folder)
        begin = time.monotonic()
        rr.start(folder, shards, "reference", **fourteen_steps(folder, optimizer, 1))
        made[optimizer] = folder, shards, time.monotonic() - begin
    return made


class TestKilledAtRandomInstants:
    def test_leave_nothing_that_a_resume_does_not_make_good(self, left_alone):
        draw = random.Random(SEED)
        kills = trial = from_checkpoint = 0
        while kills < KILLS:
            optimizer = ("adamw", "lamb")[trial % 2]
            folder, shards, seconds = left_alone[optimizer]
            name = f"trial_{trial}"
            config = rr.write_config(folder, shards, name, **fourteen_steps(folder, optimizer, 1 + trial % 3))
            directory = folder / name
            arguments = ["train", config, "run.overwrite=true"]
            while kills < KILLS:
                process = rr.Process(*arguments)
                if not process.kill_after(draw.uniform(0.3, 1.0) * seconds):
                    break  # it ended by itself
                kills += 1
                saved = rr.newest_complete(directory)
                if saved:
                    from_checkpoint += 1
                    arguments = ["train", "--resume", directory]
                elif (directory / "config.yaml").exists():
                    assert "no checkpoint" in rr.resume(directory, expect=2).stderr
            rr.resume_until_finished(directory) if rr.newest_complete(directory) else run(*arguments)
            rr.assert_same_outcome(directory, folder / "reference")
            shutil.rmtree(directory)
            trial += 1
        assert from_checkpoint >= kills // 4, "the kills came too early to show anything"


class TestFlippedBits:
    def test_in_a_checkpoint_are_each_found_and_the_intact_one_is_taken(self, tmp_path):
        """One run with many checkpoints, all but the first with one bit flipped: one resume meets every one."""
        shards = rr.write_thirteen_rows(tmp_path)
        write_tokenizer(tmp_path / "model")
        directory = rr.start(tmp_path, shards, train={"steps": FLIPS + 1}, optimizer={"lr": 1e-4},
                             schedule={"name": "constant", "warmup_steps": 0}, run={"checkpoint_every": 1, "keep": 0})
        shutil.copytree(directory, tmp_path / "reference")
        draw = random.Random(SEED)
        places = {}
        for step, folder in rr.checkpoints(directory).items():
            if step > 1:
                places[folder.name] = flip_random_bit(folder, draw)
        assert len({file for file, _ in places.values()}) == len(rr.CHECKPOINT_FILES) + 2
        done = rr.resume(directory, "run.checkpoint_every=0")
        assert rr.continued_from(done) == 1
        warnings = {name: line for line in rr.warnings_of(done) for name in places if name in line}
        assert places.keys() - warnings.keys() == set(), "not found"
        for name, (file, tensor) in places.items():
            assert file in warnings[name] and (tensor or file) in warnings[name], (file, tensor, warnings[name])
        rr.assert_same_outcome(directory, tmp_path / "reference")

    @pytest.fixture
    def checkpoint(self, tmp_path):
        shards = rr.write_thirteen_rows(tmp_path)
        write_tokenizer(tmp_path / "model")
        return rr.checkpoints(rr.start(tmp_path, shards, train={"steps": 2}, schedule={"warmup_steps": 1}))[2]

    def test_are_found_in_every_bit_of_what_says_that_a_checkpoint_is_complete(self, checkpoint, tmp_path):
        bits = 8 * (checkpoint / "COMPLETE").stat().st_size
        folders = damaged_copies(checkpoint, tmp_path / "copies", "COMPLETE", range(bits))
        assert [line for line in rr.probe_checkpoints(*folders) if not line.startswith("damaged ")] == []

    @pytest.mark.parametrize("file", ["state.json", "config.json", "model.safetensors", "optimizer.safetensors"])
    def test_are_found_in_every_part_of_a_file(self, checkpoint, tmp_path, file):
        size = (checkpoint / file).stat().st_size
        draw = random.Random(SEED)
        bytes_hit = sorted({*range(16), *draw.sample(range(size), 200), size - 1})
        bits = [8 * byte + draw.randrange(8) for byte in bytes_hit]
        folders = damaged_copies(checkpoint, tmp_path / "copies", file, bits)
        for folder, line in zip(folders, rr.probe_checkpoints(*folders)):
            assert line.startswith("damaged ") and file in line, (folder.parent.name, line)

    def test_or_a_missing_end_or_bytes_too_many_are_found_in_every_file(self, checkpoint, tmp_path):
        folders = []
        for path in sorted(checkpoint.iterdir()):
            content = path.read_bytes()
            changes = {f"cut-to-{length}": content[:length] for length in (0, 1, len(content) // 2, len(content) - 1)}
            changes |= {f"and-{len(more)}-{more[0]}": content + more for more in (b"\0", b"\n", b"x" * 100, content)}
            changes["missing"] = None
            for change, changed in changes.items():
                folders += changed_copy(checkpoint, tmp_path / f"copies/{path.name}-{change}", path.name, changed)
        for folder, line in zip(folders, rr.probe_checkpoints(*folders)):
            assert line.startswith("damaged "), (folder.parent.name, line)

    def test_are_not_seen_where_there_are_none(self, checkpoint, tmp_path):
        shutil.copytree(checkpoint, tmp_path / "copy" / checkpoint.name)
        assert rr.probe_checkpoints(checkpoint, tmp_path / "copy" / checkpoint.name) == ["intact 2", "intact 2"]


def write_tokenizer(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijk"]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}\n')


def flip_random_bit(folder, draw):
    """In a random file of a checkpoint; returns the file's name and, where one was hit, that of the tensor."""
    path = draw.choice(sorted(folder.iterdir()))
    bit = draw.randrange(8 * path.stat().st_size)
    tensor = rr.tensor_at(path, bit // 8) if path.suffix == ".safetensors" else None
    rr.flip_bit(path, bit)
    return path.name, tensor


def changed_copy(checkpoint, folder, name, content):
    """[FOLDER/step-...]: a checkpoint with other bytes in one file, or without it; the other files are hard links."""
    copy = folder / checkpoint.name
    copy.mkdir(parents=True)
    for path in checkpoint.iterdir():
        if path.name != name:
            os.link(path, copy / path.name)
    if content is not None:
        (copy / name).write_bytes(content)
    return [copy]


def damaged_copies(checkpoint, folder, name, bits):
    copies = []
    for bit in bits:
        content = bytearray((checkpoint / name).read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        copies += changed_copy(checkpoint, folder / str(bit), name, bytes(content))
    return copies


SIX_STEPS = {"train": {"steps": 6}, "schedule": {"name": "constant", "warmup_steps": 0},
             "run": {"checkpoint_every": 1, "keep": 0}}


def six_steps(folder, name, **options):
    """Trains the run of the fixture `finished` with other options of its own; returns its directory."""
    shards = sorted(folder.glob("rows_*.hdf5"))
    return rr.start(folder, shards, name, **{**SIX_STEPS, **options})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a finished run "reference" of 6 steps and a checkpoint at each of them, at a constant rate."""
    folder = tmp_path_factory.mktemp("finished")
    shards = rr.write_thirteen_rows(folder)
    write_tokenizer(folder / "model")
    rr.start(folder, shards, **SIX_STEPS).rename(folder / "reference")
    return folder


@pytest.fixture
def directory(finished):
    return rr.restored(finished / "reference", finished / "run")


def traces(directory):
    """Bytes, times and identities of everything in a run directory."""
    found = {}
    for path in sorted(directory.rglob("*")):
        stat = path.stat()
        found[path] = (stat.st_ino, stat.st_mtime_ns, path.read_bytes() if path.is_file() else None)
    return found


def refused(directory, *overrides, names):
    """Resuming must fail as a user's mistake that one line explains, and change nothing."""
    before = traces(directory) if directory.is_dir() else None
    done = rr.resume(directory, *overrides, expect=2)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for name in names:
        assert str(name) in done.stderr, done.stderr
    assert (traces(directory) if directory.is_dir() else None) == before
    return done


class TestFinishedRun:
    def test_says_so_and_writes_nothing(self, directory):
        before = traces(directory)
        done = rr.resume(directory)
        assert any(" info " in line and "finished" in line for line in done.stderr.splitlines()), done.stderr
        assert traces(directory) == before

    def test_has_its_last_checkpoint_at_the_last_step(self, finished):
        for every, steps in ((0, [6]), (4, [4, 6]), (3, [3, 6]), (100, [6])):
            directory = six_steps(finished, f"every_{every}", run={"checkpoint_every": every})
            assert list(rr.checkpoints(directory)) == steps
            last = rr.files_of(directory / "checkpoints/step-00000006")
            assert last == rr.files_of(finished / "reference/checkpoints/step-00000006")

    def test_that_was_killed_before_its_export_gets_it(self, directory, finished):
        shutil.rmtree(directory / "export")
        before = traces(directory / "checkpoints")
        rr.resume(directory)
        rr.assert_same_outcome(directory, finished / "reference")
        assert traces(directory / "checkpoints") == before, "a checkpoint was written again: a kill could have cost it"

    def test_that_was_killed_before_it_replaced_the_export_of_fewer_steps_gets_its_own(self, directory, finished):
        rr.resume(directory, "train.steps=8")
        right = rr.files_of(directory / "export")
        for _ in range(4):
            rr.restored(finished / "reference", directory)
            process = rr.Process("train", "--resume", directory, "train.steps=8")
            process.kill_when(lambda: rr.newest_complete(directory) == 8)
            rr.resume(directory)
            assert rr.files_of(directory / "export") == right

    def test_goes_on_to_more_steps(self, directory, finished):
        done = rr.resume(directory, "train.steps=9")
        assert "train.steps: 9 replaces 6" in done.stderr and rr.continued_from(done) == 6
        rr.assert_same_outcome(directory, six_steps(finished, "longer", train={"steps": 9}))


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
    def test_end_the_run_with_a_checkpoint_from_which_it_goes_on(self, finished, number):
        steps = {"train": {"steps": 400}, "run": {"checkpoint_every": 0}, "optimizer": {"lr": 1e-4}}
        if not (finished / "long").exists():
            six_steps(finished, "long", **steps)
        shards = sorted(finished.glob("rows_*.hdf5"))
        name = f"signal_{number.name}"
        directory = finished / name
        process = rr.Process("train", rr.write_config(finished, shards, name, **{**SIX_STEPS, **steps}))
        assert process.stop_when(lambda: 5 in rr.logged_steps(directory), number) == 0, process.log
        step, = rr.checkpoints(directory)
        assert 5 <= step < 400 and rr.logged_steps(directory)[-1] == step and not (directory / "export").exists()
        assert f"stopped after step {step} by {number.name}" in process.log
        assert rr.continued_from(rr.resume(directory)) == step
        rr.assert_same_outcome(directory, finished / "long")


class TestMistakes:
    def test_of_the_folder_are_named(self, finished, tmp_path):
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("x")
        (tmp_path / "other").mkdir()
        (tmp_path / "other/thesis.txt").write_text("x")
        for name in ("missing", "empty", "file", "other"):
            refused(tmp_path / name, names=[tmp_path / name])

    @pytest.mark.parametrize("left", [[], [".step-00000002.writing-1"], ["step-2", "readme.txt"]])
    def test_without_a_checkpoint_there_is_nothing_to_resume(self, directory, left):
        whole = directory / "checkpoints/step-00000002"
        shutil.copytree(whole, directory / "spare")
        for folder in rr.checkpoints(directory).values():
            shutil.rmtree(folder)
        for name in left:
            shutil.copytree(directory / "spare", directory / "checkpoints" / name)
        shutil.rmtree(directory / "spare")
        refused(directory, names=["no checkpoint", directory])
        (shutil.rmtree if left else os.rmdir)(directory / "checkpoints")
        refused(directory, names=["no checkpoint", directory])

    @pytest.mark.parametrize("override", [
        "model.hidden_dropout=0.2", "model.num_layers=1", "model.vocab_multiple=8", "data.shuffle=false",
        "train.seed=8", "train.global_batch=8", "optimizer.name=lamb"])
    def test_of_overrides_that_make_it_another_run_are_refused(self, directory, override):
        rr.stop_after(directory, 3)
        refused(directory, override, names=[override.split("=")[0]])

    def test_of_other_shards_are_refused(self, directory, finished):
        rr.stop_after(directory, 3)
        refused(directory, f"data.shards={finished / 'rows_0.hdf5'}", names=["data.shards"])

    def test_of_two_processes_at_once_are_refused(self, directory):
        process = rr.Process("train", "--resume", directory, "train.steps=1000000", "run.checkpoint_every=0")
        process.wait_for(lambda: 8 in rr.logged_steps(directory))
        try:
            assert "in use" in rr.resume(directory, expect=2).stderr
        finally:
            assert process.kill()

    def test_of_a_key_are_refused(self, directory):
        refused(directory, "optimizer.learning_rate=1", names=["optimizer.learning_rate"])
        refused(directory, "train.steps=0", names=["train.steps"])

    def test_of_fewer_steps_than_were_done_are_refused(self, directory):
        refused(directory, "train.steps=4", names=["train.steps", "4", "6"])


class TestOverrides:
    def test_are_told_and_win(self, directory, finished):
        rr.stop_after(directory, 4)
        done = rr.resume(directory, "train.steps=8", "optimizer.lr=0.002", "schedule.name=linear",
                         "schedule.warmup_steps=7", "run.keep=2")
        for text in ("train.steps: 8 replaces 6", "optimizer.lr: 0.002 replaces 0.01", "run.keep: 2 replaces 0",
                     "schedule.name: linear replaces constant", "schedule.warmup_steps: 7 replaces 0"):
            lines = [line for line in done.stderr.splitlines() if text in line]
            assert len(lines) == 1 and " info " in lines[0], (text, done.stderr)
        assert done.stderr.count(" replaces ") == 5
        records = rr.read_records(directory)
        assert rr.unmeasured(records[:4]) == rr.unmeasured(rr.read_records(finished / "reference")[:4])
        expected = [0.002 * 5 / 7, 0.002 * 6 / 7, 0.002, 0]
        assert [record["lr"] for record in records[4:]] == pytest.approx(expected, rel=1e-12)
        assert list(rr.checkpoints(directory)) == [7, 8]

    def test_that_change_nothing_are_not_told(self, directory, finished):
        rr.stop_after(directory, 4)
        assert " replaces " not in rr.resume(directory, "train.steps=6").stderr
        rr.assert_same_outcome(directory, finished / "reference")

    def test_of_pieces_and_threads_do_not_change_which_examples_come(self, directory, finished):
        rr.stop_after(directory, 4)
        done = rr.resume(directory, "train.micro_batch=3", "train.threads=2")
        assert "train.micro_batch: 3 replaces 2" in done.stderr
        one, other = rr.read_records(directory)[-1], rr.read_records(finished / "reference")[-1]
        assert one["sequences"] == other["sequences"] and one["real_tokens"] == other["real_tokens"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)

    def test_stay_when_the_run_is_resumed_again(self, directory, finished):
        rr.resume(directory, "train.steps=9")
        rr.stop_after(directory, 7)
        assert " replaces " not in rr.resume(directory).stderr
        assert max(rr.checkpoints(directory)) == 9


class TestWhatARunTells:
    def test_of_damage_and_overrides_is_in_its_log_file_too(self, directory):
        rr.flip_bit(rr.checkpoints(directory)[6] / "state.json")
        done = rr.resume(directory, "train.steps=7")
        log = (directory / "log/rank-0.log").read_text()
        for told in ("step-00000006 is damaged", "checkpoints/step-00000005", "train.steps: 7 replaces 6"):
            assert told in done.stderr and told in log, told

    def test_before_it_was_resumed_stays_in_its_log_file(self, directory):
        before = (directory / "log/rank-0.log").read_bytes()
        rr.stop_after(directory, 3)
        rr.resume(directory)
        assert (directory / "log/rank-0.log").read_bytes().startswith(before) and before

    def test_in_zeros_that_a_power_loss_left_behind_the_checkpoint_is_cut(self, directory, finished):
        rr.stop_after(directory, 4)
        lines = (directory / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        (directory / "metrics.jsonl").write_bytes(b"".join(lines[:5]) + bytes(300) + b"\n" + lines[5])
        events, = rr.event_files(directory)
        offsets = rr.event_records(events)
        events.write_bytes(events.read_bytes()[:offsets[6]] + bytes(300))
        rr.resume(directory)
        rr.assert_same_outcome(directory, finished / "reference")


class TestFolderOfCheckpoints:
    def test_keeps_the_newest(self, finished):
        for keep, steps in (({"keep": 1}, [6]), ({"keep": 2}, [5, 6]), ({}, [4, 5, 6])):
            directory = six_steps(finished, f"keep_{len(steps)}", run={"checkpoint_every": 1, **keep})
            assert list(rr.checkpoints(directory)) == steps
        assert list(rr.checkpoints(finished / "reference")) == [1, 2, 3, 4, 5, 6]  # 0

    def test_is_rid_of_what_killed_writers_left_and_never_reads_it(self, directory, finished):
        rr.stop_after(directory, 4)
        folder = directory / "checkpoints"
        shutil.copytree(folder / "step-00000004", folder / ".step-00000005.writing-123")
        shutil.copytree(finished / "reference/checkpoints/step-00000006", folder / ".step-00000006.writing-124")
        (folder / ".step-00000003.writing-125").mkdir()
        shutil.copytree(finished / "reference/export", directory / ".export.writing-126")
        assert rr.continued_from(rr.resume(directory)) == 4
        rr.assert_same_outcome(directory, finished / "reference")

    def test_does_not_take_a_checkpoint_under_another_ones_name(self, directory, finished):
        rr.stop_after(directory, 4)
        shutil.copytree(directory / "checkpoints/step-00000003", directory / "checkpoints/step-00000005")
        done = rr.resume(directory)
        assert any("step-00000005" in line for line in rr.warnings_of(done)) and rr.continued_from(done) == 4
        rr.assert_same_outcome(directory, finished / "reference")

    def test_goes_on_where_the_run_was_moved_to(self, directory, finished, tmp_path):
        moved = tmp_path / "moved"
        directory.rename(moved)
        rr.stop_after(moved, 3)
        rr.resume(moved)
        assert not directory.exists()
        rr.assert_same_outcome(moved, finished / "reference")

    def test_and_a_name_relative_to_the_working_directory(self, directory, finished, monkeypatch):
        rr.stop_after(directory, 3)
        monkeypatch.chdir(directory.parent)
        rr.resume("run/")
        rr.assert_same_outcome(directory, finished / "reference")

    def test_does_not_need_the_weights_that_the_run_started_from(self, directory, finished):
        rr.stop_after(directory, 3)
        (finished / "model").rename(finished / "away")
        try:
            rr.resume(directory)
        finally:
            (finished / "away").rename(finished / "model")
        rr.assert_same_outcome(directory, finished / "reference")

    def test_of_a_run_that_was_killed_before_its_configuration_was_there_is_made_anew(self, directory, finished):
        for path in directory.iterdir():
            if path.name not in (".lock", "log"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (directory / ".config.yaml.writing-1").write_text("model:")
        run("train", finished / "run.yaml")
        rr.assert_same_outcome(directory, finished / "reference")

    def test_of_a_replaced_run_goes_with_it(self, directory, finished):
        run("train", finished / "run.yaml", "run.overwrite=true", "train.steps=2")
        assert list(rr.checkpoints(directory)) == [1, 2]
