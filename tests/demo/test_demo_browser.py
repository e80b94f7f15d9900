"""The web page in Chromium. Pictures of it are kept in `test-artifacts/`."""

import json
import shutil
import time
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from demo_server import running_demo

pytestmark = [pytest.mark.browser, pytest.mark.slow]

pytest.importorskip("gradio", reason='the demo needs pip install "onlstm_hf[demo]"')
webdriver = pytest.importorskip("selenium.webdriver", reason='these tests need pip install "onlstm_hf[test]"')
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
GOLD = "((the old man) (sold (the house)))"
NASTY = "<script>window.hit=1</script> {{7*7}} ${7*7} {{value}} <img src=x onerror=window.hit=2> </svg>"


class Browser:
    """Chromium with the page in it."""

    def __init__(self, driver, address, pictures):
        self.driver, self.address, self.pictures = driver, address, pictures

    def resize(self, width, height, mobile=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, theme):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, shown="#analyses svg", **fields):
        self.driver.get(f"{self.address}?{urlencode(fields)}")
        return self.wait(lambda: self.find(shown))

    def wait(self, condition):
        return WebDriverWait(self.driver, 60, poll_frequency=0.05).until(lambda _: condition())

    def find(self, selector):
        return [element for element in self.driver.find_elements(By.CSS_SELECTOR, selector) if element.is_displayed()]

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def type(self, text, selector="#sentences textarea"):
        (field,) = self.find(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)
        return field

    def picture(self, name):
        """Keeps a picture of the whole page."""
        width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        self.resize(width, height)
        time.sleep(0.2)  # the page takes a moment to settle
        self.driver.save_screenshot(str(self.pictures / f"{name}.png"))


@pytest.fixture(scope="module")
def driver():
    if not (BROWSER and DRIVER):
        pytest.skip("neither Chromium nor its driver is installed (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for name in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars", "no-first-run"):
        options.add_argument(f"--{name}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(project_root):
    cards = project_root / "model_cards"
    with running_demo([str(cards / "onlstm-ptb-small"), str(cards / "lstm-ptb-small")]) as address:
        yield address


@pytest.fixture
def browser(driver, address, project_root):
    pictures = project_root / "test-artifacts"
    pictures.mkdir(exist_ok=True)
    browser = Browser(driver, address, pictures)
    browser.resize(1200, 900)
    browser.prefer("light")
    return browser


def test_the_page_opens_with_a_tree_and_asks_no_other_server(browser):
    browser.driver.get_log("performance")
    browser.open()
    browser.picture("wide-light")
    messages = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    requests = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert requests
    assert [url for url in requests if not url.startswith((browser.address, "data:", "blob:"))] == []
    assert "layer 2, which makes the tree" in browser.find("#analyses")[0].text
    errors = [entry for entry in browser.driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []


def test_text_in_the_address_is_shown_as_text_whatever_it_is(browser):
    browser.open(text=NASTY, treebank=0, layer=3, bias="none")
    assert browser.run("return window.hit") is None
    assert browser.run("return document.querySelectorAll('#analyses :is(script, img)').length") == 0
    shown = browser.find("#analyses h3")[0].text
    assert shown == NASTY
    assert browser.find("#sentences textarea")[0].get_attribute("value") == NASTY
    assert "layer 3, which makes the tree" in browser.find("#analyses")[0].text


def test_the_keyboard_alone_parses_and_the_address_follows(browser):
    browser.open()
    field = browser.type(GOLD)
    field.send_keys(Keys.SHIFT, Keys.ENTER)
    browser.wait(lambda: "Gold tree" in browser.find("#analyses")[0].text)
    text = browser.find("#analyses")[0].text
    assert "F1" in text and "In both" in text and "the old man" in text
    browser.wait(lambda: "text=" in browser.driver.current_url)
    fields = parse_qs(urlsplit(browser.driver.current_url).query)
    assert fields["text"] == [GOLD] and fields["layer"] == ["2"]
    seen = []
    for _ in range(20):  # Tab comes from the text to the button, and from there to the figure
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        seen.append(browser.run("return document.activeElement.id || document.activeElement.className"))
    assert "parse" in seen and "figure" in seen
    browser.picture("gold-light")


def test_the_page_fits_a_phone_in_the_dark(browser):
    browser.resize(390, 844, mobile=True)
    browser.prefer("dark")
    browser.open(text=GOLD)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    for element in browser.find("label, button, textarea, h1, #analyses p"):
        assert 0 <= element.rect["x"] <= element.rect["x"] + element.rect["width"] <= 390, element.text
    figure = browser.find("#analyses .figure")[0]  # which scrolls in itself
    assert browser.run("return arguments[0].scrollWidth > arguments[0].clientWidth", figure)
    paper = browser.run("return getComputedStyle(document.querySelector('.onlstm-figure .paper-fill')).fill")
    page = browser.run("return getComputedStyle(document.body).backgroundColor")
    for color in (paper, page):
        assert max(map(int, color.strip("rgb()").split(","))) < 64
    browser.picture("phone-dark")
    browser.prefer("light")
    browser.open(text=GOLD, __theme="dark")  # the page's own theme wins over the browser's
    assert browser.run("return getComputedStyle(document.querySelector('.onlstm-figure .paper-fill')).fill") == paper
    browser.open(text=GOLD)
    browser.picture("phone-light")


def test_a_pair_in_the_address_is_compared(browser):
    browser.prefer("dark")
    pair = {"grammatical": "the executives are pleased", "ungrammatical": "the executives is pleased"}
    browser.open("#comparison svg", **pair)
    assert "prefers the grammatical" in browser.find("#comparison")[0].text
    assert len(browser.find("#comparison svg")) == 2
    browser.picture("pair-dark")


def test_another_model_and_a_text_that_is_too_long(browser):
    browser.open(model="lstm-ptb-small")
    assert "induces no trees" in browser.find("#analyses")[0].text
    assert "Layer that makes" not in browser.find("body")[0].text
    (other,) = [label for label in browser.find("label") if label.text == "onlstm-ptb-small"]
    other.click()
    browser.wait(lambda: "Layer that makes" in browser.find("body")[0].text)
    browser.type("cat " * 81)
    browser.find("#parse")[0].click()
    browser.wait(lambda: browser.find("#analyses [role=alert]"))
    assert "at most 80" in browser.find("#analyses [role=alert]")[0].text


def test_twenty_words_are_answered_and_their_files_arrive(browser):
    browser.open()
    browser.type(" ".join(["the company said it expects to report a loss and"] * 2))
    browser.find("#parse")[0].click()
    browser.wait(lambda: "loss and the company" in browser.find("#analyses")[0].text)
    script = """
        const done = arguments[arguments.length - 1];
        const links = [...document.querySelectorAll("#analyses a[download]")];
        const answers = links.map((link) => fetch(link.href));
        Promise.all(answers).then((all) => done(all.map((answer) => answer.headers.get("content-type"))));
    """
    types = browser.driver.execute_async_script(script)
    assert types == ["image/svg+xml", "image/png", "text/plain; charset=utf-8"]
