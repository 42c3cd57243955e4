"""tempo compare on real runs, and tempo inspect on what such runs leave behind."""
import json
import shutil

import pytest
from bert_fixture import run, train, write_model, write_shard

MODEL = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16, "vocab_size": 16, "max_positions": 12}
ENVIRONMENT = {"tempo": "0.1.0", "git_revision": "unknown", "threads": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 4 steps with dropout and evaluations; returns its folder and a function that makes others."""
    folder = tmp_path_factory.mktemp("compare")
    shard = write_shard(folder / "f1.hdf5")

    def make(name, **sections):
        settings = {"model": MODEL, "data": {"validation": str(shutil.copy(shard, folder / "held_out.hdf5"))},
                    "train": {"steps": 4, "evaluate_every": 2, "threads": 1, "seed": 7}}
        for section, values in sections.items():
            settings[section] = {**settings.get(section, {}), **values}
        return train(folder / name, None, [shard], **settings).folder

    return make("a"), make


def copied(trained, folder):
    return shutil.copytree(trained[0], folder / "copy")


def compare(a, b, expect):
    """The object, after checking that the text for people is there and tells the same."""
    people = run("compare", a, b, expect=expect).stdout
    done = run("compare", a, b, "--json", expect=expect)
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert [line.split()[0] for line in people.splitlines() if line[0] != " "] == ["config", "environment", "steps"]
    return result, people


def change_lines(run_folder, change):
    path = run_folder / "metrics.jsonl"
    path.write_text("".join(line + "\n" for line in change(path.read_text().splitlines())))


def test_equal_seeds_give_equal_runs(trained):
    result, people = compare(trained[0], trained[1]("again", run={"overwrite": True}), 0)
    assert result["config"] == [] and result["environment"] == []
    assert result["first_step"] is None and result["key"] is None and result["a"] is None and result["b"] is None
    assert result["steps_compared"] == result["steps_agreeing"] == 4
    assert "the same in all 4 logged steps" in people


def test_another_learning_rate_shows_at_once(trained):
    result, people = compare(trained[0], trained[1]("faster", optimizer={"lr": 0.02}), 1)
    assert result["config"] == [{"key": "optimizer.lr", "a": "0.01", "b": "0.02"}]
    assert (result["first_step"], result["key"], result["a"], result["b"]) == (1, "lr", 0.01, 0.02)
    assert "step 1 is the first that differs: lr 0.01 | 0.02 (relative difference 0.5); 0 logged steps before agree" in people
    assert result["relative_difference"] == pytest.approx(0.5)
    assert "1 key differs; the first is optimizer.lr: 0.01 | 0.02" in people


def test_a_later_warm_up_shows_where_it_begins_to_matter(trained):
    """The rates of a decay over 4 and over 5 steps are equal in the warm-up only; losses follow one step later."""
    one, other = (trained[1](name, schedule={"name": "linear", "warmup_steps": 2}, train={"steps": steps})
                  for name, steps in (("four", 4), ("five", 5)))
    result, people = compare(one, other, 1)
    assert result["config"][0] == {"key": "train.steps", "a": "4", "b": "5"}
    assert result["key"] == "lr" and result["steps_compared"] == 4 and result["last_step_b"] == 5
    assert result["steps_agreeing"] == result["first_step"] - 1 >= 2
    assert "A was logged to step 4, B to step 5" in people


def test_another_seed_shows_in_the_first_loss(trained):
    result, people = compare(trained[0], trained[1]("seed", train={"seed": 8}, optimizer={"lr": 0.02}), 1)
    assert [entry["key"] for entry in result["config"]] == ["train.seed", "optimizer.lr"]
    assert result["first_step"] == 1 and result["key"] == "loss" and result["steps_agreeing"] == 0
    assert "2 keys differ; the first is train.seed: 7 | 8" in people and "also optimizer.lr: 0.01 | 0.02" in people


def test_a_validation_loss_is_a_difference_too(trained, tmp_path):
    other = copied(trained, tmp_path)

    def change(lines):
        records = [json.loads(line) for line in lines]
        for record in records:
            if record["kind"] == "validation":
                record["loss" if record["step"] == 4 else "seconds"] += 1
            else:
                record["step_ms"] = record["peak_allocated_bytes"] = 1
        return map(json.dumps, records)

    change_lines(other, change)
    result, _ = compare(trained[0], other, 1)
    assert (result["first_step"], result["key"], result["steps_agreeing"]) == (4, "validation.loss", 3)
    assert result["b"] == result["a"] + 1


def test_environments_are_compared_where_both_have_one(trained, tmp_path):
    one, other = (shutil.copytree(trained[0], tmp_path / name) for name in "ab")
    (one / "environment.json").write_text(json.dumps(ENVIRONMENT, indent=2))
    (other / "environment.json").unlink(missing_ok=True)
    result, people = compare(one, other, 0)
    assert "B has no environment.json" in people and not result["environment_compared"]
    (other / "environment.json").write_text(json.dumps({**ENVIRONMENT, "threads": 4, "device": "A GPU"}, indent=2))
    result, people = compare(one, other, 1)
    assert result["environment"] == [{"key": "threads", "a": "2", "b": "4"}, {"key": "device", "a": "cpu", "b": "A GPU"}]
    assert "2 lines differ; the first is threads: 2 | 4" in people


def test_a_shorter_run_is_compared_as_far_as_it_goes(trained, tmp_path):
    other = copied(trained, tmp_path)
    text = (other / "metrics.jsonl").read_text()
    (other / "metrics.jsonl").write_text(text[:-30])  # killed while it wrote its last line
    result, people = compare(trained[0], other, 0)
    assert result["steps_compared"] == 4 and result["last_step_b"] == 3  # the last step's evaluation stands before it
    assert "A was logged to step 4, B to step 3" in people
    (other / "metrics.jsonl").unlink()
    result, people = compare(trained[0], other, 1)
    assert result["steps_compared"] == 0 and result["first_step"] is None and "nothing was compared" in people


def test_mistakes_are_one_line_that_names_the_place(trained, tmp_path):
    def refused(other, *names):
        for order in ((trained[0], other), (other, trained[0])):
            done = run("compare", *order, expect=2)
            assert done.stdout == "" and len(done.stderr.strip().splitlines()) == 1
            assert all(name in done.stderr for name in names), done.stderr

    refused(tmp_path / "none", "none is not a run directory", "does not exist")
    refused(tmp_path, str(tmp_path) + " is not a run directory", "config.yaml")
    other = copied(trained, tmp_path)
    change_lines(other, lambda lines: [*lines, lines[0]])
    refused(other, "metrics.jsonl:7: a second train record of step 1", "line 1")
    change_lines(other, lambda lines: ["{}", *lines])
    refused(other, "metrics.jsonl:1: kind")
    (other / "config.yaml").write_text("train: [")
    refused(other, "config.yaml:1")
    assert "RUN_B" in run("compare", trained[0], expect=2).stderr


class TestInspect:
    def test_a_finished_run(self, trained):
        result = json.loads(run("inspect", trained[0], "--json").stdout)
        records = [json.loads(line) for line in (trained[0] / "metrics.jsonl").read_text().splitlines()]
        assert result["kind"] == "run" and result["state"] == "finished" and result["export"] is True
        assert result["steps_done"] == result["steps_planned"] == 4
        assert result["loss"] == records[-1]["loss"]
        assert result["validation"]["step"] == 4 and result["validation"]["loss"] == records[-2]["loss"]
        exported = json.loads(run("inspect", trained[0] / "export", "--json").stdout)
        assert result["parameters"] == exported["parameters"] and result["tensors"] == exported["tensors"]
        people = run("inspect", trained[0]).stdout
        assert "finished" in people and "validation.loss" in people and "bert." not in people

    def test_an_unfinished_run_with_checkpoints(self, trained, tmp_path):
        killed = copied(trained, tmp_path)
        shutil.rmtree(killed / "export")
        shutil.rmtree(killed / "checkpoints", ignore_errors=True)
        assert json.loads(run("inspect", killed, "--json").stdout)["state"] == "unfinished"
        for step, files in ((10, ("state.json", "COMPLETE")), (9, ("state.json", "COMPLETE")), (11, ("state.json",))):
            checkpoint = killed / f"checkpoints/step-{step:08}"
            checkpoint.mkdir(parents=True)
            for name in files:
                (checkpoint / name).write_text("{}")
        change_lines(killed, lambda lines: lines[:1])
        result = json.loads(run("inspect", killed, "--json").stdout)
        assert result["state"] == "unfinished" and (result["steps_done"], result["steps_planned"]) == (1, 4)
        assert result["checkpoints"] == ["step-00000009", "step-00000010"]
        assert result["newest_checkpoint"] == "step-00000010"
        assert result["validation"] is None and result["export"] is False
        (killed / "metrics.jsonl").unlink()
        assert json.loads(run("inspect", killed, "--json").stdout)["steps_done"] == 0
        assert "unfinished" in run("inspect", killed).stdout

    def test_a_run_whose_data_is_gone(self, trained, tmp_path):
        moved = copied(trained, tmp_path)
        text = (moved / "config.yaml").read_text()
        (moved / "config.yaml").write_text(text + 'init:\n  from: "/nowhere/model"\nlater:\n  key: 1\n')
        assert json.loads(run("inspect", moved, "--json").stdout)["kind"] == "run"
        (moved / "config.yaml").write_text("data:\n  shuffle: true\n")
        assert "train.steps" in run("inspect", moved, expect=2).stderr

    def test_a_checkpoint(self, tmp_path):
        write_model(tmp_path / "model")
        run("convert", "--from", tmp_path / "model", "--to", tmp_path / "checkpoint", "--vocab-multiple", 32)
        state = json.loads((tmp_path / "checkpoint/state.json").read_text())
        (tmp_path / "checkpoint/state.json").write_text(json.dumps({**state, "step": 12, "later": {"key": [1]}}))
        result = json.loads(run("inspect", tmp_path / "checkpoint", "--json").stdout)
        assert result["kind"] == "checkpoint" and result["step"] == 12
        assert result["state"]["vocab_multiple"] == 32 and result["state"]["later"] == {"key": [1]}
        assert result["tensors"]["cls.predictions.bias"] == {"shape": [32], "dtype": "F32"}
        assert "optimizer_tensors" not in result
        shutil.copy(tmp_path / "model/model.safetensors", tmp_path / "checkpoint/optimizer.safetensors")
        result = json.loads(run("inspect", tmp_path / "checkpoint", "--json").stdout)
        assert result["optimizer_tensors"]["cls.predictions.bias"] == {"shape": [16], "dtype": "F32"}
        people = run("inspect", tmp_path / "checkpoint").stdout
        assert "state.vocab_multiple" in people and people.count("cls.predictions.bias") == 2
        (tmp_path / "checkpoint/config.json").unlink()
        assert json.loads(run("inspect", tmp_path / "checkpoint", "--json").stdout)["parameters"] == 2338
        (tmp_path / "checkpoint/COMPLETE").unlink()
        assert "COMPLETE" in run("inspect", tmp_path / "checkpoint", expect=2).stderr

    def test_a_folder_that_is_nothing(self, tmp_path):
        assert "config.yaml" in run("inspect", tmp_path, expect=2).stderr
