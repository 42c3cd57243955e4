"""Runs tempo under io_shim, which records the calls that change files below a folder, or lets one of them fail."""
import os
import subprocess
import tempfile
from typing import NamedTuple

from bert_fixture import BUILD, TEMPO

SHIM = BUILD / "io_shim.so"


class Call(NamedTuple):
    """A line of io_shim's record; path and target are relative to the folder, "" is the folder itself."""
    name: str
    error: int
    is_injected: bool
    path: str
    target: str
    number: int
    data: bytes


def run_watched(folder, *arguments, fail="", leave_out=""):
    """Runs tempo; returns the finished process and its calls on `folder`, a resolved path. `fail` is TEMPO_IO_FAIL."""
    with tempfile.NamedTemporaryFile() as log:
        settings = {"LD_PRELOAD": SHIM, "TEMPO_IO_FOLDER": folder, "TEMPO_IO_EXCEPT": leave_out,
                    "TEMPO_IO_LOG": log.name, "TEMPO_IO_FAIL": fail,
                    "ASAN_OPTIONS": f"verify_asan_link_order=0:{os.environ.get('ASAN_OPTIONS', '')}"}
        environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        command = [TEMPO, *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        return done, read_calls(log, folder)


def read_calls(log, folder):
    calls = []
    while line := log.readline():
        name, error, is_injected, path, target, number, size = line.decode().rstrip("\n").split("\t")
        data = log.read(int(size))
        assert len(data) == int(size) and log.read(1) == b"\n", line
        below = (one.removeprefix(str(folder)).removeprefix("/") for one in (path, target))
        calls.append(Call(name, int(error), is_injected == "1", *below, int(number), data))
    return calls
