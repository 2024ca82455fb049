"""What is answered is what the library predicts; what cannot be answered is refused field by field. Without the web."""

from __future__ import annotations

import asyncio
import socket

import numpy as np
import pandas as pd
import pytest

from served_models import EMPTY, HOSTILE, ROW, frame, model, table
from sumosurv import CauseSpecific, CoxPH, KaplanMeier, SumoNet, Surv, datasets, load
from sumosurv.cli import main
from sumosurv.serve import Limits, ServedModel, serve
from sumosurv.serve.request import NumberField, RequestError, read_request

TIMES = [0.0, 20.0, 55.5, 300.0]


@pytest.fixture(scope="module")
def served():
    return ServedModel(model(), unit="days")


def test_the_answer_is_the_librarys(served):
    rows = [ROW, EMPTY]
    answer = served.answer({"rows": rows, "times": TIMES, "horizon": 80.0, "band": 0.8})
    X = frame(*rows)
    low, high = model().predict_survival_band(X, TIMES, 0.8)
    for i, found in enumerate(answer["rows"]):
        np.testing.assert_allclose(found["survival"], model().predict_survival_function(X, TIMES)[i], atol=1e-12)
        np.testing.assert_allclose(found["survival_low"], low[i], atol=1e-12)
        np.testing.assert_allclose(found["survival_high"], high[i], atol=1e-12)
        assert found["median"] == pytest.approx(model().predict_median(X)[i], rel=1e-9)
        assert found["restricted_mean"] == pytest.approx(model().predict_restricted_mean(X, 80.0)[i], rel=1e-9)
    assert answer["times"] == TIMES
    assert answer["last_time"] == model().last_time_


def test_given_survival_to_a_time(served):
    """S(t) / S(s) past s; the band is that of the members' quotients, weighted by how they foresaw it."""
    answer = served.answer({"rows": [ROW], "times": [10.0, 40.0, 90.0], "after": 40.0, "band": 0.4})["rows"][0]
    whole = model().predict_survival_function(frame(ROW), [40.0, 90.0])[0]
    np.testing.assert_allclose(answer["survival"], [1.0, 1.0, whole[1] / whole[0]], rtol=1e-9)
    members = model().predict_members(frame(ROW))
    at, later = (np.array([m.survival(t)[0] for m in members.distributions]) for t in (40.0, 90.0))
    weights = members.weights * at / (members.weights * at).sum()
    assert weights @ (later / at) == pytest.approx(answer["survival"][2], rel=1e-9)  # they are the mixture's own
    order = np.argsort(later / at)
    window = np.square(weights).sum() * (np.arange(200_000) + 0.5) / 200_000  # over which quantiles are averaged
    levels = np.array([[0.3], [0.7]]) - 0.5 * np.square(weights).sum() + window
    expected = (later / at)[order][np.searchsorted(np.cumsum(weights[order]), levels)].mean(axis=1)
    found = [answer["survival_low"][2], answer["survival_high"][2]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert answer["median"] > 40.0


def test_survival_to_a_time_that_nobody_reaches_is_refused(served):
    with pytest.raises(RequestError, match=r"after: .*rows\[0\]"):
        served.answer({"rows": [ROW], "after": 1e12})


def test_causes_have_incidences():
    served = ServedModel(model(2), causes=["relapse", "death"])
    answer = served.answer({"rows": [ROW, EMPTY], "times": TIMES, "band": 0.9})
    expected = model(2).predict_cumulative_incidence(frame(ROW, EMPTY), TIMES)
    for i, found in enumerate(answer["rows"]):
        np.testing.assert_allclose(np.array(found["incidence"]).T, expected[i], atol=1e-12)
        total = np.array(found["survival"]) + np.sum(found["incidence"], axis=0)
        np.testing.assert_allclose(total, 1.0, atol=1e-9)
        assert (np.array(found["incidence_low"]) <= np.array(found["incidence_high"])).all()
    assert served.schema()["causes"] == ["relapse", "death"]
    with pytest.raises(ValueError, match=r"2 competing causes.*got 1"):
        ServedModel(model(2), causes=["one"])


def test_fields_have_the_ranges_of_training(served, tmp_path):
    X = table()
    fields = {field["name"]: field for field in served.schema()["fields"]}
    assert fields["age"] == {
        "kind": "number", "name": "age", "low": X["age"].min(), "middle": np.floor(X["age"].median()),
        "high": X["age"].max(), "whole": True, "missing": False,
    }  # fmt: skip
    marker = fields["marker"]
    assert (marker["low"], marker["high"]) == (X["marker"].min(), X["marker"].max())
    assert marker["middle"] == pytest.approx(X["marker"].median(), rel=1e-5)
    assert marker["missing"]
    assert not marker["whole"]
    assert fields["arm"]["levels"][fields["arm"]["common"]] == "b"
    assert fields[HOSTILE]["levels"] == ["</script>", "plain"]
    model().save(tmp_path / "m.sumo")
    again = ServedModel(load(tmp_path / "m.sumo"), unit="days")
    assert again.schema() == served.schema()  # the digest too


def test_columns_that_are_standardised_have_ranges_too():
    data = datasets.simulate("weibull", 100, random_state=0)
    served = ServedModel(CoxPH().fit(data.X, data.y))
    assert served.fields[0].low == data.X["x"].min()
    assert not served.has_members
    with pytest.raises(RequestError, match=r"band: .* single network"):
        served.answer({"rows": [{"x": 0.5}], "band": 0.9})


def test_models_of_arrays_and_of_parts():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), Surv.from_arrays(rng.integers(0, 3, 80), rng.exponential(size=80))
    fitted = CauseSpecific(CoxPH()).fit(X, y)
    answer = ServedModel(fitted).answer({"rows": [{"0": 0.5, "1": -1}], "times": [1.0]})["rows"][0]
    expected = fitted.predict_cumulative_incidence(np.array([[0.5, -1.0]]), [1.0])[0, 0]
    np.testing.assert_allclose(np.ravel(answer["incidence"]), expected, rtol=1e-12)


def test_what_cannot_be_shown_is_refused_in_words():
    X, y = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "s": list("abab")}), Surv.from_arrays([1, 1, 0, 1], [1, 2, 3, 4])
    with pytest.raises(ValueError, match="predicts the same for everyone"):
        ServedModel(KaplanMeier().fit(X, y))
    with pytest.raises(ValueError, match="has strata"):
        ServedModel(CoxPH(strata="s", alpha=1.0).fit(X, y))
    with pytest.raises(ValueError, match="limit rows must be positive; got 0"):
        Limits(rows=0)
    with pytest.raises(ValueError, match="not fitted"):
        ServedModel(SumoNet())


BAD = [
    ([], "body"),
    ({}, "rows"),
    ({"rows": []}, "rows"),
    ({"rows": [ROW] * 6}, "rows"),
    ({"rows": ROW}, "rows"),
    ({"rows": [1]}, "rows[0]"),
    ({"rows": [ROW, {**ROW, "age": "61"}]}, "rows[1].age"),
    ({"rows": [{**ROW, "age": True}]}, "rows[0].age"),
    ({"rows": [{**ROW, "age": [61]}]}, "rows[0].age"),
    ({"rows": [{**ROW, "arm": "c"}]}, "rows[0].arm"),
    ({"rows": [{**ROW, "arm": 1}]}, "rows[0].arm"),
    ({"rows": [{**ROW, "treated": 1}]}, "rows[0].treated"),
    ({"rows": [{**ROW, "more": 1}]}, "rows[0].more"),
    ({"rows": [{k: v for k, v in ROW.items() if k != "marker"}]}, "rows[0].marker"),
    ({"rows": [ROW], "times": 3}, "times"),
    ({"rows": [ROW], "times": []}, "times"),
    ({"rows": [ROW], "times": [1, -1]}, "times[1]"),
    ({"rows": [ROW], "times": [True]}, "times[0]"),
    ({"rows": [ROW], "times": [1] * 61}, "times"),
    ({"rows": [ROW] * 5, "times": [1] * 50}, "rows"),
    ({"rows": [ROW], "after": -1}, "after"),
    ({"rows": [ROW], "after": "1"}, "after"),
    ({"rows": [ROW], "horizon": None}, "horizon"),
    ({"rows": [ROW], "band": 95}, "band"),
    ({"rows": [ROW] * 3, "band": 0.9}, "rows"),
    ({"rows": [ROW], "summaries": 1}, "summaries"),
    ({"rows": [ROW], "time": [1]}, "time"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_a_wrong_request_names_its_field(body, field):
    small = ServedModel(model(), limits=Limits(rows=5, times=60, values=205, band_rows=2))
    with pytest.raises(RequestError) as caught:
        small.answer(body)
    assert [error.field for error in caught.value.errors] == [field]


def test_remarks_on_values_unlike_those_of_training(served):
    odd = {**ROW, "age": 120, "arm": None}
    with pytest.warns(UserWarning, match="not seen in training"):
        found = served.answer({"rows": [odd, EMPTY], "summaries": False})["rows"]
    assert {remark["field"]: remark["message"] for remark in found[0]["remarks"]} == {
        "age": f"lies outside the training range, {table()['age'].min():g} to {table()['age'].max():g}",
        "arm": "was never missing in training",
    }
    assert found[1]["remarks"] == []
    assert "median" not in found[0]


def test_a_missing_category_is_logged_once_and_told_every_time(recwarn):
    served = ServedModel(model())
    row = ROW | {"arm": None}
    with pytest.warns(UserWarning, match="arm"):
        first = served.answer({"rows": [row], "times": [1.0]})
    recwarn.clear()
    again = served.answer({"rows": [row, row], "times": [1.0]})
    assert not recwarn
    for answer in (first, again):
        assert all(found["remarks"][0]["field"] == "arm" for found in answer["rows"])


def test_the_command_serves_at_this_machine_alone(tmp_path, monkeypatch, capsys):
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn (extra serve) is not installed")
    model().save(tmp_path / "m.sumo")
    heard = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: heard.append(sockets[0].getsockname()))
    assert main(["serve", str(tmp_path / "m.sumo"), "--port", "0"]) == 0
    assert heard[0][0] == "127.0.0.1"
    assert f"http://127.0.0.1:{heard[0][1]}/" in capsys.readouterr().out
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        assert main(["serve", str(tmp_path / "m.sumo"), "--port", str(taken.getsockname()[1])]) == 1
    told = capsys.readouterr().err
    assert "127.0.0.1, port" in told
    assert "choose another port" in told
    assert main(["serve", str(tmp_path / "m.sumo"), "--port", "99999"]) == 1
    assert "port must be between 0 and 65535; got 99999" in capsys.readouterr().err


def test_small_answers_are_sent_at_once(monkeypatch):
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn (extra serve) is not installed")
    seen = []

    async def connect(listening):
        def accepted(reader, writer):
            seen.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(accepted, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await asyncio.wait_for(reader.read(), 10)
            writer.close()

    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: asyncio.run(connect(sockets[0])))
    serve(model(), port=0)
    assert seen == [1]  # Nagle's algorithm is off


@pytest.mark.parametrize(
    ("host", "message"),
    [("", "such as 127.0.0.1"), ("192.0.2.1", "name an address of this machine")],
    ids=["none", "of another machine"],
)
def test_an_address_that_is_not_of_this_machine(host, message, monkeypatch):
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn (extra serve) is not installed")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    with pytest.raises((ValueError, OSError), match=message):
        serve(model(), host=host, port=0)


@pytest.mark.parametrize(
    "more",
    [{"times": [10**400]}, {"after": 10**400}, {"rows": [{**ROW, "age": 10**400}]}, {"rows": [{**ROW, "age": -1e308}]}],
)
def test_numbers_too_large_to_compute_with_are_refused(served, more):
    with pytest.raises(RequestError, match="expected a"):
        served.answer({"rows": [ROW], **more})


SMALL = Limits(rows=3, times=4, values=6, band_rows=2)
ONE, NOW = {"a": 1.0}, {"times": [1]}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"rows": [ONE] * 3, **NOW}, None), ({"rows": [ONE] * 4, **NOW}, "rows"), ({"rows": []}, "rows"),
        ({"rows": ONE}, "rows"), ({}, "rows"), ({"rows": [ONE], "times": [1, 2, 3, 4]}, None),
        ({"rows": [ONE], "times": [1, 2, 3, 4, 5]}, "times"), ({"rows": [ONE], "times": []}, "times"),
        ({"rows": [ONE], "times": 3}, "times"), ({"rows": [ONE], "times": [0, -1]}, "times[1]"),
        ({"rows": [ONE], "times": [True]}, "times[0]"), ({"rows": [ONE] * 2, "times": [1, 2, 3]}, None),
        ({"rows": [ONE] * 2, "times": [1, 2, 3, 4]}, "rows"), ({"rows": [ONE], **NOW, "after": 0}, None),
        ({"rows": [ONE], **NOW, "after": -0.1}, "after"), ({"rows": [ONE], **NOW, "after": "1"}, "after"),
        ({"rows": [ONE], **NOW, "horizon": 0}, None), ({"rows": [ONE], **NOW, "horizon": -1}, "horizon"),
        ({"rows": [ONE] * 2, **NOW, "band": 0.9}, None), ({"rows": [ONE] * 3, **NOW, "band": 0.9}, "rows"),
        ({"rows": [ONE], **NOW, "band": 0}, "band"), ({"rows": [ONE], **NOW, "band": 1}, "band"),
        ({"rows": [ONE], **NOW, "band": True}, "band"), ({"rows": [ONE], **NOW, "summaries": 0}, "summaries"),
        ({"rows": [ONE], **NOW, "bands": 0.9}, "bands"), ({"rows": [{"a": 1, "b": 2}], **NOW}, "rows[0].b"),
        ({"rows": [ONE, {}], **NOW}, "rows[1].a"), ({"rows": [3], **NOW}, "rows[0]"), ([], "body"),
    ],
)  # fmt: skip
def test_limits_of_a_request(body, field):
    """The first value outside of a limit is refused by the name of its field, the last one inside is read."""
    fields = [NumberField("a", 0.0, 1.0, 2.0, False, False)]
    if field is None:
        found = read_request(body, fields, 5.0, SMALL, members=True)
        assert len(found.frame) == len(body["rows"])
        assert list(found.times) == body["times"]
        assert (found.after, found.horizon, found.summaries) == (body.get("after", 0), body.get("horizon", 5.0), True)
        assert found.band == body.get("band")
    else:
        with pytest.raises(RequestError) as caught:
            read_request(body, fields, 5.0, SMALL, members=True)
        assert [error.field for error in caught.value.errors] == [field]


def test_times_and_bands_of_a_request_that_names_none():
    fields = [NumberField("a", 0.0, 1.0, 2.0, False, False)]
    found = read_request({"rows": [ONE]}, fields, 5.0, Limits(), members=False)
    np.testing.assert_allclose(found.times, np.linspace(0, 5, 101))
    assert (found.after, found.horizon, found.band) == (0.0, 5.0, None)
    with pytest.raises(RequestError) as caught:
        read_request({"rows": [ONE], "band": 0.9}, fields, 5.0, Limits(), members=False)
    assert [error.field for error in caught.value.errors] == ["band"]
