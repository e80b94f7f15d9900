"""The web page in Chromium. Pictures of it are kept in `test-artifacts/`."""

import json
import os
import shutil
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from onlstm_hf.demo.models import DemoModels
from tests.helpers.demo_server import port_of, running_server
from tests.helpers.requirements import library, missing

pytestmark = [pytest.mark.browser, pytest.mark.slow]

library("starlette", reason='the demo needs pip install "onlstm_hf[demo]"')
webdriver = library("selenium.webdriver", reason='these tests need pip install "onlstm_hf[test]"')
from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

from onlstm_hf.demo.app import build_app  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
GOLD = "((the old man) (sold (the house)))"
LONG = (
    "the company said that it expects to report a loss in the third quarter because analysts who own shares of the "
    "bank which sold the house to the old man in new york believe that the price of the stock fell after the chairman "
    "of the board resigned last year without a word"
)
NASTY = "<script>window.hit=1</script> {{7*7}} ${7*7} {{value}} <img src=x onerror=window.hit=2> </svg>"
CHOICES = "&model=onlstm-ptb-small&layer=2&bias=right&treebank=1"
# Of the visible elements: the text, the edges, and the colours, or those of what they stand on where they have none.
APPEARANCE = """
    const effective = (element, name) => {
        while (element && getComputedStyle(element)[name] === "rgba(0, 0, 0, 0)") element = element.parentElement;
        return element ? getComputedStyle(element)[name] : "rgb(255, 255, 255)";
    };
    return [...document.querySelectorAll(arguments[0])]
        .filter((element) => element.checkVisibility({visibilityProperty: true}))
        .map((element) => {
            const {left, right} = element.getBoundingClientRect();
            const colors = [effective(element, "color"), effective(element, "backgroundColor")];
            return {text: element.innerText, left, right, colors};
        });
"""
SETTLED = """
    const done = arguments[arguments.length - 1];
    const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));
    Promise.all(document.getAnimations().map((animation) => animation.finished)).then(drawn);
"""


def channels(color):
    """The red, green and blue of a CSS colour, from 0 to 255."""
    return [float(value) for value in color.strip("rgb()").split(",")]


def contrast(first, second):
    """The contrast ratio of WCAG 2."""

    def luminance(color):
        scaled = [value / 255 for value in color]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in scaled]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


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

    def open(self, shown="#result svg", **fields):
        self.driver.get(f"{self.address}?{urlencode(fields)}")
        return self.wait(lambda: self.find(shown))

    def wait(self, condition):
        # Between its being found and its being read, an element may be replaced by that of the next result.
        options = {"poll_frequency": 0.05, "ignored_exceptions": [StaleElementReferenceException, IndexError]}
        return WebDriverWait(self.driver, 60, **options).until(lambda _: condition())

    def find(self, selector):
        return [element for element in self.driver.find_elements(By.CSS_SELECTOR, selector) if element.is_displayed()]

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def type(self, text, selector="#text"):
        (field,) = self.find(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)
        return field

    def errors(self):
        """What the console has said since it was asked last, of errors and of what the page's policy forbids."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def picture(self, name):
        """Keeps a picture of the whole page."""
        width = self.run("return innerWidth")
        self.resize(width, 100)  # a page is at least as high as its window
        self.resize(width, self.run("return document.documentElement.scrollHeight"))
        self.driver.execute_async_script(SETTLED)
        self.driver.save_screenshot(str(self.pictures / f"{name}.png"))


@pytest.fixture(scope="module")
def driver():
    if not (BROWSER and DRIVER):
        missing(
            "browser",
            "neither Chromium nor its driver is installed (Debian: apt-get install chromium chromium-driver)",
        )
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
    models = DemoModels.load([str(cards / f"{name}-ptb-small") for name in ("onlstm", "prpn", "lstm")])
    with running_server(build_app(models)) as server:
        yield f"http://127.0.0.1:{port_of(server)}/"


@pytest.fixture
def browser(driver, address, project_root):
    pictures = project_root / "test-artifacts"
    pictures.mkdir(exist_ok=True)
    browser = Browser(driver, address, pictures)
    browser.resize(1280, 900)
    browser.prefer("light")
    browser.errors()  # those of the test before
    return browser


def violations(browser, axe):
    """What axe-core finds wrong with the page, everything on it unfolded."""
    browser.run("for (const part of document.querySelectorAll('details')) part.open = true")
    browser.run(axe)
    script = """
        const done = arguments[arguments.length - 1];
        const about = (found) => found.nodes.map((node) => `${found.id}: ${node.html.slice(0, 200)}`);
        axe.run().then((result) => done(result.violations.flatMap(about)));
    """
    return browser.driver.execute_async_script(script)


@pytest.fixture(scope="module")
def axe(project_root):
    """The source of axe-core, which looks for what keeps people from using a page."""
    folder = Path(os.environ.get("AXE_CORE") or project_root / "node_modules" / "axe-core")
    if not (folder / "axe.min.js").is_file():
        missing("axe", "axe-core is missing: npm install --no-save axe-core, or its folder in AXE_CORE")
    return (folder / "axe.min.js").read_text(encoding="utf-8")


def test_the_page_opens_with_a_tree_and_asks_no_other_server(browser):
    browser.driver.get_log("performance")
    browser.open()
    browser.picture("wide-light")
    messages = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    requests = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert len(requests) >= 3
    assert [url for url in requests if not url.startswith(browser.address)] == []
    received = [m["params"]["encodedDataLength"] for m in messages if m["method"] == "Network.loadingFinished"]
    assert sum(received) < 100_000  # bytes
    assert "layer 2, which makes the tree" in browser.find("#result")[0].text
    assert browser.errors() == []


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
@pytest.mark.parametrize("text", ["the company said it expects to report a loss", GOLD, LONG])
def test_the_sentence_the_button_and_the_tree_are_above_the_fold(browser, width, height, text):
    browser.resize(width, height, mobile=width < 500)
    browser.open(text=text)
    words = len(browser.find("#result h2")[0].text.split())
    tree = browser.find("#result .outline" if width < 500 else "#result .figure")[0]
    last = """
        const parts = [...arguments[0].querySelectorAll(arguments[1])];
        return Math.max(...parts.map((part) => part.getBoundingClientRect().bottom));
    """
    for selector in ("#text", "#show"):
        assert browser.find(selector)[0].rect["y"] < tree.rect["y"] < height / 2
    if words < 30:
        assert browser.run(last, tree, "li" if width < 500 else ".node, .word") < height
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_figures_fit_the_width_and_can_be_seen_in_their_natural_size(browser):
    def size():
        figure = browser.find("#result .figure")[0]
        script = "const s = arguments[0].querySelector('svg'); return [s.clientWidth, Number(s.getAttribute('width'))]"
        return *browser.run(script, figure), browser.run("return arguments[0].clientWidth", figure)

    browser.open(text="the cat sat")
    shown, natural, available = size()
    assert shown == natural < available  # never larger than it was drawn
    browser.open(text=LONG)
    shown, natural, available = size()
    assert shown <= available < natural
    assert browser.find("#result .outline")  # long sentences have one that can be read at once
    browser.find("button[data-view=natural]")[0].click()
    shown, natural, available = size()
    assert shown == natural > available
    browser.find("button[data-view=outline]")[0].click()
    assert not browser.find("#result .figure") and len(browser.find("#result .outline li > ul")) > 20
    browser.find("button[data-view=outline]")[0].click()
    assert browser.find("#result .figure")


def test_every_change_parses_anew_and_says_what_made_the_tree(browser):
    browser.open(text="the old cat sat on the mat")
    caption = lambda: browser.find("#result .caption")[0].text  # noqa: E731
    assert caption() == "onlstm-ptb-small, layer 2, the papers' rule"
    browser.find("summary")[0].click()
    for selector, expected in [
        ("[name=layer][value='1']", "onlstm-ptb-small, layer 1, the papers' rule"),
        ("[name=bias][value=none]", "onlstm-ptb-small, layer 1, rule without bias"),
        ("[name=model][value=prpn-ptb-small]", "prpn-ptb-small, rule without bias"),
        ("[name=model][value=lstm-ptb-small]", "lstm-ptb-small"),
        ("[name=model][value=onlstm-ptb-small]", "onlstm-ptb-small, layer 2, rule without bias"),
    ]:
        browser.find(selector)[0].click()
        browser.wait(lambda expected=expected: caption() == expected)
    browser.find("[name=beside][value=layers]")[0].click()
    browser.wait(lambda: len(browser.find("#result .word")) == 3 * 7)
    browser.picture("layers-light")
    browser.find("[name=beside][value=prpn-ptb-small]")[0].click()
    browser.wait(lambda: len(browser.find("#result .word")) == 2 * 7)
    browser.find("#examples a")[1].click()
    browser.wait(lambda: "investors who own" in browser.find("#result h2")[0].text)
    assert "beside=prpn" in browser.driver.current_url
    assert browser.errors() == []


def test_a_constituent_shows_its_words_to_the_mouse_and_to_the_arrow_keys(browser):
    browser.open(text=GOLD)
    words = lambda: browser.find("#result .span")[0].text  # noqa: E731
    node = browser.find('.node[data-start="0"][data-end="3"]')[0]
    ActionChains(browser.driver).move_to_element_with_offset(node, 5, -5).perform()  # between its lines
    assert words().startswith("the old man") and "(words 1 to 3)" in words()
    figure = browser.find("#result .figure")[0]
    seen = []
    for key in (Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_DOWN):
        figure.send_keys(key)
        seen.append(words())
    assert seen[0].startswith("the old man sold the house (words 1 to 6)")
    assert [text.partition(",")[0] for text in seen[1:]] == ["the old man", "sold the house", "the house"]
    assert len(browser.find("#result .node.chosen")) == 1
    ActionChains(browser.driver).move_to_element(browser.find("#result .word")[-1]).perform()
    assert words().startswith("house: ") and words().endswith(" bits")


def test_a_slider_shows_step_by_step_how_distances_become_a_tree(browser):
    browser.open(text="the company said it expects to report a loss")
    slider = browser.find("#result [type=range]")[0]
    slider.send_keys(Keys.HOME)
    assert len(browser.find("#result .node.later")) == 8
    assert "No split yet" in browser.find("#result .span")[0].text
    hidden = [8]
    for step in range(1, int(slider.get_attribute("max")) + 1):
        slider.send_keys(Keys.ARROW_RIGHT)
        assert f"Split {step} of" in browser.find("#result .span")[0].text
        hidden.append(len(browser.find("#result .node.later")))
        if step == 2:
            browser.picture("split-light")
    assert hidden[-1] == 0 and hidden == sorted(set(hidden), reverse=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(browser, axe, width, theme):
    browser.resize(width, 844, mobile=width < 500)
    browser.prefer(theme)
    browser.open(text=f"{GOLD}\n{LONG}\nthe zebra sat", beside="layers")
    assert violations(browser, axe) == []
    browser.find("button[data-view=outline]")[0].click()
    assert violations(browser, axe) == []
    browser.open(grammatical="the zebra sat", ungrammatical="the cat sat on it")
    assert violations(browser, axe) == []
    browser.open(shown="#result .message", text="")
    assert violations(browser, axe) == []


def test_numbers_and_exports_are_copied(browser):
    browser.open(text="the old cat sat")
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    read = "const done = arguments[arguments.length - 1]; navigator.clipboard.readText().then(done, done)"
    browser.find(".numbers summary")[0].click()
    browser.find(".numbers [data-copy]")[0].click()
    browser.wait(lambda: "surprisal" in browser.driver.execute_async_script(read))
    header, *rows = browser.driver.execute_async_script(read).split("\n")
    assert header.split("\t")[0] == "word" and [row.split("\t")[0] for row in rows] == ["the", "old", "cat", "sat"]
    browser.find(".exports summary")[0].click()
    browser.find(".exports [data-copy]")[3].click()
    browser.wait(lambda: "{forest}" in browser.driver.execute_async_script(read))


def test_text_in_the_address_is_shown_as_text_whatever_it_is(browser):
    browser.open(text=NASTY, treebank=0, layer=3, bias="none")
    assert browser.run("return window.hit") is None
    assert browser.run("return document.querySelectorAll('#result :is(script, img)').length") == 0
    assert browser.find("#result h2")[0].text == NASTY
    assert browser.find("#text")[0].get_attribute("value") == NASTY
    assert "layer 3, which makes the tree" in browser.find("#result")[0].text
    assert browser.errors() == []


def test_the_keyboard_alone_parses_and_the_address_follows(browser):
    browser.open()
    field = browser.type(GOLD)
    field.send_keys(Keys.SHIFT, Keys.ENTER)
    browser.wait(lambda: "Against the gold tree" in browser.find("#result")[0].text)
    text = browser.find("#result")[0].text
    assert "F1" in text and "In both" in text and "the old man" in text
    browser.wait(lambda: "text=" in browser.driver.current_url)
    fields = parse_qs(urlsplit(browser.driver.current_url).query)
    assert fields["text"] == [GOLD] and fields["layer"] == ["2"]
    seen = []
    for _ in range(8):  # Tab comes from the text to the button, the options, the tools and the figure
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        seen.append(browser.run("return document.activeElement.id || document.activeElement.className"))
    assert "show" in seen and "figure" in seen
    browser.find("#result .figure")[0].send_keys(Keys.TAB)  # to the outline, which shows itself
    outline = browser.driver.switch_to.active_element
    assert outline.get_attribute("class") == "outline" and outline.rect["height"] > 50
    outline.send_keys(Keys.SHIFT, Keys.TAB)
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    browser.picture("keyboard-light")


def test_the_back_button_steps_through_the_results(browser):
    browser.open(text="the cat sleeps")
    for text in ("the dog sleeps", "stocks fell"):
        browser.type(text)
        browser.find("#show")[0].click()
        browser.wait(lambda text=text: browser.find("#result h2")[0].text == text)
        browser.wait(lambda text=text: browser.driver.current_url.endswith(text.replace(" ", "+") + CHOICES))
    for text in ("the dog sleeps", "the cat sleeps"):
        browser.driver.back()
        browser.wait(lambda text=text: [title.text for title in browser.find("#result h2")] == [text])
        assert browser.find("#text")[0].get_attribute("value") == text
    browser.driver.forward()
    browser.wait(lambda: [title.text for title in browser.find("#result h2")] == ["the dog sleeps"])
    address = browser.driver.current_url
    browser.find("nav a")[2].click()  # to the examples further down, which is no other result
    browser.wait(lambda: browser.driver.current_url.endswith("#examples"))
    browser.driver.back()
    browser.wait(lambda: browser.driver.current_url == address)
    assert [title.text for title in browser.find("#result h2")] == ["the dog sleeps"]
    assert browser.driver.title.startswith("the dog sleeps")
    assert browser.errors() == []


def test_without_its_script_the_page_parses_and_compares(browser):
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open()
        browser.type("stocks fell")
        browser.find("#show")[0].click()
        browser.wait(lambda: [title.text for title in browser.find("#result h2")] == ["stocks fell"])
        assert browser.find("#text")[0].get_attribute("value") == "stocks fell"
        browser.find("nav a")[1].click()
        browser.wait(lambda: "prefers the" in browser.find("#result")[0].text)
        browser.type("stocks falls", "#ungrammatical")
        browser.find("#show")[0].click()
        browser.wait(lambda: "stocks falls" in browser.find("#result")[0].text)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_window_and_can_be_read(browser, width, theme):
    browser.resize(width, 844, mobile=width < 500)
    browser.prefer(theme)
    browser.open(text=GOLD)
    browser.run("document.querySelector('#options').open = true")
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    elements = browser.run(APPEARANCE, "label, button, textarea, summary, h1, #result p")
    assert len(elements) > 20
    for element in elements:
        assert 0 <= element["left"] <= element["right"] <= width, element["text"]
    papers = [
        browser.run("return getComputedStyle(document.querySelector('.onlstm-figure .paper-fill')).fill"),
        browser.run("return getComputedStyle(document.body).backgroundColor"),
    ]
    for paper in papers:
        assert (max(channels(paper)) < 64) == (theme == "dark")
    elements = browser.run(APPEARANCE, "h1, h2, label, legend, button, summary, .help, a, #result p, dt, dd, footer p")
    assert len(elements) > 20
    for element in elements:
        assert contrast(*map(channels, element["colors"])) >= 4.5, element
    name = "phone" if width < 500 else "wide"
    browser.picture(f"{name}-gold-{theme}")
    browser.open(text=LONG)
    browser.picture(f"{name}-long-{theme}")
    browser.open(grammatical="the lawyers hurt themselves", ungrammatical="the lawyers hurt himself")
    browser.picture(f"{name}-pair-{theme}")


def test_a_pair_in_the_address_is_compared(browser):
    browser.prefer("dark")
    pair = {"grammatical": "the executives are pleased", "ungrammatical": "the executives is pleased"}
    browser.open("#result svg", **pair)
    assert "prefers the grammatical" in browser.find("#result")[0].text
    assert len(browser.find("#result svg")) == 1
    browser.picture("pair-dark")
    browser.type("the executives was pleased", "#ungrammatical")
    browser.find("#show")[0].click()
    browser.wait(lambda: "executives was pleased" in browser.find("#result")[0].text)
    fields = parse_qs(urlsplit(browser.driver.current_url).query)
    assert fields["ungrammatical"] == ["the executives was pleased"]


def test_another_model_and_a_text_that_is_too_long(browser):
    browser.open(layer=3)
    browser.find("summary")[0].click()
    browser.find("[name=model][value=lstm-ptb-small]")[0].click()  # which has no layer to choose
    browser.wait(lambda: "induces no trees" in browser.find("#result")[0].text)
    browser.find("[name=model][value=onlstm-ptb-small]")[0].click()
    browser.type("cat " * 81)
    browser.find("#show")[0].click()
    browser.wait(lambda: browser.find("#result [role=alert]"))
    assert "at most 80" in browser.find("#result [role=alert]")[0].text


def test_a_server_that_has_gone_is_told(browser):
    browser.open()
    browser.driver.execute_cdp_cmd("Network.enable", {})
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **offline})
    try:
        browser.find("#show")[0].click()
        browser.wait(lambda: browser.find("#result [role=alert]"))
        assert "does not answer" in browser.find("#result [role=alert]")[0].text
    finally:
        browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, **offline})
        browser.errors()


def test_twenty_words_are_answered_and_their_files_arrive(browser):
    browser.open()
    browser.type(" ".join(["the company said it expects to report a loss and"] * 2))
    browser.find("#show")[0].click()
    browser.wait(lambda: "loss and the company" in browser.find("#result")[0].text)
    script = """
        const done = arguments[arguments.length - 1];
        const links = [...document.querySelectorAll("#result a[download]")];
        const answers = links.map((link) => fetch(link.href));
        Promise.all(answers).then((all) => done(all.map((answer) => answer.headers.get("content-type"))));
    """
    types = browser.driver.execute_async_script(script)
    assert types == [
        *("image/svg+xml", "image/png", "text/plain; charset=utf-8"),
        *("text/tab-separated-values; charset=utf-8", "application/json"),
    ]
    assert browser.errors() == []
