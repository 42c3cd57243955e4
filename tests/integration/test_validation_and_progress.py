"""Held-out evaluation, TensorBoard's view of a run, and what a person sees of it with and without a terminal."""
import os
import pty
import re
import select
import struct
import subprocess
import termios
from fcntl import ioctl

import numpy as np
import pytest
from bert_fixture import ROWS, TEMPO, run, train, write_model, write_shard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_command_line import config_text, refuse

TAGS = {"train": {f"train/{key}": key for key in ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "lr", "grad_norm",
                                                  "sequences_per_s", "tokens_per_s", "step_ms", "data_ms",
                                                  "skipped_steps")}
        | {"memory/peak_allocated_bytes": "peak_allocated_bytes"},
        "validation": {f"validation/{key}": key for key in ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy")}}


@pytest.fixture
def f1(tmp_path):
    write_model(tmp_path / "model")
    write_shard(tmp_path / "f1.hdf5")
    write_shard(tmp_path / "held.hdf5", ROWS[::-1])
    return tmp_path


def of_kind(trained, kind):
    return [record for record in trained.records if record["kind"] == kind]


class TestEvaluation:
    def train(self, f1, name, dropout=0.2, **sections):
        sections = {key: dict(values) for key, values in sections.items()}
        sections["model"] = {"hidden_dropout": dropout, "attention_dropout": dropout}
        sections["train"] = {"steps": 7, "grad_clip": 1.0, **sections.get("train", {})}
        return train(f1 / name, f1 / "model", [f1 / "f1.hdf5"], **sections)

    def test_changes_nothing_of_the_training(self, f1):
        without = self.train(f1, "without")
        held = self.train(f1, "with", data={"validation": [str(f1 / "held.hdf5")]}, train={"evaluate_every": 2})
        one, other = of_kind(without, "train"), of_kind(held, "train")
        timed = {"step_ms", "data_ms", "sequences_per_s", "rank_sequences_per_s", "tokens_per_s"}
        assert [{k: v for k, v in r.items() if k not in timed} for r in one] == [
            {k: v for k, v in r.items() if k not in timed} for r in other]
        assert all(np.array_equal(without.weights[name], held.weights[name]) for name in without.weights)

    def test_does_not_hide_the_first_record(self, f1):
        held = self.train(f1, "run", data={"validation": [str(f1 / "held.hdf5")]}, train={"evaluate_every": 1})
        first = next(line for line in held.log.splitlines() if " info train " in line)
        assert "step 1/7  held out 4/4  loss " in first, held.log

    def test_happens_at_multiples_and_at_the_end_and_a_train_line_is_last(self, f1):
        held = self.train(f1, "run", data={"validation": [str(f1 / "held.hdf5")]}, train={"evaluate_every": 3},
                          run={"log_every": 100})
        assert [(r["kind"], r["step"]) for r in held.records] == [
            ("train", 1), ("validation", 3), ("validation", 6), ("validation", 7), ("train", 7)]
        assert held.records[1].keys() == {"kind", "step", "loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "sequences", "seconds"}
        assert held.records[1]["sequences"] == 4 and held.records[1]["seconds"] > 0
        lines = [line for line in held.log.splitlines() if "held out  loss" in line]
        assert len(lines) == 3 and re.search(r"step 3  held out  loss \d+\.\d{4}  mlm .* acc .*\(\d+\.\d s\)$", lines[0])

    def test_gives_the_loss_that_a_training_step_without_dropout_has(self, f1):
        held = self.train(f1, "run", dropout=0.0, data={"validation": [str(f1 / "held.hdf5")]},
                          train={"steps": 2, "evaluate_every": 1, "micro_batch": 3}, optimizer={"lr": 1e-3})
        first = of_kind(held, "validation")[0]
        # The same rows are trained on: the loss of step 2 is that of the weights after step 1.
        second = of_kind(held, "train")[1]
        for key in ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy"):
            assert first[key] == pytest.approx(second[key], abs=1e-5)

    def test_is_named_by_a_dry_run_and_by_the_resolved_configuration(self, f1):
        (f1 / "run.yaml").write_text(config_text(f1))
        dry = run("train", f1 / "run.yaml", f"data.validation={f1 / 'held.hdf5'}", "train.steps=60", "--dry-run").stdout
        assert "4 held-out sequences every 3 steps" in dry and "20 times" in dry
        assert "held" not in run("train", f1 / "run.yaml", "--dry-run").stdout
        run("train", f1 / "run.yaml", f"data.validation={f1 / 'held.hdf5'}")
        resolved = (f1 / "run/config.yaml").read_text()
        assert f'validation:\n    - "{f1 / "held.hdf5"}"' in resolved and "evaluate_every: 1" in resolved

    def test_mistakes_name_the_key(self, f1):
        refuse(f1, None, "train.evaluate_every=5", names=["train.evaluate_every", "data.validation"])
        held = f"data.validation={f1 / 'held.hdf5'}"
        refuse(f1, None, held, "train.evaluate_every=0", names=["train.evaluate_every"])
        refuse(f1, None, f"data.validation={f1 / 'f1.hdf5'}", names=["data.validation", "f1.hdf5", "data.shards"])
        refuse(f1, None, f"data.validation={f1}/none*.hdf5", names=["data.validation", "none*.hdf5"])
        shorter = [(ids[:9], segment, min(real, 9), [1], [5], is_next) for ids, segment, real, _, _, is_next in ROWS]
        write_shard(f1 / "short.hdf5", shorter)
        refuse(f1, None, f"data.validation={f1 / 'short.hdf5'}", names=["data.validation", "short.hdf5", "9", "10"])


class TestEventFile:
    def scalars(self, folder):
        files = list(folder.glob("events.out.tfevents.*"))
        assert len(files) == 1
        events = EventAccumulator(str(files[0]), size_guidance={"scalars": 0}).Reload()
        return {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}

    def test_repeats_metrics_jsonl(self, f1):
        trained = train(f1, f1 / "model", [f1 / "f1.hdf5"], data={"validation": [str(f1 / "held.hdf5")]},
                        train={"steps": 5, "evaluate_every": 2})
        scalars = self.scalars(trained.folder)
        assert scalars.keys() == TAGS["train"].keys() | TAGS["validation"].keys()
        for kind, tags in TAGS.items():
            for tag, key in tags.items():
                assert [(s.step, s.value) for s in scalars[tag]] == [
                    (r["step"], float(np.float32(r[key]))) for r in of_kind(trained, kind)]
        times = [s.wall_time for s in scalars["train/loss"]]
        assert times == sorted(times) and abs(times[-1] - os.path.getmtime(trained.folder / "metrics.jsonl")) < 5

    def test_is_replaced_with_its_run(self, f1):
        (f1 / "run.yaml").write_text(config_text(f1))
        run("train", f1 / "run.yaml")
        first = list((f1 / "run").glob("events.*"))
        run("train", f1 / "run.yaml", "run.overwrite=true")
        second = list((f1 / "run").glob("events.*"))
        assert len(first) == len(second) == 1 and first != second

    def test_that_finds_the_disk_full_is_named(self, f1):
        (f1 / "run.yaml").write_text(config_text(f1, extra="optimizer: {lr: 1e-5}"))
        arguments = f"{f1 / 'run.yaml'} train.steps=100 run.log_every=1 run.export=false"
        command = f"trap '' XFSZ; ulimit -f 5; exec {TEMPO} train {arguments}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert done.returncode == 1
        assert re.search(r"(events\.out\.tfevents\S*|metrics\.jsonl) cannot be written", done.stderr.splitlines()[-1]), done.stderr


def on_a_terminal(*arguments, columns=100, **environment):
    """Runs tempo with stderr on a pseudo-terminal: its exit code and the bytes that appeared."""
    try:
        master, slave = pty.openpty()
    except OSError:
        pytest.skip("this system has no pseudo-terminals")
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    process = subprocess.Popen([TEMPO, *map(str, arguments)], stderr=slave, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                               env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
    os.close(slave)
    shown = b""
    while select.select([master], [], [], 120)[0]:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(master)
    return process.wait(), shown.decode()


def screen(shown):
    """The lines that a terminal shows in the end; understands what the bar uses, and colours."""
    lines = [""]
    shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    column = 0
    for piece in re.findall(r"\x1b\[K|\r|\n|[^\r\n\x1b]+", shown):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            lines.append("")
            column = 0
        elif piece == "\x1b[K":
            lines[-1] = lines[-1][:column]
        else:
            lines[-1] = lines[-1][:column].ljust(column) + piece + lines[-1][column + len(piece):]
            column += len(piece)
    return lines


class TestProgress:
    OVERRIDES = ("run.log_every=1", "train.steps=30")

    def test_on_a_terminal_is_one_line_below_the_log(self, f1):
        (f1 / "run.yaml").write_text(config_text(f1))
        code, shown = on_a_terminal("train", f1 / "run.yaml", *self.OVERRIDES, f"data.validation={f1 / 'held.hdf5'}",
                                    "train.evaluate_every=10")
        lines = screen(shown)
        assert code == 0 and lines[-1] == ""
        assert [line for line in lines if line.startswith("train ")] == [lines[-3]]  # the last is that of the export
        assert lines[-3].startswith("train 100% ▕████████████████████▏ left 0:0") and "step 30/30  loss " in lines[-3]
        assert "exported to" in lines[-2]
        assert sum("held out  loss" in line for line in lines) == 3
        assert all(len(line) < 100 for line in lines if line.startswith("train"))
        assert all(re.match(r"\d{4}-\d\d-\d\d .* info |train ", line) for line in lines[:-1]), lines

    def test_in_the_log_file_does_not_depend_on_the_terminal(self, f1):
        (f1 / "run.yaml").write_text(config_text(f1))
        on_a_terminal("train", f1 / "run.yaml", *self.OVERRIDES)
        with_terminal = (f1 / "run/log/rank-0.log").read_text()
        run("train", f1 / "run.yaml", *self.OVERRIDES, "run.overwrite=true")
        without = (f1 / "run/log/rank-0.log").read_text()

        def pattern(text):  # what takes time differs
            return re.sub(r"\S+ seq/s|\S+ tok/s|left \S+|^\S+ \S+|\[\S+ \S+\]", "", text, flags=re.M)

        assert pattern(with_terminal) == pattern(without)
        assert "train 3%  step  1/30" in without and "train 100%  step 30/30" in without

    def test_without_a_terminal_is_the_first_and_the_last_record(self, f1):
        (f1 / "run.yaml").write_text(config_text(f1))
        plain = run("train", f1 / "run.yaml", *self.OVERRIDES).stderr
        assert "\r" not in plain and "\x1b" not in plain
        steps = [line for line in plain.splitlines() if " info train " in line]
        assert len(steps) == 2 and "step  1/30  loss" in steps[0] and "step 30/30  loss" in steps[1]
        assert all(re.search(r"  left \d+:\d\d$", line) for line in steps)
        assert len((f1 / "run/metrics.jsonl").read_text().splitlines()) == 30

    def test_on_a_dumb_or_narrow_terminal_or_without_utf8(self, f1):
        (f1 / "run.yaml").write_text(config_text(f1))
        _, shown = on_a_terminal("train", f1 / "run.yaml", *self.OVERRIDES, TERM="dumb")
        assert "\x1b[K" not in shown and shown.count(" train ") == 2
        _, shown = on_a_terminal("train", f1 / "run.yaml", *self.OVERRIDES, "run.overwrite=true", LC_ALL="C")
        assert shown.isascii() and "[####################]" in shown
        _, shown = on_a_terminal("train", f1 / "run.yaml", *self.OVERRIDES, "run.overwrite=true", columns=30)
        assert "train 100% left 0:00" in shown and "█" not in shown

    def test_leaves_the_terminal_clean_when_a_run_fails(self, f1):
        (f1 / "run.yaml").write_text(config_text(f1))
        code, shown = on_a_terminal("train", f1 / "run.yaml", *self.OVERRIDES, "optimizer.lr=1e30", "train.grad_clip=0")
        lines = screen(shown)
        assert code == 1 and lines[-1] == ""
        assert "the run ends" in lines[-2] and " error " in lines[-2] and lines[-3].startswith("train ")
