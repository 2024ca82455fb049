"""What is decided before a cluster is asked: whether it is worth it, and whether it is safe."""

from __future__ import annotations

import sys

import pytest

from sumosurv import CoxPH, NetworkSearch, WeibullNet, datasets
from sumosurv.cli import main
from sumosurv.cluster import Cluster, connected, ray_fit

NOWHERE = "127.0.0.1:1"  # which would be asked in vain


@pytest.fixture(scope="module")
def data():
    return datasets.simulate("weibull", 80, random_state=0)


@pytest.fixture
def files(data, tmp_path):
    data.X.assign(time=data.y["time"], event=data.y["event"].astype(int)).to_csv(tmp_path / "rows.csv", index=False)
    CoxPH().fit(data.X, data.y).save(tmp_path / "cox.sumo")
    return tmp_path


def test_work_is_compared_with_a_documented_size():
    with pytest.warns(UserWarning, match=r"4,999,999 .* 5,000,000"):
        assert Cluster().too_small(passes=4_999_999)
    assert not Cluster().too_small(passes=5_000_000)
    with pytest.warns(UserWarning, match="499,999 rows are fewer than 500,000"):
        assert Cluster().too_small(rows=499_999)
    assert not Cluster().too_small(rows=500_000)
    assert not Cluster(min_work=0).too_small(rows=1)


def test_a_small_search_is_run_here_and_says_so(data):
    options = {"space": {"dropout": [0.0, 0.2]}, "n_trials": 2, "random_state": 0}
    here = NetworkSearch(WeibullNet(max_epochs=2), **options).fit(data.X, data.y)
    search = NetworkSearch(WeibullNet(max_epochs=2), cluster=Cluster(NOWHERE), **options)
    with pytest.warns(UserWarning, match="cluster is not used"):
        search.fit(data.X, data.y)
    assert search.cv_results_["valid_score"].tolist() == here.cv_results_["valid_score"].tolist()


def test_a_small_fit_is_run_here_and_says_so(data, tmp_path):
    model = WeibullNet(n_members=1, max_epochs=2, random_state=0)
    with pytest.warns(UserWarning, match="cluster is not used"):
        ray_fit(Cluster(NOWHERE), model, data.X, data.y, checkpoint=tmp_path)
    alone = WeibullNet(n_members=1, max_epochs=2, random_state=0).fit(data.X, data.y)
    assert model.score(data.X, data.y) == alone.score(data.X, data.y)


@pytest.mark.filterwarnings("default:The cluster is not used")
def test_the_command_line_says_so_too(files, capsys):
    rows, out = str(files / "rows.csv"), str(files / "made.csv")
    assert main(["predict", str(files / "cox.sumo"), rows, "--out", out, "--ray", NOWHERE]) == 0
    assert "cluster is not used: 80 rows" in capsys.readouterr().err
    assert main(["fit", rows, "--time", "time", "--event", "event", "--out", out, "--ray", NOWHERE]) == 1
    assert "--checkpoint FOLDER" in capsys.readouterr().err
    assert main(["predict", str(files / "cox.sumo"), rows, "--out", out, "--ray-workers", "2"]) == 1
    assert "--ray ADDRESS" in capsys.readouterr().err


def test_a_cluster_over_a_network_needs_tokens(monkeypatch):
    pytest.importorskip("ray", reason="the extra ray is not installed")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    for address in ("10.0.0.7:6379", "head.example:6379", "ray://10.0.0.7:10001"):
        with pytest.raises(ValueError, match="RAY_AUTH_MODE=token"), connected(Cluster(address)):
            pass


def test_without_ray_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'sumosurv\[ray\]'"), connected(Cluster(NOWHERE)):
        pass


def test_what_cannot_be_is_refused(data, tmp_path):
    with pytest.raises(ValueError, match=r"workers .* got 0"):
        Cluster(workers=0)
    with pytest.raises(ValueError, match=r"cluster .* got 'dask'"):
        NetworkSearch(WeibullNet(), cluster="dask").fit(data.X, data.y)
    with pytest.raises(ValueError, match="integer random_state; got None"):
        ray_fit(Cluster(NOWHERE), WeibullNet(), data.X, data.y, checkpoint=tmp_path)
