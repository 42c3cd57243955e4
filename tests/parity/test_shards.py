"""`tempo inspect` shows every field of every row of a shard as h5py reads it. The real shards are NVIDIA's script's."""
import json

import h5py
import numpy as np
import pytest
from bert_fixture import ROOT, run

SHARDS = sorted((ROOT / "tests/golden/nvidia_shards").glob("*.hdf5"))
FIELDS = ["input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels"]


def inspect(*arguments):
    """What `tempo inspect ... --json` prints, a value a line."""
    return [json.loads(line) for line in run("inspect", *arguments, "--json").stdout.splitlines()]


def contents(path):
    with h5py.File(path) as file:
        return {field: file[field][:] for field in FIELDS}


def write(path, columns, dtype=None, **options):
    with h5py.File(path, "w") as file:
        for field, values in columns.items():
            file.create_dataset(field, data=values.astype(dtype or values.dtype), **options)


def assert_rows_equal(path, columns, rows):
    for row, shown in zip(rows, inspect(path, "--row", *rows), strict=True):
        assert shown == {"row": row, **{field: columns[field][row].tolist() for field in FIELDS}}


@pytest.fixture(scope="module")
def small():
    """Twelve rows with ids below 100, so that they fit every integer type."""
    random = np.random.default_rng(7)
    rows, length, slots = 12, 16, 3
    lengths = random.integers(6, length + 1, rows)
    mask = (np.arange(length) < lengths[:, None]).astype("i8")
    positions = np.zeros((rows, slots), "i8")
    labels = np.zeros((rows, slots), "i8")
    for row in range(rows):
        count = row % (slots + 1)
        positions[row, :count] = np.sort(random.choice(np.arange(1, lengths[row]), count, replace=False))
        labels[row, :count] = random.integers(5, 100, count)
    return {
        "input_ids": random.integers(5, 100, (rows, length)) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length) >= lengths[:, None] // 2) * mask,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "next_sentence_labels": random.integers(0, 2, rows),
    }


def test_there_are_real_shards():
    assert len(SHARDS) >= 2


@pytest.mark.parametrize("path", SHARDS, ids=lambda path: path.name)
def test_every_field_of_every_row_of_a_real_shard(path):
    columns = contents(path)
    assert_rows_equal(path, columns, range(len(columns["input_ids"])))


@pytest.mark.parametrize("path", SHARDS, ids=lambda path: path.name)
def test_summary_of_a_real_shard(path):
    columns = contents(path)
    (shown,) = inspect(path)
    real_tokens = int(columns["input_mask"].sum(dtype="i8"))
    assert shown["kind"] == "shard"
    assert shown["rows"] == len(columns["input_ids"])
    assert shown["sequence_length"] == columns["input_ids"].shape[1]
    assert shown["max_predictions"] == columns["masked_lm_ids"].shape[1]
    assert shown["max_token_id"] == columns["input_ids"].max()
    assert shown["fill"] == pytest.approx(real_tokens / columns["input_ids"].size, rel=1e-6)
    assert shown["masked_share"] == pytest.approx((columns["masked_lm_positions"] != 0).sum() / real_tokens, rel=1e-6)
    assert shown["next_sentence_share"] == pytest.approx(columns["next_sentence_labels"].mean(), rel=1e-6)


@pytest.mark.parametrize("dtype", ["i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", ">i2", ">i4", ">i8", ">u8"])
def test_every_integer_type(tmp_path, small, dtype):
    path = tmp_path / "shard.hdf5"
    write(path, small, dtype)
    assert_rows_equal(path, small, range(12))


@pytest.mark.parametrize(
    "options",
    [{"compression": "gzip"}, {"compression": "gzip", "shuffle": True, "chunks": True}, {"chunks": True}, {"fletcher32": True}],
    ids=["gzip", "gzip-shuffle", "chunked", "checksummed"],
)
def test_every_layout(tmp_path, small, options):
    path = tmp_path / "shard.hdf5"
    write(path, small, "<i4", **options)
    assert_rows_equal(path, small, range(12))


def test_file_format_of_hdf5_1_10(tmp_path, small):
    path = tmp_path / "shard.hdf5"
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        for field, values in small.items():
            file.create_dataset(field, data=values, chunks=True, compression="gzip", maxshape=(None,) + values.shape[1:])
        file.attrs["written_by"] = "a test"
        file.create_dataset("masked_lm_weights", data=np.ones(3, "f4"))
    assert_rows_equal(path, small, range(12))


def test_large_ids_do_not_wrap(tmp_path, small):
    columns = {**small, "input_ids": small["input_ids"] + 69900 * small["input_mask"]}
    path = tmp_path / "shard.hdf5"
    write(path, columns)
    assert_rows_equal(path, columns, range(12))


def test_two_processes_read_one_file_that_a_third_holds_open(tmp_path, small):
    path = tmp_path / "shard.hdf5"
    write(path, small)
    with h5py.File(path, "r+"):
        assert_rows_equal(path, small, range(12))


def test_damaged_shards_are_the_users_mistake_and_are_named(tmp_path, small):
    path = tmp_path / "shard.hdf5"
    write(path, small)
    whole = path.read_bytes()
    for damaged in [whole[: len(whole) // 2], b"", b"text"]:
        path.write_bytes(damaged)
        assert str(path) in run("inspect", path, expect=2).stderr


def test_variable_length_shards_are_refused_in_words(tmp_path):
    path = tmp_path / "shard.hdf5"
    with h5py.File(path, "w") as file:
        ids = file.create_dataset("input_ids", (2,), h5py.vlen_dtype(np.dtype("i2")))
        ids[0] = [101, 102]
        ids[1] = [101, 7, 102]
    assert "variable-length" in run("inspect", path, expect=2).stderr
