"""Runs that are stopped and go on: what they leave on disk, and whether that is what an uninterrupted run leaves."""
import json
import os
import re
import shutil
import subprocess
import time

import numpy as np
from bert_fixture import BUILD, TEMPO, run, write_model, write_shard
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CHECKPOINT_PROBE = BUILD / "checkpoint_probe"
CHECKPOINT_FILES = ("config.json", "model.safetensors", "optimizer.safetensors", "state.json", "COMPLETE")

# What depends on the clock or on the process, not on the training.
MEASURED = {"step_ms", "data_ms", "sequences_per_s", "rank_sequences_per_s", "tokens_per_s", "peak_allocated_bytes",
            "peak_reserved_bytes", "seconds"}

SCALARS = {"train": {"train/loss": "loss", "train/mlm_loss": "mlm_loss", "train/nsp_loss": "nsp_loss",
                     "train/mlm_accuracy": "mlm_accuracy", "train/lr": "lr", "train/grad_norm": "grad_norm",
                     "train/sequences_per_s": "sequences_per_s", "train/tokens_per_s": "tokens_per_s",
                     "train/step_ms": "step_ms", "train/data_ms": "data_ms",
                     "train/skipped_steps": "skipped_steps", "memory/peak_allocated_bytes": "peak_allocated_bytes"},
           "validation": {f"validation/{key}": key for key in ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy")}}


def different_rows(count, seed=0):
    """Rows for write_shard, all different: another order of examples cannot go unnoticed."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        length, targets = int(draw.integers(6, 11)), int(draw.integers(1, 5))
        ids = [2, *map(int, draw.integers(5, 16, length - 2)), 3] + [0] * (10 - length)
        positions = sorted(map(int, draw.choice(np.arange(1, length - 1), targets, replace=False)))
        labels = [ids[position] for position in positions]
        for position in positions:
            ids[position] = 4
        rows.append((ids, int(draw.integers(2, length - 1)), length, positions, labels, int(draw.integers(2))))
    return rows


def write_thirteen_rows(folder):
    """FOLDER/model, held-out rows, and three shards of 5, 4 and 4 rows: an epoch is 4 global batches, the last of 1."""
    write_model(folder / "model")
    rows = different_rows(13)
    write_shard(folder / "held.hdf5", different_rows(3, seed=1))
    parts = rows[:5], rows[5:9], rows[9:]
    return [write_shard(folder / f"rows_{k}.hdf5", part) for k, part in enumerate(parts)]


def write_config(folder, shards, /, name="run", **sections):
    """FOLDER/NAME.yaml of a run into FOLDER/NAME on F1 with dropout and shuffling; keyword sections go over that."""
    config = {"model": {"hidden_dropout": 0.1, "attention_dropout": 0.1},
              "data": {"shards": [str(shard) for shard in shards], "shuffle": True},
              "train": {"device": "cpu", "global_batch": 4, "micro_batch": 2, "steps": 10, "seed": 7, "threads": 1},
              "optimizer": {"name": "adamw", "lr": 0.01},
              "schedule": {"name": "linear", "warmup_steps": 3},
              "run": {"dir": str(folder / name), "log_every": 1},
              "init": {"from": str(folder / "model")}}
    for section, values in sections.items():
        config.setdefault(section, {}).update(values)
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(config))
    return path


def read_config(path):
    return json.loads(path.read_text())


def start(folder, shards, /, name="run", **sections):
    """Trains to the end; returns the run directory."""
    run("train", write_config(folder, shards, name, **sections))
    return folder / name


def resume(directory, *overrides, expect=0):
    return run("train", "--resume", directory, *overrides, expect=expect)


def resume_until_finished(directory):
    resume(directory)
    assert "finished" in resume(directory).stderr


def checkpoints(directory):
    """{step: folder} of what stands under a checkpoint's name, oldest first."""
    found = {int(path.name[5:]): path for path in (directory / "checkpoints").glob("step-*") if path.name[5:].isdigit()}
    return dict(sorted(found.items()))


def newest_complete(directory):
    """Step of the newest checkpoint that says it is complete; 0: none."""
    return max([0, *(step for step, folder in checkpoints(directory).items() if (folder / "COMPLETE").exists())])


def hidden_leftovers(directory):
    """What a killed process was writing under a name aside."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob(".*") if path != directory / ".lock")


def read_records(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def logged_steps(directory, kind="train"):
    """Steps in metrics.jsonl as it is now: a line that is being written does not count."""
    path = directory / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [record["step"] for record in map(json.loads, lines) if record["kind"] == kind]


def event_files(directory):
    return sorted(directory.glob("events.out.tfevents.*"))


def event_records(path):
    """Where each record of an event file begins; the last entry is where the last whole one ends."""
    content, offsets = path.read_bytes(), [0]
    while offsets[-1] + 12 <= len(content):
        end = offsets[-1] + 16 + int.from_bytes(content[offsets[-1]:offsets[-1] + 8], "little")
        if end > len(content):
            break
        offsets.append(end)
    return offsets


def event_scalars(directory):
    """{tag: [(step, value)]} over all event files; nothing is dropped for being there twice."""
    scalars = {}
    for path in event_files(directory):
        assert event_records(path)[-1] == path.stat().st_size, f"{path.name} ends in half a record"
        events = EventAccumulator(str(path), size_guidance={"scalars": 0}, purge_orphaned_data=False).Reload()
        for tag in events.Tags()["scalars"]:
            scalars.setdefault(tag, []).extend((event.step, event.value) for event in events.Scalars(tag))
    return {tag: sorted(values, key=lambda value: value[0]) for tag, values in scalars.items()}


def files_of(folder):
    """{relative path: bytes}"""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def unmeasured(records):
    return [{key: value for key, value in record.items() if key not in MEASURED} for record in records]


def assert_events_repeat_metrics(directory):
    records, scalars = read_records(directory), event_scalars(directory)
    for kind, tags in SCALARS.items():
        of_kind = [record for record in records if record["kind"] == kind]
        for tag, key in tags.items():
            expected = [(r["step"], None if r[key] is None else float(np.float32(r[key]))) for r in of_kind]
            found = [(step, value if np.isfinite(value) else None) for step, value in scalars.get(tag, [])]
            assert found == expected, f"{tag}: {found}, not {expected}"


def assert_same_outcome(directory, reference):
    """A run that was stopped and went on left what one that was left alone did: to the bit, times and memory aside."""
    records, expected = unmeasured(read_records(directory)), unmeasured(read_records(reference))
    different = [pair for pair in zip(records, expected) if pair[0] != pair[1]]
    assert different == [] and len(records) == len(expected), f"{len(records)}/{len(expected)} records; {different[:1]}"
    assert_events_repeat_metrics(directory)
    last = max(checkpoints(reference))
    assert max(checkpoints(directory)) == last == expected[-1]["step"], checkpoints(directory)
    for folder in ("export", f"checkpoints/{checkpoints(reference)[last].name}"):
        one, other = files_of(directory / folder), files_of(reference / folder)
        different = sorted(name for name in one | other if one.get(name) != other.get(name))
        assert different == [], f"in {folder} differ {different}"
    leftovers = hidden_leftovers(directory)
    assert leftovers == [], f"left behind: {leftovers}"


def stop_after(directory, step):
    """Makes a run with a checkpoint at every step look as if it had been killed some time after that of `step`."""
    for other, folder in checkpoints(directory).items():
        if other > step:
            shutil.rmtree(folder)
    shutil.rmtree(directory / "export", ignore_errors=True)


def restored(reference, directory):
    """A fresh copy of a run in place of what `directory` holds."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(reference, directory)
    return directory


class Process:
    """tempo in the background, to be killed."""

    def __init__(self, *arguments):
        command = [TEMPO, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def kill(self):
        """SIGKILL; returns whether the process was still at work. One that had ended by itself must have ended well."""
        self.process.kill()
        self.log = self.process.communicate()[1]
        assert self.process.returncode in (-9, 0), self.log
        return self.process.returncode == -9

    def stop_when(self, condition, number, timeout=60):
        """Sends a signal that the process may answer by ending well; returns its exit code."""
        self.wait_for(condition, timeout)
        self.process.send_signal(number)
        self.log = self.process.communicate(timeout=timeout)[1]
        return self.process.returncode

    def wait_for(self, condition, timeout=60):
        deadline = time.monotonic() + timeout
        while self.process.poll() is None and not condition() and time.monotonic() < deadline:
            time.sleep(0.0002)

    def kill_after(self, seconds):
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pass
        return self.kill()

    def kill_when(self, condition, timeout=60):
        self.wait_for(condition, timeout)
        return self.kill()


def cut_half(path):
    os.truncate(path, path.stat().st_size // 2)


def flip_bit(path, bit=None):
    """Flips bit `bit` of a file (0 is the lowest of the first byte), or one in its middle."""
    content = bytearray(path.read_bytes())
    bit = len(content) // 2 * 8 if bit is None else bit
    content[bit // 8] ^= 1 << bit % 8
    path.unlink()  # not written in place: the copies that tests damage may share their bytes
    path.write_bytes(content)


TAKEN = re.compile(r" info .*\bcheckpoints/step-(\d+)")


def said_where_it_goes_on(log):
    return TAKEN.search(log) is not None


def continued_from(process):
    """The step of the checkpoint that a resumed run, or its log, says it took."""
    log = process if isinstance(process, str) else process.stderr
    assert said_where_it_goes_on(log), f"nothing says where the run goes on:\n{log}"
    return int(TAKEN.search(log).group(1))


def warnings_of(process):
    return [line for line in process.stderr.splitlines() if re.search(r" warn\w* ", line)]


def probe_checkpoints(*folders):
    """What checkpoint_probe says about each folder: "intact STEP" or "damaged REASON"."""
    done = subprocess.run([CHECKPOINT_PROBE, *map(str, folders)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(folders), done.stdout
    return lines


def tensor_names(path):
    """Of a safetensors file; none of another file."""
    return list(load_file(path)) if path.suffix == ".safetensors" else []


def tensor_at(path, offset):
    """Name of the tensor of a safetensors file that has the byte at `offset`; None: the header has it."""
    content = path.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    for name, info in json.loads(content[8:data]).items():
        if name != "__metadata__" and info["data_offsets"][0] <= offset - data < info["data_offsets"][1]:
            return name
    return None
