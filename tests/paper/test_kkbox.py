"""KKBOX from small files of Kaggle's schema, with the rows that follow from them by hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import paper.kkbox as module
from paper.kkbox import load_kkbox
from paper.kkbox.files import days_of, find_files
from sumosurv import SumoNet, datasets
from sumosurv.datasets import DatasetUnavailableError, fold_by_customer

TRANSACTIONS = """\
msno,payment_method_id,payment_plan_days,plan_list_price,actual_amount_paid,is_auto_renew,transaction_date,membership_expire_date,is_cancel
anna,41,30,149,149,1,20160205,20160306,0
anna,41,30,149,0,1,20160101,20160131,0
anna,38,30,129,129,0,20160420,20160520,1
ben,36,30,180,180,0,20170115,20170214,0
NA,41,30,149,149,1,20170110,20170209,0
dora,41,30,149,149,1,20150301,20150331,0
dora,41,30,149,149,1,20150430,20150530,0
emil,41,30,149,149,1,20150601,20150701,0
emil,41,30,149,149,1,20150710,20150705,1
emil,40,30,149,149,1,20150901,20170315,0
fay,41,30,149,149,1,20160501,20160531,0
fay,35,90,447,400,0,20160501,20160730,0
gus,41,30,149,149,1,20160505,20160505,0
hana,41,30,149,149,1,20160101,20160131,0
hana,41,30,149,149,1,20161201,20161231,0
hana,41,30,149,149,1,20170101,20170215,0
"""
MEMBERS = """\
msno,city,bd,gender,registered_via,registration_init_time
anna,1,30,female,7,20150101
NA,13,0,,9,20170101
dora,5,900,male,4,20150228
emil,1,27,,3,20160101
fay,22,40,male,7,20160501
zoe,1,33,male,7,20100101
"""
TRAIN = "msno,is_churn\nanna,0\nNA,1\nben,0\n"

# msno, start, duration, event, earlier churns, days since the spell before
SPELLS = [
    ("NA", "2017-01-10", 30, True, 0, np.nan),  # after the last churn day; train.csv says churned
    ("anna", "2016-01-01", 65, True, 0, np.nan),  # renewed after 5 days, not for 45 days after 6 March
    ("anna", "2016-04-20", 30, True, 1, 45),
    ("ben", "2017-01-15", 30, False, 0, np.nan),
    ("dora", "2015-03-01", 90, True, 0, np.nan),  # renewed on the 30th day
    ("emil", "2015-06-01", 30, True, 0, np.nan),
    ("emil", "2015-09-01", 561, False, 1, 62),
    ("fay", "2016-05-01", 90, True, 0, np.nan),
    ("hana", "2016-01-01", 30, True, 0, np.nan),
    ("hana", "2016-12-01", 76, False, 1, 305),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "kaggle"
    place.mkdir()
    for name, text in (("transactions.csv", TRANSACTIONS), ("members_v3.csv", MEMBERS), ("train.csv", TRAIN)):
        (place / name).write_text(text)
    return place


def test_spells_by_hand(folder: Path) -> None:
    data = load_kkbox(folder, progress=False)
    f = data.frame
    found = list(
        zip(
            f["msno"],
            f["start"].dt.strftime("%Y-%m-%d"),
            data.y["time"],
            data.y["event"],
            f["n_prev_churns"],
            f["days_between_subs"],
        )
    )
    assert len(found) == len(SPELLS)
    for row, expected in zip(found, SPELLS):
        assert row[:5] == expected[:5]
        np.testing.assert_equal(float(row[5]), float(expected[5]))
    assert len(set(data.customer)) == 7
    np.testing.assert_array_equal(data.customer[[1, 2]], data.customer[1])
    assert "30.0% censored" in data.description


def test_covariates_by_hand(folder: Path) -> None:
    data = load_kkbox(folder, progress=False)
    X = data.X.set_index(pd.Index([f"{m} {s:%y%m%d}" for m, s in zip(data.frame["msno"], data.frame["start"])]))
    assert X.shape == (10, 14)
    anna = X.loc["anna 160420"]
    assert [anna[c] for c in ("payment_plan_days", "plan_list_price", "actual_amount_paid")] == [30, 129, 129]
    assert [anna[c] for c in ("is_auto_renew", "is_cancel", "payment_method_id", "city")] == [0, 1, 38, 1]
    assert anna["gender"] == "female"
    assert anna["age_at_start"] == 29  # 30 on 1 March 2017, 315 days later
    assert anna["days_since_reg_init"] == 475
    # the last of two transactions on the first day speaks
    assert list(X.loc["fay 160501", ["payment_plan_days", "plan_list_price", "payment_method_id"]]) == [90, 447, 35]
    assert X.loc["fay 160501", "days_since_reg_init"] == 0


def test_missing_values_stay_missing(folder: Path) -> None:
    data = load_kkbox(folder, progress=False)
    X = data.X.set_index(data.frame["msno"])
    for column in ("city", "gender", "registered_via", "age_at_start", "days_since_reg_init"):
        assert pd.isna(X.loc["ben", column])  # who is not among the members
    assert pd.isna(X.loc["NA", "gender"])
    assert X.loc["NA", "strange_age"] == 1
    assert pd.isna(X.loc["NA", "age_at_start"])
    assert X.loc["dora", "strange_age"] == 1
    assert X.loc["ben", "strange_age"] == 0
    assert X.loc["emil", "days_since_reg_init"].isna().all()  # both spells began before the registration
    assert X.dtypes["city"] == "category"
    assert list(X["city"].cat.categories) == [1, 5, 13, 22]


def test_as_published(folder: Path) -> None:
    data = load_kkbox(folder, as_published=True, progress=False)
    f = data.frame
    # emil: the broken transaction counts as a renewal, and he registered later; hana's current spell is left out
    assert list(f["msno"]) == ["NA", "anna", "anna", "ben", "dora", "fay", "hana"]
    assert list(data.y["time"]) == [30, 65, 30, 30, 90, 90, 30]
    assert list(data.y["event"]) == [True, True, True, False, True, True, True]
    X = data.X
    assert X.shape[1] == 15
    np.testing.assert_allclose(X["log_days_between_subs"], np.log([1, 1, 46, 1, 1, 1, 1]), rtol=1e-6)
    np.testing.assert_allclose(X["log_days_since_reg_init"], np.log([11, 367, 477, 1, 3, 2, 1]), rtol=1e-6)
    assert list(X["nan_days_since_reg_init"]) == [0, 0, 0, 1, 0, 0, 1]
    assert list(X["age_at_start"]) == [0, 29, 29, -1, 100, 39, -1]
    assert list(X["strange_age"]) == [1, 0, 0, 0, 1, 0, 0]
    assert list(X["no_prev_churns"]) == [1, 1, 0, 1, 1, 1, 1]


def test_published_days_between_only_in_spells_of_one_transaction(folder: Path) -> None:
    later = "anna,38,30,129,129,0,20160521,20160620,0\n"
    (folder / "transactions.csv").write_text(TRANSACTIONS + later)
    published = load_kkbox(folder, as_published=True, progress=False).X["log_days_between_subs"]
    assert (published == 0).all()
    assert 45 in set(load_kkbox(folder, progress=False).X["days_between_subs"])


@pytest.mark.parametrize(("n_buckets", "chunk_rows"), [(1, 3), (5, 1), (64, 1000)])
def test_pieces_do_not_matter(folder: Path, n_buckets: int, chunk_rows: int) -> None:
    whole = module._make(folder, find_files(folder), False, False)
    parts = module._make(folder, find_files(folder), False, False, n_buckets, chunk_rows)
    for frame in (whole, parts):  # pandas 3 has two ways of saying that a text is missing
        frame["gender"] = pd.Categorical(frame["gender"], categories=["female", "male"])
    pd.testing.assert_frame_equal(parts, whole)


def test_cache_beside_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_kkbox(folder, progress=False)
    assert Path(first.source).parent == folder
    for raw in ("transactions.csv", "members_v3.csv"):
        (folder / raw).unlink()
    again = load_kkbox(folder, progress=False)
    pd.testing.assert_frame_equal(again.frame, first.frame)
    # a raw file that is newer makes the cache void
    (folder / "transactions.csv").write_text(TRANSACTIONS.replace("ben,36,30,180", "ben,36,30,99"))
    (folder / "members_v3.csv").write_text(MEMBERS)
    later = Path(first.source).stat().st_mtime + 10
    os.utime(folder / "transactions.csv", (later, later))
    assert 99 in set(load_kkbox(folder, progress=False).X["plan_list_price"])
    monkeypatch.setenv("SUMOSURV_DATA", str(folder.parent))
    folder.rename(folder.parent / "kkbox")
    assert len(load_kkbox(progress=False)) == 10


def test_no_cache(folder: Path) -> None:
    load_kkbox(folder, cache=False, progress=False)
    assert sorted(path.name for path in folder.iterdir()) == ["members_v3.csv", "train.csv", "transactions.csv"]


def test_progress_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_kkbox(folder, cache=False)
    assert "KKBOX files" in capsys.readouterr().err


def test_missing_files_say_where_to_get_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUMOSURV_DATA", raising=False)
    (folder / "train.csv").rename(folder / "train.csv.7z")
    with pytest.raises(DatasetUnavailableError, match=r"train\.csv .*csv\.7z.*kaggle\.com"):
        load_kkbox(folder)
    with pytest.raises(DatasetUnavailableError, match=r"members_v3\.csv, transactions\.csv"):
        load_kkbox(folder / "nowhere")
    with pytest.raises(DatasetUnavailableError, match="SUMOSURV_DATA"):
        load_kkbox()
    with pytest.raises(ValueError, match=r"docs/kkbox\.md"):
        datasets.load("kkbox")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train.csv", "msno,churn\na,1\n", "lacks the columns is_churn"),
        ("train.csv", "", "cannot be read as CSV"),
        ("members_v3.csv", MEMBERS.replace("20150228", "20150229"), "20150229 is no date"),
        ("members_v3.csv", MEMBERS + "fay,1,2,,3,20160101\n", "'fay' more than once"),
        ("transactions.csv", TRANSACTIONS.replace("20160205", "soon"), "does not fit its column"),
        ("transactions.csv", TRANSACTIONS.replace("ben,", ","), "without a customer"),
        ("transactions.csv", TRANSACTIONS.splitlines()[0] + "\n", "no membership"),
    ],
)
def test_broken_files(folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_kkbox(folder, progress=False)


def test_days_against_numpy() -> None:
    days = np.arange(np.datetime64("1999-12-30"), np.datetime64("2004-03-02"))
    numbers = [int(str(day).replace("-", "")) for day in days]
    np.testing.assert_array_equal(days_of(numbers, "here"), days.astype(int))


def test_folds_keep_customers_together() -> None:
    customer = np.random.default_rng(0).integers(0, 300, 1000)
    tests = []
    for i in range(5):
        fold = fold_by_customer(customer, i)
        parts = [set(customer[rows]) for rows in fold]
        assert sum(map(len, parts)) == len(set.union(*parts))
        np.testing.assert_array_equal(np.sort(np.concatenate(fold)), np.arange(1000))
        assert len(fold.train) == pytest.approx(600, abs=60)
        tests.append(fold.test)
    np.testing.assert_array_equal(np.sort(np.concatenate(tests)), np.arange(1000))
    with pytest.raises(ValueError, match="numbered 0 to 4"):
        fold_by_customer(customer, 5)
    with pytest.raises(ValueError, match="at least 5 customers"):
        fold_by_customer([1, 2, 2], 0)


def test_a_model_reads_it_as_it_is(folder: Path) -> None:
    X, y = load_kkbox(folder, progress=False)
    model = SumoNet(n_members=1, max_epochs=1, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_survival_function(X, [0.0, 30.0])).all()
