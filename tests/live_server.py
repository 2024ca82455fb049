"""A server on a free port of this machine, for the length of a test, and a headless browser."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SECONDS = 60.0  # that a server lives at most


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The address of an application that runs in a thread until the block ends, and for a minute at most."""
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn (extra serve) is not installed")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        config = uvicorn.Config(
            app, log_level="error", lifespan="off", ws="none", limit_max_requests=500, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        end = threading.Timer(SECONDS, lambda: setattr(server, "should_exit", True))
        end.daemon = True
        end.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            end.cancel()
            server.should_exit = True
            thread.join(10)
    assert not thread.is_alive()


@contextmanager
def browser(width: int = 1200, height: int = 900, *, dark: bool = False) -> Iterator[Any]:
    """Headless Chromium, or a skip with a reason."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium (extra test) is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium with its driver: apt-get install chromium chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    for word in [*words, f"--window-size={width},{height}", *(["--force-dark-mode"] if dark else [])]:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    made.set_page_load_timeout(30)
    try:
        made.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        made.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        yield made
    finally:
        made.quit()
