"""The program as its users meet it: help, versions, real shards, mistakes. A mistake is one clear line, exit code 2, no trace."""
import json
import shutil
import subprocess

import h5py
import numpy as np
import pytest
from bert_fixture import ROOT, ROWS, TEMPO, run, train, write_model, write_shard
from safetensors.numpy import load_file

SHARDS = ROOT / "tests/golden/nvidia_shards"
SMALL = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "intermediate_size": 128}


@pytest.fixture
def f1(tmp_path):
    write_model(tmp_path / "model")
    write_shard(tmp_path / "f1.hdf5")
    return tmp_path


def config_text(folder, shard="f1.hdf5", extra=""):
    return f"""model: {{hidden_size: 8, num_layers: 1, num_heads: 2, intermediate_size: 16, vocab_size: 16, max_positions: 12}}
data: {{shards: {shard}}}
train: {{global_batch: 4, steps: 2}}
run: {{dir: run}}
{extra}"""


def refuse(folder, text=None, *overrides, names=()):
    """Training must fail as a user's mistake that names `names`, and leave no run behind."""
    (folder / "run.yaml").write_text(config_text(folder) if text is None else text)
    before = sorted(p.name for p in folder.iterdir())
    done = run("train", folder / "run.yaml", *overrides, expect=2)
    for name in names:
        assert str(name) in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr and "frame #" not in done.stderr
    assert sorted(p.name for p in folder.iterdir()) == before
    return done.stderr


def test_help_and_version_answer():
    for arguments in (["--help"], ["train", "--help"], ["convert", "--help"], ["inspect", "--help"],
                      ["compare", "--help"]):
        assert "Usage" in run(*arguments).stdout
    assert "optimizer.lr" in run("train", "--help").stdout
    version = run("--version").stdout
    for word in ("tempo", "LibTorch", "CUDA", "CPU"):
        assert word in version
    assert "--help" in run(expect=2).stderr
    assert "'trian'" in run("trian", "x.yaml", expect=2).stderr


@pytest.mark.parametrize("length, steps", [(128, 12), (512, 6)])
def test_trains_on_shards_that_nvidias_script_wrote(tmp_path, length, steps):
    trained = train(tmp_path, None, [SHARDS / f"nv_seq{length}_training_0.hdf5"],
                    model={**SMALL, "vocab_size": 30522}, data={"shuffle": True},
                    train={"global_batch": 8, "micro_batch": 4, "steps": steps, "grad_clip": 1.0}, optimizer={"lr": 2e-3})
    losses = [r["loss"] for r in trained.records]
    assert losses[0] == pytest.approx(np.log(30522) + np.log(2), abs=0.3)
    assert np.mean(losses[-3:]) < losses[0] - 0.3
    log = (trained.folder / "log/rank-0.log").read_text()
    assert f"/{steps}  loss" in log and "train 100%" in log and len(losses) == steps


def test_the_resolved_configuration_gives_the_same_run_from_anywhere(f1):
    (f1 / "run.yaml").write_text(config_text(f1))
    run("train", f1 / "run.yaml", "run.log_every=1")
    elsewhere = f1 / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(f1 / "run/config.yaml", elsewhere / "again.yaml")
    run("train", elsewhere / "again.yaml", f"run.dir={elsewhere / 'run'}")
    one, other = (load_file(folder / "run/export/model.safetensors") for folder in (f1, elsewhere))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert (f1 / "run/config.yaml").read_text() == (elsewhere / "run/config.yaml").read_text().replace(
        str(elsewhere / "run"), str(f1 / "run"))


def test_a_dry_run_checks_and_writes_nothing(f1):
    (f1 / "run.yaml").write_text(config_text(f1))
    assert "valid" in run("train", f1 / "run.yaml", "--dry-run").stdout
    assert not (f1 / "run").exists()


def test_an_existing_run_is_kept_unless_overwriting_is_asked_for(f1):
    (f1 / "run.yaml").write_text(config_text(f1))
    run("train", f1 / "run.yaml")
    metrics = (f1 / "run/metrics.jsonl").read_text()
    assert "run.overwrite=true" in run("train", f1 / "run.yaml", expect=2).stderr
    assert (f1 / "run/metrics.jsonl").read_text() == metrics
    run("train", f1 / "run.yaml", "run.overwrite=true", "train.steps=1")
    assert len((f1 / "run/metrics.jsonl").read_text().splitlines()) == 1
    (f1 / "other").mkdir()
    (f1 / "other/thesis.txt").write_text("mine")
    run("train", f1 / "run.yaml", f"run.dir={f1 / 'other'}", "run.overwrite=true", expect=2)
    assert (f1 / "other/thesis.txt").read_text() == "mine"


class TestConfigurationMistakes:
    @pytest.mark.parametrize("extra, names", [
        ("optimizer: {lrr: 0.1}", ["run.yaml:5:13", "optimizer.lrr", "optimizer.lr"]),
        ("optimizer: {lr: 0.1, lr: 0.2}", ["optimizer.lr", "run.yaml:5:22"]),
        ("optimizer: {lr: 1e-4x}", ["run.yaml:5:17", "optimizer.lr", "1e-4x"]),
        ("optimizer: {lr: -1}", ["optimizer.lr"]),
        ("optimizer: {steps: 10}", ["steps", "train"]),
        ("layers: {preset: fancy}", ["layers.preset", "baseline"]),
    ])
    def test_name_the_key_and_the_place(self, f1, extra, names):
        refuse(f1, config_text(f1, extra=extra), names=names)

    @pytest.mark.parametrize("override, names", [
        ("model.hidden_act=swish", ["hidden_act", "swish", "gelu"]), ("model.num_heads=3", ["num_heads", "hidden_size"]),
        ("train.steps=10.5", ["train.steps", "10.5"]), ("train.steps=-1", ["train.steps"]), ("train.micro_batch=5", ["micro_batch"]),
        ("optimzer.lr=1", ["optimzer.lr", "section optimizer"]), ("train.device=tpu", ["train.device", "tpu", "cpu"]),
    ])
    def test_in_overrides_are_named_too(self, f1, override, names):
        refuse(f1, None, override, names=names)

    def test_a_missing_file_is_named(self, tmp_path):
        assert "nothing.yaml" in run("train", tmp_path / "nothing.yaml", expect=2).stderr


class TestShardMistakes:
    def rows_with(self, **change):
        row = dict(zip(("ids", "segment", "real", "positions", "labels", "next"), ROWS[0]))
        row.update(change)
        return [ROWS[1], tuple(row.values())]

    def check(self, folder, names, *overrides):
        refuse(folder, config_text(folder, "bad.hdf5"), *overrides, names=["bad.hdf5", *names])

    def test_missing_empty_cut_and_foreign_files(self, f1):
        refuse(f1, config_text(f1, "nothing*.hdf5"), names=["nothing*.hdf5"])
        whole = (f1 / "f1.hdf5").read_bytes()
        (f1 / "bad.hdf5").write_bytes(whole[:len(whole) // 2])
        self.check(f1, [])
        (f1 / "bad.hdf5").write_bytes(b"")
        self.check(f1, [])
        (f1 / "bad.hdf5").write_bytes(b"PK\x03\x04 not HDF5 at all")
        self.check(f1, [])

    def test_a_missing_a_short_and_a_float_dataset(self, f1):
        for change, name in (("delete", "segment_ids"), ("shorten", "masked_lm_ids"), ("float", "input_ids")):
            shutil.copy(f1 / "f1.hdf5", f1 / "bad.hdf5")
            with h5py.File(f1 / "bad.hdf5", "a") as file:
                data = file[name][:]
                del file[name]
                if change != "delete":
                    file[name] = data[:-1] if change == "shorten" else data.astype(np.float32)
            self.check(f1, [name])

    @pytest.mark.parametrize("change, names", [
        (dict(ids=[2, 16, 6, 4, 3, 7, 8, 3, 0, 0]), ["input_ids", "row 1", "16"]),
        (dict(labels=[16]), ["masked_lm_ids", "row 1", "16"]),
        (dict(positions=[9]), ["masked_lm_positions", "row 1", "9"]),
        (dict(next=2), ["next_sentence_labels", "row 1", "2"]),
    ])
    def test_values_out_of_range_name_the_row(self, f1, change, names):
        write_shard(f1 / "bad.hdf5", self.rows_with(**change))
        self.check(f1, names)

    def test_a_length_the_model_or_the_configuration_does_not_have(self, f1):
        refuse(f1, None, "model.max_positions=9", names=["max_positions", "10", "9"])
        refuse(f1, None, "data.sequence_length=12", names=["f1.hdf5", "12", "10"])
        refuse(f1, None, "model.type_vocab_size=1", names=["f1.hdf5", "segment_ids"])

    def test_the_middle_of_three_shards_is_found_before_the_first_step(self, f1):
        (f1 / "shards").mkdir()
        for name in "abc":
            shutil.copy(f1 / "f1.hdf5", f1 / "shards" / f"{name}.hdf5")
        whole = (f1 / "f1.hdf5").read_bytes()
        (f1 / "shards/b.hdf5").write_bytes(whole[:len(whole) // 2])
        refuse(f1, config_text(f1, "shards/*.hdf5"), names=["b.hdf5"])


class TestWeightMistakes:
    @pytest.mark.parametrize("damage", ["cut", "header", "empty", "trailing"])
    def test_damaged_safetensors(self, f1, damage):
        path = f1 / "model/model.safetensors"
        data = path.read_bytes()
        path.write_bytes({"cut": data[:-9], "header": (2 ** 40).to_bytes(8, "little") + data[8:], "empty": b"",
                          "trailing": data + b"xx"}[damage])
        text = "data: {shards: f1.hdf5}\ninit: {from: model}\ntrain: {global_batch: 4, steps: 1}\nrun: {dir: run}\n"
        refuse(f1, text, names=["model.safetensors"])

    def test_a_clash_between_the_folder_and_the_configuration(self, f1):
        text = "data: {shards: f1.hdf5}\ninit: {from: model}\ntrain: {global_batch: 4, steps: 1}\nrun: {dir: run}\n"
        refuse(f1, text, "model.hidden_size=16", names=["model.hidden_size", "16", "8"])

    def test_convert_never_writes_over_something(self, f1):
        (f1 / "out").mkdir()
        assert "exists" in run("convert", "--from", f1 / "model", "--to", f1 / "out", expect=2).stderr


def test_inspect_prints_for_people_and_machines(f1):
    people = run("inspect", f1 / "f1.hdf5").stdout
    assert "rows" in people and "sequence_length" in people
    machine = json.loads(run("inspect", f1 / "model", "--json").stdout)
    assert machine["kind"] == "model" and machine["parameters"] == 2194
    assert machine["tensors"]["cls.predictions.bias"] == {"shape": [16], "dtype": "F32"}
    assert "9" in run("inspect", f1 / "f1.hdf5", "--row", 9, expect=2).stderr


def test_a_full_disk_is_a_failure_that_names_the_file(f1):
    (f1 / "run.yaml").write_text(config_text(f1))
    done = subprocess.run(["bash", "-c", f"trap '' XFSZ; ulimit -f 4; exec {TEMPO} train {f1 / 'run.yaml'}"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "model.safetensors" in done.stderr
    assert not (f1 / "run/export").exists() and {p.name for p in (f1 / "run").glob(".*")} == {".lock"}
