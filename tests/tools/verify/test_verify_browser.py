"""The page in a real browser: what is shown, what is loaded, and what does not run.

A Chromium and its chromedriver are looked for on PATH. Without them the tests are skipped; with
FASTSEED_BROWSER=require they fail instead.
"""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest
from helpers.made_reports import broken, make, planted

from fastseed.tools.verify import reports

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1280,1000"),
    # No name is resolved: what a page asks for stays a request in the log.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def unavailable(reason: str) -> None:
    if os.environ.get("FASTSEED_BROWSER") == "require":
        pytest.fail(f"{reason}, and FASTSEED_BROWSER=require", pytrace=False)
    pytest.skip(reason)


def start(profile):
    """A headless browser with an empty profile, driven by selenium."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None:
        unavailable(f"needs a browser: none of {', '.join(BROWSERS)} on PATH")
    if driver is None:
        unavailable("needs chromedriver on PATH")
    try:
        from selenium import webdriver
        from selenium.common.exceptions import WebDriverException
    except ImportError:
        unavailable("needs selenium (the extra `test`)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)  # else selenium looks for one online
    try:
        found = webdriver.Chrome(options=options, service=service)
    except WebDriverException as error:
        unavailable(f"the browser does not start: {error.msg}")
    found.set_page_load_timeout(30)
    found.set_script_timeout(10)
    return found


class Browser:
    """What the tests ask of it."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, path) -> None:
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())
        time.sleep(0.2)  # what a page does late

    def run(self, script: str):
        return self.driver.execute_script(script)

    def requests(self) -> list[str]:
        """The addresses that were asked for since the page was opened."""
        messages = (
            json.loads(one["message"])["message"] for one in self.driver.get_log("performance")
        )
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def console(self) -> list[str]:
        return [one["message"] for one in self.driver.get_log("browser")]

    def media(self, **features: str) -> None:
        named = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})

    def width(self, pixels: int | None) -> None:
        how = {"width": pixels or 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", how)

    def rows(self, table: str) -> int:
        """The rows of a table's body that take up room."""
        return self.run(
            f"return [...document.querySelectorAll('#{table} tbody tr')]"
            ".filter(r => r.checkVisibility() && r.getBoundingClientRect().height > 8).length"
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start(tmp_path_factory.mktemp("profile"))
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def written(tmp_path):
    def write(report):
        return reports.write(report, tmp_path, formats=("html", "png"))["html"]

    return write


def quiet(browser, path) -> None:
    """Nothing was asked for but the file and its picture, and nothing was complained about."""
    asked = browser.requests()
    assert path.as_uri() in asked
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [url for url in asked if url.startswith("file:") and url != path.as_uri()] == []
    assert browser.console() == []


def test_a_report_that_failed(browser, written):
    report = make(differing=True)
    path = written(report)
    browser.open(path)
    assert browser.driver.title == "Failed: not reproducible - fastseed verify"
    verdict = browser.run("return document.getElementById('verdict').innerText")
    assert verdict.startswith("✘ Failed: not reproducible") and report.says in verdict
    assert "Required: bit-identical. 32 runs in 54.00 s." in verdict
    assert browser.rows("checks") == 4 and browser.rows("differences") == 3
    assert browser.rows("experiments") == 4 and browser.rows("paired") == 2
    assert browser.rows("runs") == 32 and browser.rows("environment") == 1
    assert browser.run("return document.querySelectorAll('#findings > li').length") == 3
    quiet(browser, path)


def test_a_report_that_passed(browser, written):
    path = written(make())
    browser.open(path)
    assert browser.driver.title == "Passed: bit-identical - fastseed verify"
    assert browser.run("return document.getElementById('findings')") is None
    colours = "return getComputedStyle(document.querySelector('#verdict strong')).color"
    good = browser.run(colours)
    browser.open(written(make(differing=True)))
    assert browser.run(colours) != good
    quiet(browser, path)


def test_the_picture_is_decoded(browser, written):
    browser.open(written(broken()))
    width, height, complete, alt = browser.run(
        "const i = document.getElementById('curves');"
        "return [i.naturalWidth, i.naturalHeight, i.complete, i.alt]"
    )
    assert (width, height, complete) == (1200, 1700, True)
    assert "whole: 8 runs, which differ" in alt
    # And it shows something: not all pixels are alike.
    colours = browser.run(
        "const i = document.getElementById('curves'), c = document.createElement('canvas');"
        "c.width = 300; c.height = 425; const g = c.getContext('2d');"
        "g.drawImage(i, 0, 0, 300, 425);"
        "return new Set(new Uint32Array(g.getImageData(0, 0, 300, 425).data.buffer)).size"
    )
    assert colours > 100


def test_the_steps_are_shown_when_they_are_opened(browser, written):
    browser.open(written(make(n=300, count=2)))
    assert browser.rows("steps") == 0
    browser.driver.find_element("css selector", "details:has(#steps) > summary").click()
    assert browser.rows("steps") == 200


def test_nothing_that_a_run_wrote_runs(browser, written):
    path = written(planted())
    browser.open(path)
    check_canaries(browser)
    assert browser.rows("runs") == 32 and browser.rows("environment") == 10
    assert browser.run("return getComputedStyle(document.body).display") == "block"
    quiet(browser, path)


def test_nothing_runs_without_the_policy_either(browser, written):
    """The escaping alone is enough; the policy in the page's head is a second wall."""
    path = written(planted())
    text, found = path.read_text(), 'http-equiv="Content-Security-Policy"'
    assert text.count(found) == 1
    path.write_text(text.replace(found, 'name="nothing"'))
    browser.open(path)
    check_canaries(browser)
    quiet(browser, path)


def check_canaries(browser) -> None:
    # Move and focus, for the handlers that wait for it.
    for element in ("verdict", "findings", "runs"):
        browser.run(
            f"for (const e of document.querySelectorAll('#{element}, #{element} *'))"
            " for (const t of ['mouseover', 'focus', 'load']) e.dispatchEvent(new Event(t))"
        )
    assert browser.run("return window.canary === undefined")
    assert browser.run("return document.querySelectorAll('script, svg, link, base').length") == 0
    assert browser.run("return document.querySelectorAll('style').length") == 1
    assert browser.run("return document.querySelectorAll('img').length") == 1
    assert browser.run("return document.body.innerText.includes('<script>window.canary')")


def test_the_canaries_do_run_where_text_is_not_escaped(browser, written):
    """The tests above could fail: so they would."""
    path = written(planted())
    text = path.read_text().replace("&lt;", "<").replace("&gt;", ">")
    text = text.replace("http://192.0.2.1/", "x").replace(
        "refresh", "nothing"
    )  # not away from here
    path.write_text(text)
    browser.open(path)  # held back by the policy, which complains
    assert browser.run("return window.canary === undefined")
    assert any("Content Security Policy" in line for line in browser.console())
    path.write_text(text.replace('http-equiv="Content-Security-Policy"', 'name="nothing"'))
    browser.open(path)
    assert browser.run("return window.canary") >= 1


def test_dark_mode(browser, written):
    browser.open(written(make()))
    shade = "return getComputedStyle(document.body).backgroundColor"
    browser.media(prefers_color_scheme="light")
    assert browser.run(shade) == "rgb(255, 255, 255)"
    browser.media(prefers_color_scheme="dark")
    found = browser.run(shade)
    browser.media()
    assert max(map(int, found[4:-1].split(", "))) < 60


@pytest.mark.parametrize("width", [360, 400, 800])
def test_a_narrow_window_scrolls_tables_and_not_the_page(width, browser, written):
    browser.open(written(planted()))
    browser.width(width)
    inner, outer = browser.run(
        "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
    )
    picture = browser.run("return document.getElementById('curves').getBoundingClientRect().width")
    browser.width(None)
    assert outer == width and inner == outer
    assert 0.8 * width < picture <= width


def test_without_a_browser_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("FASTSEED_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs a browser: none of chromium"):
        start(tmp_path)
    monkeypatch.setenv("FASTSEED_BROWSER", "require")
    with pytest.raises(pytest.fail.Exception, match="and FASTSEED_BROWSER=require"):
        start(tmp_path)


def test_no_cell_covers_another(browser, written):
    """However long what a run wrote is: a table gets wide, or its cells high."""
    browser.open(written(planted()))
    wide = browser.run(
        "return [...document.querySelectorAll('th, td')].filter(c => c.checkVisibility())"
        ".filter(c => c.scrollWidth > c.clientWidth + 1).map(c => c.innerText)"
    )
    assert wide == []
