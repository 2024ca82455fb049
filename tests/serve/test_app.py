"""The web application: routes, headers, limits, hostile requests."""

from __future__ import annotations

import asyncio
import json
import re
import threading

import numpy as np
import pytest

from served_models import HOSTILE, ROW, frame, model, table
from sumosurv.serve import Limits, make_app

pytest.importorskip("starlette", reason="starlette (extra serve) is not installed")

JSON = {"content-type": "application/json"}
LIMITS = Limits(body=20_000, rows=50, seconds=5.0, waiting=2)


def ask(app, path="/predict", *, method="POST", body=b"", headers=None, host="127.0.0.1:8000", wait=0.0):
    """Status, headers and text of an answer, by the ASGI protocol itself; the body comes in two parts."""
    sent: list[dict] = []
    half = len(body) // 2
    parts = [{"type": "http.request", "body": body[:half], "more_body": True}]
    parts += [{"type": "http.request", "body": body[half:], "more_body": False}]

    async def receive():
        await asyncio.sleep(wait)
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    named = {"host": host, **(JSON if headers is None else headers)}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "root_path": "", "scheme": "http", "query_string": b"",
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in named.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    start, text = sent[0], b"".join(m.get("body", b"") for m in sent[1:])
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, text.decode()


@pytest.fixture(scope="module")
def app():
    return make_app(model(), name="trial", limits=LIMITS)


def body(**more):
    return json.dumps({"rows": [ROW], "times": [10.0, 50.0]} | more).encode()


def test_predictions_come_back(app):
    status, headers, text = ask(app, body=body())
    assert (status, headers["content-type"]) == (200, "application/json")
    expected = model().predict_survival_function(frame(ROW), [10.0, 50.0])[0]
    np.testing.assert_allclose(json.loads(text)["rows"][0]["survival"], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("path", "method", "host"),
    [("/", "GET", "localhost"), ("/page.js", "GET", "[::1]:80"), ("/schema", "GET", "127.0.0.1"),
     ("/predict", "POST", "127.0.0.1"), ("/nowhere", "GET", "127.0.0.1"), ("/", "GET", "evil.example")],
)  # fmt: skip
def test_headers_are_on_every_answer(app, path, method, host):
    _, headers, _ = ask(app, path, method=method, host=host)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "access-control-allow-origin" not in headers


def test_only_our_own_names_are_answered(app):
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "",
        "localhost.:1",
        "[::1",
        "[::1]evil",
        "127.0.0.1:evil",
        "127.0.0.1:80:80",
    ):
        assert ask(app, "/health", method="GET", host=host)[0] == 421
    named = make_app(model(), hosts=["Models.example"])
    assert ask(named, "/health", method="GET", host="models.example:8000")[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe\x00", 400),
        (b'{"rows": [NaN]}', 400),
        (b'{"rows": 1, "rows": 2}', 400),
        (b"[" * 5000, 400),
        (b'{"rows": [{"age": 1e999}]}', 400),
        (b'{"rows": [{"age": ' + b"9" * 400 + b"}]}", 400),
        (b'"text"', 422),
        (b"null", 422),
        (b'{"rows": [{"\\ud800": 1}]}', 422),
        (b'{"rows": [{"__proto__": {}}]}', 422),
    ],
)
def test_bodies_that_are_no_request(app, sent, status):
    found, _, text = ask(app, body=sent)
    assert found == status
    assert json.loads(text)["errors"][0]["field"]


def test_limits(app):
    assert ask(app, body=body(), headers={"content-type": "text/plain"})[0] == 415
    assert ask(app, body=body(), headers={})[0] == 415
    status, _, text = ask(app, body=b" " * 20_001)
    assert (status, json.loads(text)["errors"][0]["field"]) == (413, "body")
    assert ask(app, body=b" " * 19_000 + body()[:1000])[0] in (200, 400)
    assert ask(app, "/predict", method="GET")[0] == 405
    assert ask(app, "/../../etc/passwd", method="GET")[0] == 404
    assert ask(app, "/static/page.js", method="GET")[0] == 404
    status, _, text = ask(app, body=json.dumps({"rows": [ROW] * 51}).encode())
    assert (status, json.loads(text)["errors"][0]["field"]) == (422, "rows")


def test_a_slow_sender_and_a_slow_model_are_not_waited_for(monkeypatch):
    quick = make_app(model(), limits=Limits(seconds=0.2, waiting=1))
    assert ask(quick, body=body(), wait=0.3)[0] == 408
    release = threading.Event()

    def slow(self, asked):
        release.wait(20)
        return {}

    monkeypatch.setattr("sumosurv.serve.model.ServedModel.answer", slow)
    status, headers, text = ask(quick, body=body())
    release.set()
    assert (status, headers["retry-after"]) == (503, "1")
    assert "no answer within 0.2 seconds" in text


def test_a_fault_of_the_model_is_not_told_to_the_client(app, monkeypatch):
    def broken(self, asked):
        raise RuntimeError("secret path /home/someone")

    monkeypatch.setattr("sumosurv.serve.model.ServedModel.answer", broken)
    with pytest.raises(RuntimeError, match="secret"):  # passed on to the server, which logs it
        ask(app, body=body())
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": body(), "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "root_path": "",
             "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]}  # fmt: skip
    with pytest.raises(RuntimeError, match="secret"):
        asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]


def test_the_document_describes_the_model(app):
    document = json.loads(ask(app, "/openapi.json", method="GET")[2])
    assert document["openapi"].startswith("3.1")
    subject = document["components"]["schemas"]["Subject"]
    assert subject["required"] == list(table().columns)
    assert subject["properties"]["arm"]["enum"] == ["a", "b", None]
    refs = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document))
    assert set(refs) <= set(document["components"]["schemas"])
    answer = json.loads(ask(app, body=body(band=0.9))[2])
    known = document["components"]["schemas"]
    assert set(answer) == set(known["Answer"]["properties"])
    assert set(answer["rows"][0]) == set(known["Prediction"]["properties"])
    health = json.loads(ask(app, "/health", method="GET")[2])
    assert health["digest"] == json.loads(ask(app, "/schema", method="GET")[2])["digest"]


def test_the_page_asks_nobody_else(app):
    for path in ("/", "/page.js", "/page.css", "/chart.js"):
        status, _, text = ask(app, path, method="GET")
        assert status == 200
        assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert "innerHTML" not in text
        assert HOSTILE not in text  # names of columns come as data


def test_many_at_once_get_their_own_answers(app):
    """Eight threads, each with an age of its own."""
    roomy = make_app(model(), limits=Limits(waiting=100))
    expected = {a: model().predict_survival_function(frame({**ROW, "age": a}), [50.0])[0, 0] for a in range(50, 58)}
    found: dict[int, float] = {}

    def client(age):
        for _ in range(3):
            sent = json.dumps({"rows": [{**ROW, "age": age}], "times": [50.0], "summaries": False}).encode()
            found[age] = json.loads(ask(roomy, body=sent)[2])["rows"][0]["survival"][0]
            assert found[age] == pytest.approx(expected[age], abs=1e-12)

    threads = [threading.Thread(target=client, args=(age,)) for age in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == pytest.approx(expected, abs=1e-12)
