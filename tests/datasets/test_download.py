"""Downloads, caches and files that are broken: the library's own errors, which say what to do.

The servers here listen on 127.0.0.1, answer one connection and end by themselves.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from paper.kkbox import load_kkbox
from sumosurv import datasets
from sumosurv.datasets import _catalogue, _sources

Reply = Callable[[socket.socket], None]


def point(monkeypatch: pytest.MonkeyPatch, url: str, content: bytes | None = None, name: str = "gbsg") -> None:
    """Make an address that of a dataset's public file, and this its content."""
    entry = dataclasses.replace(_catalogue.CATALOGUE[name], url=url)
    if content is not None:
        entry = dataclasses.replace(entry, file_digest=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(_catalogue.CATALOGUE, name, entry)


@pytest.fixture
def server() -> Iterator[Callable[[Reply], str]]:
    """Start a server that gives one connection a reply; returns its address."""
    threads = []
    sockets = []

    def start(reply: Reply) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(10.0)
        sockets.append(listener)

        def answer() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10.0)
                try:
                    connection.recv(65536)
                    reply(connection)
                except OSError:
                    pass  # the client has gone

        thread = threading.Thread(target=answer)
        thread.start()
        threads.append(thread)
        return f"http://127.0.0.1:{listener.getsockname()[1]}/gbsg.h5"

    yield start
    for listener in sockets:
        listener.close()
    for thread in threads:
        thread.join(timeout=15.0)
        assert not thread.is_alive()


def sends(*parts: bytes, pause: float = 0.0) -> Reply:
    def reply(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)

    return reply


# ---------------------------------------------------------------------- on the way


def test_a_whole_file_comes_through(server: Callable[[Reply], str]) -> None:
    content = os.urandom(200_000)
    url = server(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n", content))
    assert _sources._download(url) == content


def test_no_more_is_read_than_wanted(server: Callable[[Reply], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sources, "_LARGEST", 70_000)
    url = server(sends(b"HTTP/1.1 200 OK\r\n\r\n", bytes(100_000)))
    assert _sources._download(url) == bytes(70_001)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((b"what is this?\r\n\r\n",), "BadStatusLine"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nonly this",), "IncompleteRead"),
        ((b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",), "404"),
        ((), "without response"),
    ],
    ids=["no HTTP", "chunk cut short", "not found", "nothing"],
)
def test_broken_replies_are_errors_that_say_what_to_do(
    parts: tuple[bytes, ...], message: str, server: Callable[[Reply], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("h5py")
    point(monkeypatch, server(sends(*parts)))
    with pytest.raises(datasets.DatasetUnavailableError, match=message) as caught:
        datasets.load("gbsg")
    assert "set SUMOSURV_DATA to a folder that holds gbsg.parquet" in str(caught.value)


def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    point(monkeypatch, "http://127.0.0.1:port/gbsg.h5")
    with pytest.raises(datasets.DatasetUnavailableError, match="nonnumeric port"):
        datasets.load("gbsg")


def test_a_file_that_was_cut_short_is_refused(server: Callable[[Reply], str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    point(monkeypatch, server(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", bytes(10))), bytes(1000))
    with pytest.raises(datasets.ChecksumError, match="10 bytes"):
        datasets.load("gbsg")


def test_a_silent_server(server: Callable[[Reply], str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    point(monkeypatch, server(sends(b"HTTP/1.1 200 OK\r\n\r\n", pause=1.0)))
    monkeypatch.setattr(_sources, "_TIMEOUT", 0.2)
    with pytest.raises(datasets.DatasetUnavailableError, match="timed out"):
        datasets.load("gbsg")


# ---------------------------------------------------------------------- what came


def test_a_changed_file_is_refused_before_it_is_read(
    no_copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("h5py")
    monkeypatch.setattr(_sources, "_from_public_file", lambda *arguments: pytest.fail("an unknown file was read"))
    file = tmp_path / "gbsg.h5"
    file.write_bytes(b"\x89HDF\r\n\x1a\n and something else")
    point(monkeypatch, file.as_uri())
    with pytest.raises(datasets.ChecksumError, match=r"'gbsg'.* sha256 .*Load again"):
        datasets.load("gbsg")
    assert not no_copies.exists()


@pytest.mark.parametrize("damage", ["cut short", "groups for arrays", "one column", "empty"])
def test_a_file_that_h5py_cannot_read(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "gbsg.h5"
    with h5py.File(file, "w") as made:
        for part in ("train", "test") if damage != "empty" else ():
            group = made.create_group(part)
            for key in "xte":
                if damage == "groups for arrays":
                    group.create_group(key)
                else:
                    group[key] = np.zeros(3)
    content = file.read_bytes()[: 100 if damage == "cut short" else None]
    file.write_bytes(content)
    point(monkeypatch, file.as_uri(), content)
    with pytest.raises(datasets.DatasetUnavailableError, match=r"h5py cannot read it .*SUMOSURV_DATA"):
        datasets.load("gbsg")


def test_a_csv_file_that_pandas_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sksurv", None)
    file = tmp_path / "flchain.csv"
    file.write_bytes(b"age,sex\n1,M\n\xff\xfe,F,3,4\n")
    point(monkeypatch, file.as_uri(), file.read_bytes(), "flchain")
    with pytest.raises(datasets.DatasetUnavailableError, match=r"(?s)pandas .*SUMOSURV_DATA"):
        datasets.load("flchain")


# ---------------------------------------------------------------------- what was kept


def with_broken_notes(path: Path) -> None:
    """A Parquet file whose note on how pandas is to read it makes no sense."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"a": [1.0]}).replace_schema_metadata({b"pandas": b'{"columns": [{}], "index_columns": ["a"]}'})
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path)


def test_a_cache_that_makes_no_sense(no_copies: Path) -> None:
    with_broken_notes(no_copies / "support.parquet")
    with pytest.raises(datasets.ChecksumError, match=r"support\.parquet .*Remove"):
        datasets.load("support")


def test_any_damage_to_a_cache_is_noticed(no_copies: Path) -> None:
    entry = _catalogue.CATALOGUE["whas"]
    path = no_copies / entry.file
    datasets.write_parquet(pd.DataFrame({name: np.zeros(20, kind) for name, kind in entry.dtypes.items()}), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(whole), 150, replace=False):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ rng.integers(1, 256)]) + whole[place + 1 :])
        with pytest.raises(datasets.ChecksumError):
            datasets.load("whas")
    for length in rng.choice(len(whole), 20, replace=False):
        path.write_bytes(whole[:length])
        with pytest.raises(datasets.ChecksumError):
            datasets.load("whas")


@pytest.mark.parametrize("variable", ["SUMOSURV_DATA", "SUMOSURV_CACHE"])
@pytest.mark.parametrize("value", ["x" * 5000, "~nobody-of-that-name/data"], ids=["too long", "no home"])
def test_folders_that_cannot_be(variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    monkeypatch.setenv(variable, value)
    point(monkeypatch, (tmp_path / "gone.h5").as_uri())
    with pytest.raises(datasets.DatasetUnavailableError, match=r"folder|downloaded"):
        datasets.load("gbsg")


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut short", b"\x80\x04K\x01."])
def test_a_broken_file_of_folds(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMOSURV_DATA", str(tmp_path))
    (tmp_path / "folds.npz").write_bytes(content)
    with pytest.raises(datasets.ChecksumError, match=r"folds\.npz cannot be read .*replace"):
        datasets.fold("gbsg", 0)


def test_a_broken_cache_of_kkbox(tmp_path: Path) -> None:
    cached = tmp_path / "kkbox_spells_1.parquet"
    with_broken_notes(cached)
    with pytest.raises(datasets.ChecksumError, match=r"read as a Parquet .*made again"):
        load_kkbox(tmp_path)
    datasets.write_parquet(pd.DataFrame({"msno": ["a"], "start": [0]}), cached)
    with pytest.raises(datasets.ChecksumError, match=r"duration.*made again"):
        load_kkbox(tmp_path)
