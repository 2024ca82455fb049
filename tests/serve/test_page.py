"""The what-if page in a real browser: values typed, sliders moved, by keyboard alone, on a narrow screen."""

from __future__ import annotations

import csv
import re
import time

import numpy as np
import pytest

from live_server import browser, serving
from served_models import HOSTILE, frame, model, table
from sumosurv.serve import make_app

pytest.importorskip("starlette", reason="starlette (extra serve) is not installed")
pytest.importorskip("selenium", reason="selenium (extra test) is not installed")

PATIENCE = 15.0


@pytest.fixture(scope="module")
def address():
    with serving(make_app(model(), name="trial", unit="days")) as url:
        yield url


@pytest.fixture(scope="module")
def driver():
    with browser() as made:
        yield made


class Page:
    """The page as a user sees it."""

    def __init__(self, driver, address):
        self.driver = driver
        driver.get(f"{address}/")
        self.settle()

    def __getitem__(self, name):
        return self.driver.find_element("css selector", f"#{name}")

    def settle(self):
        """Wait until all that was asked is answered."""
        self.wait("return document.body.dataset.answered === String(state.asked) && !state.busy")

    def wait(self, script):
        end = time.monotonic() + PATIENCE
        while not self.driver.execute_script(script):
            assert time.monotonic() < end, f"waited {PATIENCE:g} s for: {script}"
            time.sleep(0.02)

    def act(self, action):
        """Do something that asks anew, and wait for the answer."""
        before = self.driver.execute_script("return state.asked")
        action()
        self.wait(f"return state.asked > {before}")
        self.settle()

    def type(self, name, text):
        from selenium.webdriver.common.keys import Keys

        self.act(lambda: self[name].send_keys(Keys.CONTROL, "a", Keys.NULL, text))

    def curve(self, number=0):
        """Times and probabilities of a curve, read off the picture."""
        svg = self.driver.find_element("css selector", "#picture svg")
        left, right, top, bottom, end, highest = (
            float(svg.get_attribute(f"data-{name}")) for name in ("left", "right", "top", "bottom", "end", "highest")
        )
        path = svg.find_elements("css selector", "[data-part=curve]")[number].get_attribute("d")
        x, y = np.array(re.findall(r"[\d.]+", path), dtype=float).reshape(-1, 2).T
        return end * (x - left) / (right - left), highest * (bottom - y) / (bottom - top)

    def row(self):
        return self.driver.execute_script("return state.current.row")


def check(page, row, number=0, after=0.0):
    """A curve on the page is the library's, to 1e-6."""
    times, drawn = page.curve(number)
    distribution = model().predict_distribution(frame(row))
    known = distribution.conditional(after=after) if after else distribution
    np.testing.assert_allclose(drawn, known.survival(times)[0], atol=1e-6)


def test_values_typed_sliders_moved_subjects_pinned(address, driver):
    from selenium.webdriver.common.keys import Keys

    page = Page(driver, address)
    first = page.row()
    assert first["age"] == np.floor(table()["age"].median())
    assert page["title"].text == "trial: what if?"
    check(page, first)

    page.type("field-0", "55")
    assert page.row() == {**first, "age": 55}
    assert page["field-0-slider"].get_attribute("value") == "55"
    check(page, page.row())

    page.act(lambda: page["field-0-slider"].send_keys(Keys.ARROW_RIGHT))
    assert page.row()["age"] == 56
    assert page["field-0"].get_attribute("value") == "56"
    page.act(lambda: page["field-1-slider"].send_keys(Keys.ARROW_RIGHT))  # of a column that is not whole
    assert page.row()["marker"] > first["marker"]
    check(page, page.row())

    page.act(lambda: page["field-1-missing"].click())
    assert page.row()["marker"] is None
    check(page, page.row())

    pinned = page.row()
    page.act(lambda: page["pin"].click())
    page.type("field-0", "80")
    check(page, page.row())
    check(page, pinned, number=1)
    cells = [cell.text for cell in driver.find_elements("css selector", "#subjects tbody tr:nth-child(2) td")]
    assert cells[0] == f"{model().predict_median(frame(pinned))[0]:.4g}"
    assert "age: 56" in cells[3]

    page.type("after", "40")
    check(page, page.row(), after=40.0)
    assert "Given no event until 40 days" in page["summary"].text
    assert not driver.find_elements("css selector", "[data-part=beyond]")
    page.act(lambda: page["beyond"].click())
    assert driver.find_elements("css selector", "[data-part=beyond]")
    assert max(page.curve()[0]) == pytest.approx(1.5 * model().last_time_, rel=1e-6)
    assert driver.find_elements("css selector", "[data-part=band]")
    page.act(lambda: page["band"].click())
    assert not driver.find_elements("css selector", "[data-part=band]")

    page.type("field-0", "300")
    assert "outside the training range" in page["field-0-remark"].text
    asked = driver.execute_script("return state.current.answer.rows[0].survival")
    page["field-0"].send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE)  # no number: nothing is asked
    page.wait("return document.getElementById('field-0-remark').textContent.startsWith('Enter a number')")
    assert driver.execute_script("return state.current.answer.rows[0].survival") == asked


def test_the_numbers_and_the_picture_can_be_had(address, driver):
    page = Page(driver, address)
    lines = list(csv.DictReader(driver.execute_script("return numbers()").splitlines()))
    expected = model().predict_survival_function(frame(page.row()), [float(line["time"]) for line in lines])[0]
    np.testing.assert_allclose([float(line["survival"]) for line in lines], expected, atol=1e-12)
    assert lines[0]["arm"] == "b"
    svg = driver.execute_script("return picture()")
    assert svg.startswith("<svg")
    assert 'data-part="curve"' in svg
    saved = "window.saved = []; save = (name, blob) => saved.push([name, blob.type, blob.size]); savePng()"
    driver.execute_script(saved)
    page.wait("return saved.length === 1")
    name, kind, size = driver.execute_script("return saved[0]")
    assert (name, kind) == ("curves.png", "image/png")
    assert size > 5000


def test_hostile_names_are_text(address, driver):
    from selenium.webdriver.common.keys import Keys

    page = Page(driver, address)
    legends = [legend.text for legend in driver.find_elements("css selector", "#form legend")]
    assert legends[-1] == HOSTILE
    assert not driver.find_elements("css selector", "#form img")
    choice = page["field-4"]
    other = {"plain": "</script>", "</script>": "plain"}[page.row()[HOSTILE]]
    assert [option.text for option in choice.find_elements("css selector", "option")] == ["</script>", "plain"]
    page.act(lambda: choice.send_keys(Keys.ARROW_UP if other == "</script>" else Keys.ARROW_DOWN))
    assert page.row()[HOSTILE] == other
    assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def test_the_keyboard_is_enough(address, driver):
    """From the top of the page by the Tab key to a slider, a category and the button that pins."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page = Page(driver, address)

    def press(*keys):
        ActionChains(driver).send_keys(*keys).perform()

    def go_to(name):
        for _ in range(60):
            if driver.switch_to.active_element.get_attribute("id") == name:
                return
            press(Keys.TAB)
        raise AssertionError(f"the Tab key never reaches {name}")

    first = page.row()
    go_to("field-0-slider")
    page.act(lambda: press(Keys.ARROW_RIGHT))
    assert page.row()["age"] == first["age"] + 1
    go_to("field-2")
    page.act(lambda: press(Keys.ARROW_UP))
    assert page.row()["arm"] == "a"
    go_to("pin")
    page.act(lambda: press(Keys.ENTER))
    assert len(driver.find_elements("css selector", "#subjects tbody tr")) == 2
    driver.find_element("css selector", "#subjects button").send_keys(Keys.ENTER)
    page.wait("return state.pinned.length === 0")
    assert driver.switch_to.active_element.get_attribute("id") == "pin"  # focus is not lost with the row


def test_a_narrow_screen_has_no_sideways_scrolling(address):
    with browser(360, 740, dark=True) as narrow:
        page = Page(narrow, address)
        assert narrow.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        check(page, page.row())
        background = narrow.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", background)[:3])) < 150  # dark
        last = narrow.execute_script("""
            const box = [...document.querySelectorAll('#form fieldset')].at(-1);
            box.scrollIntoView({block: 'end'});
            const [own, picture] = [box, byId('picture')].map(part => part.getBoundingClientRect());
            return [picture.top, picture.bottom, own.top, own.bottom, innerHeight];""")
        assert -1 <= last[0] < last[1] <= last[2] < last[3] <= last[4] + 1  # the curve is in view beside any covariate


def test_times_offered_are_short_and_within_the_data(driver, address):
    Page(driver, address)
    asked = "return [85.81519, 57.25, 3652.0, 0.0123456, 1.0, 99.99].map(roundDown)"
    assert driver.execute_script(asked) == [85.8, 57.2, 3650.0, 0.0123, 1.0, 99.9]
    offered = float(driver.execute_script("return byId('horizon').value"))
    assert 0.98 * model().last_time_ < offered <= model().last_time_


def test_causes_are_chosen(driver):
    with serving(make_app(model(2), name="two", causes=["relapse", "death"])) as url:
        page = Page(driver, url)
        times, drawn = page.curve()
        expected = model(2).predict_cumulative_incidence(frame(page.row()), times)[0]
        np.testing.assert_allclose(drawn, expected[:, 0], atol=1e-6)
        driver.execute_script("byId('view').value = '1'; byId('view').dispatchEvent(new Event('change'))")
        np.testing.assert_allclose(page.curve()[1], expected[:, 1], atol=1e-6)
        assert "death" in page["summary"].text
