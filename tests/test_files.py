"""Files are written whole or not at all, under a name that nobody else uses."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from sumosurv.files import check_writable, replacing


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_target_is_replaced_at_the_end(tmp_path):
    target = tmp_path / "table.csv.gz"
    target.write_text("old")
    with replacing(target) as partial:
        assert partial.parent == tmp_path
        assert partial.suffix == ".gz"  # pandas compresses by the suffix
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert names(tmp_path) == ["table.csv.gz"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path, error):
    target = tmp_path / "model.sumo"
    target.write_text("old")

    def write():
        with replacing(target) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["model.sumo"]


def test_two_writers_of_one_path(tmp_path):
    target, both = tmp_path / "a", threading.Barrier(2)

    def write(text: str) -> None:
        with replacing(target) as partial:
            partial.write_text(text)
            both.wait(10)

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert target.read_text() in ("one", "two")
    assert names(tmp_path) == ["a"]


def test_permissions_are_those_of_the_file_or_of_any_new_one(tmp_path):
    old, new, plain = tmp_path / "old", tmp_path / "new", tmp_path / "plain"
    old.touch()
    old.chmod(0o640)
    plain.touch()
    for target in (old, new):
        with replacing(target) as partial:
            partial.chmod(0o600)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert new.stat().st_mode == plain.stat().st_mode


def test_links_are_followed_and_devices_are_not_replaced(tmp_path):
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.touch()
    link.symlink_to(real)
    with replacing(link) as partial:
        partial.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    with replacing(pipe) as partial:
        partial.write_text("through")
    reader.join()
    assert got == ["through"]
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("name", "kind", "match"),
    [
        ("nowhere/a.csv", FileNotFoundError, "nowhere does not exist"),
        ("folder", IsADirectoryError, "is a folder"),
        ("locked", PermissionError, "read-only"),
        ("a" * 300, OSError, "too long"),
        ("locked/a.csv", FileNotFoundError, "does not exist"),
    ],
)
def test_bad_targets_are_found_before_the_work(tmp_path, name, kind, match):
    (tmp_path / "folder").mkdir()
    (tmp_path / "locked").touch(mode=0o444)
    before = names(tmp_path)
    with pytest.raises(kind, match=match):
        check_writable(tmp_path / name)
    with pytest.raises(kind, match=match), replacing(tmp_path / name):
        pytest.fail("the work was started")
    assert names(tmp_path) == before


def test_a_folder_that_takes_no_file(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", "?")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(PermissionError, match=f"Permission denied.*{tmp_path.name}"):
        check_writable(tmp_path / "a")


def test_a_good_target_stays_as_it_is(tmp_path):
    target = tmp_path / "a"
    check_writable(target)
    assert names(tmp_path) == []
    target.write_text("old")
    check_writable(str(target))
    check_writable("/dev/null")
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a"]
