"""Fit the bundled GBSG2 trial, write its report, serve the model, and take the pictures of docs/report.md and serve.md.

python examples/report_and_page.py [--figures docs/figures]

Pictures need selenium, Chromium and its driver; without --figures the report is written and nothing is served.
"""

import argparse
import shutil
import threading
import time
from pathlib import Path

from sklearn.model_selection import train_test_split

from sumosurv import CoxPH, SumoNet, datasets
from sumosurv.report import make_report
from sumosurv.serve import make_app

REPORT = Path("demo/report.html")
SIZES = {"wide": (1100, 1000, "light"), "narrow": (390, 1300, "dark")}


def open_browser(width, height, scheme):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return browser


def take(browser, address, path, prepare=lambda browser: None):
    try:
        browser.get(address)
        prepare(browser)
        path.write_bytes(browser.get_screenshot_as_png())
        print(path)
    finally:
        browser.quit()


def settle(browser):
    end = time.monotonic() + 30
    done = "return document.body.dataset.answered === String(state.asked) && !state.busy"
    while not browser.execute_script(done) and time.monotonic() < end:
        time.sleep(0.05)


def compare_two(browser):
    """Pin the usual subject, give the current one 15 positive nodes, show the extrapolation."""
    settle(browser)
    browser.find_element("id", "pin").click()
    nodes = browser.find_element("id", "field-5")
    nodes.clear()
    nodes.send_keys("15")
    browser.find_element("id", "beyond").click()
    time.sleep(0.5)
    settle(browser)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--max-epochs", type=int, default=12)
    arguments = parser.parse_args()
    X, y = datasets.load("gbsg2")
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y["event"])
    model = SumoNet(max_epochs=arguments.max_epochs, random_state=0).fit(X_train, y_train)
    cox = CoxPH().fit(X_train, y_train)
    REPORT.parent.mkdir(exist_ok=True)
    options = {
        "name": "SumoNet",
        "unit": "days",
        "title": "Recurrence-free survival with breast cancer",
        "max_rows": 500,
    }
    report = make_report(model, X_test, y_test, against={"Cox": cox}, n_bootstrap=100, **options)
    report.save(REPORT)
    print(report)
    if arguments.figures is None:
        return
    arguments.figures.mkdir(parents=True, exist_ok=True)
    import uvicorn

    config = uvicorn.Config(make_app(model, name="gbsg2", unit="days"), port=8765, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for name, size in SIZES.items():
        take(open_browser(*size), REPORT.resolve().as_uri(), arguments.figures / f"report_{name}.png")
        path = arguments.figures / f"serve_{name}.png"
        take(open_browser(*size), "http://127.0.0.1:8765/", path, compare_two)
    server.should_exit = True
    thread.join(10)


if __name__ == "__main__":
    main()
