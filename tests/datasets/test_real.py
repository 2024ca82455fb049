"""Loading, verifying, caching and splitting the real datasets."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sumosurv import datasets
from sumosurv.datasets import _catalogue, _sources

NAMES = ("flchain", "support", "metabric", "gbsg", "whas")
CATEGORICAL = {"flchain": ["flc.grp"], "support": ["x2", "x6"], "metabric": [], "gbsg": ["x1"], "whas": []}
# pycox's own checksums: sha256 of the frame's to_csv()
PYCOX = {
    "flchain": "ec12748a1aa5790457c09793387337bb03b1dc45a22a2d58a8c2b9ad1f2648dd",
    "support": "b07a9d216bf04501e832084e5b7955cb84dfef834810037c548dee82ea251f8d",
    "metabric": "310b74b97cc37c9eddd29f253ae3c06015dc63a17a71e4a68ff339dbe265f417",
    "gbsg": "de2359bee62bf36b9e3f901fea4a9fbef2d145e26e9384617d0d3f75892fe5ce",
}

real_data = pytest.mark.real_data


@pytest.fixture
def data(real_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUMOSURV_DATA", str(real_folder))
    return real_folder


@pytest.fixture
def no_sksurv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sksurv", None)


def serve(monkeypatch: pytest.MonkeyPatch, name: str, path: Path) -> None:
    """Make a local file the public file of a dataset, whatever its values."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = dataclasses.replace(_catalogue.CATALOGUE[name], url=path.as_uri(), file_digest=digest)
    monkeypatch.setitem(_catalogue.CATALOGUE, name, entry)


def write_deepsurv(frame: pd.DataFrame, path: Path, n_train: int) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for part, rows in (("train", slice(0, n_train)), ("test", slice(n_train, None))):
            group = file.create_group(part)
            group["x"] = frame.drop(columns=["duration", "event"]).to_numpy()[rows]
            group["t"] = frame["duration"].to_numpy()[rows]
            group["e"] = frame["event"].to_numpy()[rows]


# ---------------------------------------------------------------------- values


@real_data
@pytest.mark.parametrize("name", NAMES)
def test_values_equal_the_files(name: str, data: Path) -> None:
    raw = datasets.read_parquet(data / f"{name}.parquet")
    loaded = datasets.load(name)
    pd.testing.assert_frame_equal(loaded.frame, raw)
    time, event = loaded.time_name, loaded.event_name
    assert list(loaded.X.columns) == [column for column in raw.columns if column not in (time, event)]
    for column in loaded.X:
        np.testing.assert_array_equal(loaded.X[column].to_numpy(), raw[column].to_numpy())
    np.testing.assert_array_equal(loaded.y["time"], raw[time].to_numpy())
    np.testing.assert_array_equal(loaded.y["event"], raw[event].to_numpy() == 1)
    assert loaded.source == str(data / f"{name}.parquet")


@real_data
@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name: str, data: Path) -> None:
    X, y = datasets.load(name)
    assert X.columns[X.dtypes == "category"].tolist() == CATEGORICAL[name]
    for column in CATEGORICAL[name]:
        assert X[column].cat.categories.dtype == np.int64
    numeric = X.drop(columns=CATEGORICAL[name])
    assert set(numeric.dtypes.astype(str)) <= {"float32", "int64"}
    assert y.dtype == np.dtype([("event", "?"), ("time", "<f8")])
    assert isinstance(X.index, pd.RangeIndex)


@real_data
@pytest.mark.parametrize("name", PYCOX)
def test_frame_has_the_checksum_of_pycox(name: str, data: Path) -> None:
    assert hashlib.sha256(datasets.load(name).frame.to_csv().encode()).hexdigest() == PYCOX[name]


@real_data
@pytest.mark.parametrize("name", NAMES)
def test_facts_of_the_catalogue(name: str, data: Path) -> None:
    loaded = datasets.load(name)
    facts = datasets.available().set_index("name").loc[name]
    assert (len(loaded), loaded.X.shape[1]) == (facts["rows"], facts["covariates"])
    assert facts["censored"] == pytest.approx(1 - loaded.y["event"].mean(), abs=5e-5)
    assert facts["source"] == loaded.source
    whole = bool((loaded.y["time"] % 1 == 0).all())
    assert loaded.resolution == (1.0 if whole else None)
    assert loaded.time_unit in loaded.description


@real_data
def test_flchain_of_scikit_survival_equals_the_file(real_folder: Path) -> None:
    pytest.importorskip("sksurv")
    loaded = datasets.load("flchain")
    assert loaded.source == "scikit-survival"
    pd.testing.assert_frame_equal(loaded.frame, datasets.read_parquet(real_folder / "flchain.parquet"))


def test_flchain_without_a_data_folder() -> None:
    pytest.importorskip("sksurv")
    X, y = datasets.load("flchain")
    assert X.shape == (6524, 8)
    assert y["event"].sum() == 1962


def test_the_bundled_table_equals_that_of_lifelines() -> None:
    load_gbsg2 = pytest.importorskip("lifelines.datasets").load_gbsg2
    loaded = datasets.load("gbsg2")
    expected = load_gbsg2().replace({"Pre": "pre", "Post": "post"})
    expected.columns = loaded.frame.columns
    order = ["days", "age", "tumour_size", "positive_nodes"]
    pd.testing.assert_frame_equal(
        loaded.frame.sort_values(order).reset_index(drop=True), expected.sort_values(order).reset_index(drop=True)
    )
    assert loaded.X.columns[loaded.X.dtypes == "category"].tolist() == ["hormone_therapy", "menopause", "tumour_grade"]
    assert loaded.y["event"].sum() == expected["event"].sum()
    notice = Path(loaded.source).with_name("gbsg2.LICENSE.txt").read_text(encoding="utf-8")
    assert "MIT License" in notice


def test_loads_do_not_share_memory() -> None:
    first = datasets.load("gbsg2")
    first.X.loc[0, "age"] = -1
    assert first.frame.loc[0, "age"] == 38
    assert datasets.load("gbsg2").X.loc[0, "age"] == 38


# ---------------------------------------------------------------------- download, cache, refusal


@real_data
def test_download_is_verified_and_kept(
    real_folder: Path, no_copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = datasets.read_parquet(real_folder / "gbsg.parquet")
    public = tmp_path / "gbsg_cancer_train_test.h5"
    write_deepsurv(raw, public, n_train=1546)
    serve(monkeypatch, "gbsg", public)
    sources = datasets.available().set_index("name")["source"]
    assert sources["gbsg"] == "download"

    first = datasets.load("gbsg")
    pd.testing.assert_frame_equal(first.frame, raw)
    assert first.source == public.as_uri()

    public.unlink()
    second = datasets.load("gbsg")
    pd.testing.assert_frame_equal(second.frame, raw)
    assert second.source == str(no_copies / "gbsg.parquet")
    assert [path.name for path in no_copies.iterdir()] == ["gbsg.parquet"]


@real_data
def test_flchain_from_the_public_csv(
    real_folder: Path, no_sksurv: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = datasets.read_parquet(real_folder / "flchain.parquet")
    table = raw.assign(sex=raw["sex"].map({0.0: "F", 1.0: "M"}), chapter="Circulatory")
    table = pd.concat([table.iloc[:10], table.iloc[:3], table.iloc[10:]])
    table.iloc[10:13, table.columns.get_loc("creatinine")] = np.nan  # three rows to leave out
    table.index = pd.RangeIndex(1, len(table) + 1, name="rownames")
    public = tmp_path / "flchain.csv"
    table.to_csv(public)
    serve(monkeypatch, "flchain", public)
    pd.testing.assert_frame_equal(datasets.load("flchain").frame, raw)


@real_data
def test_changed_download_is_refused_and_not_kept(
    real_folder: Path, no_copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = datasets.read_parquet(real_folder / "gbsg.parquet")
    raw.loc[7, "x3"] += 1
    public = tmp_path / "changed.h5"
    write_deepsurv(raw, public, n_train=1546)
    serve(monkeypatch, "gbsg", public)
    with pytest.raises(datasets.ChecksumError, match=r"gbsg.*sha256"):
        datasets.load("gbsg")
    assert not no_copies.exists()


def test_too_large_download_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    public = tmp_path / "large.h5"
    public.write_bytes(bytes(101))
    serve(monkeypatch, "gbsg", public)
    monkeypatch.setattr(_sources, "_LARGEST", 100)
    with pytest.raises(datasets.ChecksumError, match="larger than 100 bytes"):
        datasets.load("gbsg")


def test_changed_file_in_the_data_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = _catalogue.CATALOGUE["metabric"]
    zeros = pd.DataFrame({column: np.zeros(3) for column in entry.dtypes})
    monkeypatch.setenv("SUMOSURV_DATA", str(tmp_path))
    path = tmp_path / "metabric.parquet"
    datasets.write_parquet(zeros, path)
    with pytest.raises(datasets.ChecksumError, match="3 rows, expected 1904"):
        datasets.load("metabric")
    datasets.write_parquet(zeros.rename(columns={"x0": "y0"}), path)
    with pytest.raises(datasets.ChecksumError, match=r"has the columns y0, .*expected x0"):
        datasets.load("metabric")
    datasets.write_parquet(zeros.assign(x0="a"), path)
    with pytest.raises(datasets.ChecksumError, match="not numbers"):
        datasets.load("metabric")


def test_damaged_cache_is_refused(no_copies: Path) -> None:
    no_copies.mkdir()
    (no_copies / "support.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(datasets.ChecksumError, match=r"support\.parquet .*Remove"):
        datasets.load("support")


@real_data
def test_unwritable_cache_is_a_warning(real_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = tmp_path / "whas_train_test.h5"
    write_deepsurv(datasets.read_parquet(real_folder / "whas.parquet"), public, n_train=1310)
    serve(monkeypatch, "whas", public)
    blocked = tmp_path / "a file, not a folder"
    blocked.write_text("")
    monkeypatch.setenv("SUMOSURV_CACHE", str(blocked / "cache"))
    with pytest.warns(UserWarning, match=r"whas\.parquet.*SUMOSURV_CACHE"):
        assert len(datasets.load("whas")) == 1638


# ---------------------------------------------------------------------- nothing there


def test_offline_error_says_how_to_get_it(no_sksurv: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        assert kwargs["timeout"] > 0  # type: ignore[operator]
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    with pytest.raises(FileNotFoundError, match="no route to host") as caught:
        datasets.load("flchain")
    assert isinstance(caught.value, datasets.DatasetUnavailableError)
    for way in ("SUMOSURV_DATA", "flchain.parquet", "pip install scikit-survival", "network connection"):
        assert way in str(caught.value)


def test_without_h5py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(datasets.DatasetUnavailableError, match=r"pip install h5py.*SUMOSURV_DATA"):
        datasets.load("support")


def test_missing_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMOSURV_DATA", str(tmp_path / "gone"))
    with pytest.raises(datasets.DatasetUnavailableError, match=r"gone.*not a folder"):
        datasets.load("flchain")


def test_empty_data_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMOSURV_DATA", str(tmp_path))
    sources = datasets.available().set_index("name")["source"]
    assert set(sources.drop("gbsg2")) <= {"download", "scikit-survival"}


@pytest.mark.parametrize("name", ["nope", None, ["gbsg"]])
def test_unknown_name(name: object) -> None:
    with pytest.raises(ValueError, match=r"gbsg2, flchain, support, .* whas"):
        datasets.load(name)  # type: ignore[arg-type]


def test_cache_folder_of_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SUMOSURV_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _sources.cache_folder() == tmp_path / "sumosurv"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _sources.cache_folder() == Path.home() / ".cache" / "sumosurv"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert _sources.cache_folder() == Path.home() / "Library" / "Caches" / "sumosurv"


# ---------------------------------------------------------------------- digest, files


def test_digest_knows_content_only() -> None:
    frame = pd.DataFrame({"a": np.array([1.0, 2.0], dtype="f4"), "b": [3, 4]})
    digest = _catalogue.content_digest(frame)
    assert digest == _catalogue.content_digest(frame.set_index(pd.Index([7, 8])))
    assert digest == _catalogue.content_digest(frame.astype({"a": ">f4"}))
    for other in (frame.rename(columns={"a": "c"}), frame[["b", "a"]], frame.iloc[::-1], frame.astype({"a": "f8"})):
        assert digest != _catalogue.content_digest(other)


def test_written_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "frame.parquet"
    frame = pd.DataFrame({"a": [1.5], "b": ["x"]}, index=[5])
    datasets.write_parquet(frame, path)
    pd.testing.assert_frame_equal(datasets.read_parquet(path), frame.reset_index(drop=True))
    before = path.read_bytes()
    with pytest.raises(Exception, match="object"):
        datasets.write_parquet(pd.DataFrame({"a": [object()]}), path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["frame.parquet"]


@pytest.mark.skipif(sys.platform == "win32", reason="exit codes of an abort differ")
def test_reading_leaves_a_clean_exit(tmp_path: Path) -> None:
    path = tmp_path / "frame.parquet"
    datasets.write_parquet(pd.DataFrame({"a": np.arange(1000.0)}), path)
    for package in ("datasets", "sources", "sources"):  # the first imports torch too
        code = f"import sys; from sumosurv.{package} import read_parquet; read_parquet(sys.argv[1])"
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------- folds


@real_data
@pytest.mark.parametrize("name", ["flchain", "support", "metabric", "gbsg"])
@pytest.mark.parametrize("i", range(5))
def test_rule_gives_the_stored_folds(name: str, i: int, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = datasets.fold(name, i)
    with np.load(data / "folds.npz") as folds:
        for part in ("train", "valid", "test"):
            np.testing.assert_array_equal(getattr(stored, part), folds[f"{name}_{part}_{i}"])
    monkeypatch.setattr("sumosurv.datasets.real._stored_fold", lambda name, i: None)
    for made, kept in zip(datasets.fold(name, i), stored):
        np.testing.assert_array_equal(made, kept)
        assert made.dtype == kept.dtype == np.intp


def test_folds_without_a_data_folder() -> None:
    pytest.importorskip("sksurv")
    folds = [datasets.fold("flchain", i) for i in range(5)]
    tests = np.sort(np.concatenate([fold.test for fold in folds]))
    np.testing.assert_array_equal(tests, np.arange(6524))
    event = datasets.load("flchain").y["event"]
    for fold in folds:
        np.testing.assert_array_equal(np.sort(np.concatenate(fold)), np.arange(6524))
        assert all(abs(event[part].mean() - event.mean()) < 1e-3 for part in fold)


@real_data
def test_fold_of_a_dataset_that_the_file_lacks(data: Path) -> None:
    train, valid, test = datasets.fold("whas", 2)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, valid, test])), np.arange(1638))


@pytest.mark.parametrize("i", [-1, 5, 0.5, True, "0"])
def test_fold_number(i: object) -> None:
    with pytest.raises(ValueError, match="numbered 0 to 4"):
        datasets.fold("gbsg", i)  # type: ignore[arg-type]


def test_wrong_fold_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMOSURV_DATA", str(tmp_path))
    np.savez(tmp_path / "folds.npz", gbsg_train_0=np.arange(9), gbsg_valid_0=np.arange(3), gbsg_test_0=np.arange(3))
    with pytest.raises(ValueError, match="each of the 2232 rows exactly once"):
        datasets.fold("gbsg", 0)
