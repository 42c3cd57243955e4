"""`tempo bench`: sets of layers beside each other, without shards and without a run."""
import json

import pytest
from bert_fixture import run


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "bench.yaml"
    path.write_text(json.dumps({"model": {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "intermediate_size": 256,
                                          "vocab_size": 500}, "data": {"sequence_length": 64}, "train": {"device": "cpu"}}))
    return path


def test_measures_every_set_and_counts_what_a_block_keeps(config):
    done = run("bench", config, "--json", "--micro-batch", 2, "--rounds", 1, "--steps", 3)
    rows = json.loads(done.stdout)["rows"]
    assert [row["layers"] for row in rows] == ["baseline", "tempo", "lean", "checkpoint"]
    unit, squares, row_number = 2 * 64 * 64, 4 * 2 * 64 * 64, 4 * 2 * 64
    expected = [66 * unit + 9 * squares + 4 * row_number, 40.75 * unit + 4.125 * squares + 2 * row_number,
                40 * unit + 4 * 4 * 2 * 64 + 4 * row_number, 4 * unit]
    assert [row["kept_bytes_per_block"] for row in rows] == expected
    for row in rows:
        times = row["step_ms"]
        assert 0 < times["min"] <= times["median"] <= times["max"]
        assert row["sequences_per_s"] == pytest.approx(2000 / times["median"])
        assert (row["micro_batch"], row["sequence_length"]) == (2, 64)
    peaks = [row["peak_allocated_bytes"] for row in rows]
    assert peaks[0] > peaks[1] > peaks[2] > 0


def test_prints_a_table_of_the_sets_that_are_asked_for(config):
    lines = run("bench", config, "--layers", "lean,baseline", "--rounds", 1, "--steps", 1).stdout.splitlines()
    assert "8 sequences of 64 tokens" in lines[0] and lines[1].split()[:3] == ["layers", "step", "ratio"]
    assert lines[2].startswith("lean ") and " 1.000 " in lines[2] and lines[3].startswith("baseline ") and len(lines) == 4


def test_names_mistakes(config):
    assert "leaner" in run("bench", config, "--layers", "leaner", expect=2).stderr
    assert "data.sequence_length" in run("bench", config, "data.sequence_length=5000", expect=2).stderr
