"""The page in Chromium; screenshots are saved in `test-artifacts/`."""

import base64
import json
import os
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from eval.time_page import SENTENCES, time_load
from onlstm_hf.page.serving import build_server
from onlstm_hf.page.site import write_page
from onlstm_hf.utils.checkpoints import load_checkpoint
from tests.helpers.requirements import library, missing

pytestmark = [pytest.mark.browser, pytest.mark.slow]

webdriver = library("selenium.webdriver", reason='these tests need pip install -e ".[test]"')
from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MODELS = ("onlstm-ptb-small-distilled", "prpn-ptb-small", "onlstm-es-small-distilled")
GOLD = "[S [NP the old man] [VP sold [NP the house]]]"
LONG = (
    "the company said that it expects to report a loss in the third quarter because analysts who own shares of the "
    "bank which sold the house to the old man in new york believe that the zyzzyva of the stock fell after the "
    "chairman of the board resigned last year without a word"
)
NASTY = "<script>window.hit=1</script> {{7*7}} ${7*7} {{value}} <img src=x onerror=window.hit=2> </svg>"
FORMS = ["Brackets", "Square brackets", "LaTeX, qtree", "LaTeX, forest"]
TABS = ("tree", "play", "gates", "expected", "learners", "correct")
# Returns the edges of visible elements.
EDGES = """
    return [...document.querySelectorAll(arguments[0])]
        .filter((element) => element.checkVisibility({visibilityProperty: true}))
        .map((element) => element.getBoundingClientRect().toJSON());
"""


class Browser:
    """Chromium with the page."""

    def __init__(self, driver, address, pictures):
        self.driver, self.address, self.pictures = driver, address, pictures

    def resize(self, width, height, mobile=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, theme, media=""):
        preferences = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in preferences.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features, "media": media})

    def open(self, **fields):
        """Reloads the page with these fields in its URL, and waits until it has shown them."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}#{urlencode(fields)}")
        self.settle()

    def settle(self):
        self.wait(lambda: self.run("return document.documentElement.classList.contains('ready')"))
        self.wait(lambda: not self.run("return document.querySelector('[aria-busy=true]')"))

    def wait(self, condition):
        # An element may be replaced after it was found and before it is read.
        options = {"poll_frequency": 0.05, "ignored_exceptions": [StaleElementReferenceException, IndexError]}
        return WebDriverWait(self.driver, 120, **options).until(lambda _: condition())

    def find(self, selector):
        return [element for element in self.driver.find_elements(By.CSS_SELECTOR, selector) if element.is_displayed()]

    def button(self, text, within="#view"):
        return [button for button in self.find(f"{within} button") if text in button.text][0]

    def click_word(self, index):
        click = "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        self.run(click, f'.word[data-index="{index}"]')

    def text(self, selector="#view"):
        return " ".join(element.text for element in self.find(selector))

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def run_async(self, script, *arguments):
        return self.driver.execute_async_script(
            "const given = [...arguments], done = given.pop();"
            f"(async () => {{ {script} }})().then(done, (error) => done(String(error)));",
            *arguments,
        )

    def type(self, text, selector="#text"):
        (field,) = self.find(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)
        return field

    def errors(self):
        """Returns console messages since the last call: errors and violations of the content policy."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def picture(self, name):
        """Saves a screenshot of the whole page."""
        width = self.run("return innerWidth")
        self.resize(width, max(self.run("return document.documentElement.scrollHeight"), 300), mobile=width < 500)
        self.run_async("await new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))")
        self.driver.save_screenshot(str(self.pictures / f"{name}.png"))
        self.resize(width, 900, mobile=width < 500)


@pytest.fixture(scope="module")
def driver():
    if not (BROWSER and DRIVER):
        missing("browser", "Chromium or its driver is missing (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    flags = ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "disable-background-networking")
    for name in (*flags, "hide-scrollbars", "no-first-run"):
        options.add_argument(f"--{name}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(300)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(project_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "site"
    write_page(folder, [str(project_root / "model_cards" / name) for name in MODELS])
    with build_server(folder, port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def browser(driver, address, project_root):
    pictures = project_root / "test-artifacts"
    pictures.mkdir(exist_ok=True)
    browser = Browser(driver, address, pictures)
    browser.resize(1280, 900)
    browser.prefer("light")
    browser.errors()  # discards those of the previous test
    return browser


@pytest.fixture(scope="module")
def axe(project_root):
    """Source of axe-core, which finds accessibility problems."""
    folder = Path(os.environ.get("AXE_CORE") or project_root / "node_modules" / "axe-core")
    if not (folder / "axe.min.js").is_file():
        missing("axe", "axe-core is missing: npm install --no-save axe-core, or its folder in AXE_CORE")
    return (folder / "axe.min.js").read_text(encoding="utf-8")


def violations(browser, axe):
    """Returns the findings of axe-core with all details of the page open."""
    browser.run("for (const part of document.querySelectorAll('details')) part.open = true")
    browser.run(axe)
    return browser.run_async(
        """const about = (found) => found.nodes.map((node) => `${found.id}: ${node.html.slice(0, 200)}`);
           return (await axe.run()).violations.flatMap(about);"""
    )


def test_the_page_opens_with_an_example_and_contacts_no_other_server(browser):
    browser.driver.get_log("performance")
    browser.open()
    assert "the president of the company said he will sell his shares" in browser.text("#view h2")
    rows = [row.text for row in browser.find(".against-gold tbody tr")]
    assert rows[0].startswith("onlstm-ptb-small-distilled 100.0")
    browser.picture("first")
    messages = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    requested = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {urlsplit(url).netloc for url in requested if url.startswith("http")} == {urlsplit(browser.address).netloc}
    assert browser.errors() == []


def test_parsing_by_keyboard_updates_the_url(browser):
    browser.open()
    browser.type(GOLD).send_keys(Keys.ENTER)
    browser.wait(lambda: "the old man sold the house" in browser.text("#view h2"))
    assert "Read as labels: S, NP, VP." in browser.text() and "Against the gold tree" in browser.text()
    assert parse_qs(urlsplit(browser.driver.current_url).fragment)["text"] == [GOLD]
    area = browser.find("#text")[0]
    assert browser.run("return document.activeElement.id") == "text"
    area.send_keys(Keys.END, Keys.SHIFT, Keys.ENTER)
    assert area.get_attribute("value") == f"{GOLD}\n"
    area.send_keys("stocks fell")
    area.send_keys(Keys.CONTROL, Keys.ENTER)
    browser.wait(lambda: len(browser.find("#view .result")) == 2)
    tab = browser.find("[role=tab][aria-selected=true]")[0]
    tab.send_keys(Keys.ARROW_RIGHT)
    browser.wait(lambda: browser.run("return document.activeElement.dataset.tab") == "play")
    assert parse_qs(urlsplit(browser.driver.current_url).fragment)["tab"] == ["play"]
    assert browser.errors() == []


def test_the_back_button_returns_to_earlier_results(browser):
    browser.open(text="the cat sleeps")
    for text in ("the dog sleeps", "stocks fell"):
        browser.type(text).send_keys(Keys.ENTER)
        browser.wait(lambda text=text: browser.text("#view h2") == text)
    for text in ("the dog sleeps", "the cat sleeps"):
        browser.driver.back()
        browser.wait(lambda text=text: browser.text("#view h2") == text)
        assert browser.find("#text")[0].get_attribute("value") == text
    assert browser.driver.title.startswith("the cat sleeps")


def test_the_skip_link_keeps_the_sentence(browser):
    browser.open(text="the dog sleeps")
    browser.run("document.activeElement.blur()")
    ActionChains(browser.driver).send_keys(Keys.TAB, Keys.ENTER).perform()
    assert browser.run("return document.activeElement.id") == "main"
    assert parse_qs(urlsplit(browser.driver.current_url).fragment) == {"text": ["the dog sleeps"]}


def test_a_choice_keeps_the_focus_for_the_arrow_keys(browser):
    browser.open(text="the dog sleeps")
    browser.run("[...document.querySelectorAll('select')].find(({ value }) => value === 'right').focus()")
    for rule in ("none", "ranges"):
        browser.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
        browser.wait(lambda rule=rule: parse_qs(urlsplit(browser.driver.current_url).fragment).get("rule") == [rule])
        browser.settle()
        assert browser.run("return document.activeElement.id") == "rule"


def test_resizing_the_window_keeps_typed_text_and_drawn_brackets(browser):
    browser.open(text="the dog sleeps")
    browser.find("#text")[0].send_keys(" now")
    browser.run("window.before = document.querySelector('svg.figure')")
    browser.resize(900, 900)
    browser.wait(lambda: browser.run("return !window.before.isConnected"))
    browser.settle()
    assert browser.find("#text")[0].get_attribute("value") == "the dog sleeps now"
    browser.open(text="the old dog sleeps here", tab="correct")
    browser.button("Remove all").click()
    browser.resize(1280, 900)
    browser.run_async("await new Promise((later) => setTimeout(later, 500));")
    browser.settle()
    assert len(browser.find(".editor .node")) == 1


def test_text_in_the_url_is_never_markup(browser):
    for fields in (
        {"text": NASTY},
        {"text": f"({NASTY} (x y))"},
        {"view": "pairs", "first": NASTY, "second": "the cat"},
        {"view": "class", "sentences": NASTY},
        {"view": NASTY, "model": NASTY, "layer": NASTY, "rule": NASTY, "tab": NASTY, "at": NASTY, "other": NASTY},
    ):
        browser.open(**fields)
        assert browser.run("return window.hit") is None
        assert browser.run("return document.querySelectorAll('main :is(script, img, iframe, object)').length") == 0
    browser.open(text=NASTY)
    assert browser.find("#text")[0].get_attribute("value") == NASTY
    assert browser.errors() == []


def test_constituents_react_to_mouse_taps_and_arrow_keys(browser):
    browser.open(text=GOLD)
    words = lambda: browser.find(".said")[0].text  # noqa: E731
    node = browser.find('.node[data-panel="0"][data-start="0"][data-end="3"]')[0]
    ActionChains(browser.driver).move_to_element_with_offset(node, 8, 4).perform()  # between its lines
    assert words().startswith("the old man (words 1 to 3)")
    figure = browser.find(".figure-box")[0]
    seen = []
    for key in (Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_DOWN):
        figure.send_keys(key)
        seen.append(words().partition(" (")[0])
    assert seen == ["the old man sold the house", "the old man", "sold the house", "the house"]
    browser.click_word(5)
    assert words().startswith("house: ") and " bits" in words()


def test_arrow_keys_follow_a_right_to_left_sentence(browser):
    browser.open(text="[[הכלב הזקן] [ישן שם]]")
    figure = browser.find(".figure-box")[0]
    figure.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert browser.find(".said")[0].text.startswith("ישן שם (words 3 to 4)")
    browser.open(text="הכלב ישן שם", tab="gates")
    browser.find(".gates-tab .figure-box")[0].send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert "“ישן”" in browser.find(".said")[0].text


def test_a_right_to_left_sentence_begins_at_the_right_edge_of_a_narrow_window(browser):
    browser.resize(360, 800, mobile=True)
    browser.open(text="הכלב הזקן ישן שם כל היום וגם בלילה הוא ישן שם")
    inside = """const box = document.querySelector(".figure-box").getBoundingClientRect();
        const word = document.querySelector('.word[data-index="0"]').getBoundingClientRect();
        const overflows = document.querySelector(".figure").getBoundingClientRect().width > box.width;
        return overflows && word.left >= box.left && word.right <= box.right;"""
    assert browser.run(inside)
    browser.picture("right-to-left-360")


def test_punctuation_is_attached_or_a_cue_and_the_url_keeps_the_choice(browser, project_root):
    text = 'While the company was buying, the bank (based in New York) raised its "final" offer.'
    model, tokenizer = load_checkpoint(str(project_root / "model_cards" / MODELS[0]))
    trees = {choice: model.parse(text, tokenizer, punctuation=choice) for choice in ("drop", "attach", "cue")}
    assert len({tree.to_bracket() for tree in trees.values()}) == 3

    def shown():
        browser.settle()
        words, brackets = browser.run(
            """const all = (selector) => [...document.querySelectorAll(selector)].map((found) => found.textContent);
               return [all(".figure .word[data-index] text"), all(".exports pre")[0]];"""
        )
        return tuple(words), brackets

    def choose(punctuation):
        (label,) = [label for label in browser.find(".choice") if label.text.startswith("Punctuation")]
        Select(label.find_element(By.TAG_NAME, "select")).select_by_value(punctuation)
        browser.wait(lambda: f"punctuation={punctuation}" in browser.driver.current_url)

    browser.open(text=text)
    assert shown() == (trees["drop"].words, trees["drop"].to_bracket())
    for punctuation in ("attach", "cue"):
        choose(punctuation)
        expected = (trees[punctuation].words, trees[punctuation].to_bracket())
        browser.wait(lambda expected=expected: shown() == expected)
        browser.picture(f"punctuation-{punctuation}")
        address = browser.driver.current_url
        browser.driver.get("about:blank")
        browser.driver.get(address)
        assert shown() == expected
    assert "raised after marks" in " ".join(element.text for element in browser.find(".figure .caption"))
    choose("attach")
    browser.wait(lambda: shown()[0] == trees["attach"].words)
    browser.click_word(trees["attach"].words.index("("))
    assert browser.text(".said").startswith("(: a mark")
    assert browser.errors() == []


def test_splits_are_animated_step_by_step_for_each_rule(browser):
    browser.open(text="the company said it expects to report a loss", tab="play")
    for rule in ("papers' rule", "unbiased rule", "ranges of a PRPN's gates"):
        browser.button(rule).click()
        assert "No split yet" in browser.text(".said")
        hidden = [len(browser.driver.find_elements(By.CSS_SELECTOR, ".node.later"))]
        assert hidden == [8] and len(browser.find(".card")) == 1
        steps = int(browser.find("input[type=range]")[0].get_attribute("max"))
        for step in range(1, steps + 1):
            browser.button("Next", "[role=tabpanel]").click()
            assert f"Step {step} of {steps}" in browser.text(".said")
            assert len(browser.driver.find_elements(By.CSS_SELECTOR, ".pin.winner")) == 1
            hidden.append(len(browser.driver.find_elements(By.CSS_SELECTOR, ".node.later")))
        assert hidden[-1] == 0 and hidden == sorted(set(hidden), reverse=True)
        assert len(browser.find(".card")) == 9
    browser.find(".figure-box")[0].send_keys(Keys.HOME)
    assert "No split yet" in browser.text(".said")
    browser.button("Play").click()
    browser.wait(lambda: "Step 2" in browser.text(".said"))
    browser.button("Pause").click()


def test_the_gates_tab_shows_the_erased_levels(browser):
    browser.open(text="the company said it expects a loss", tab="gates")
    assert len(browser.find(".gate-column")) == 7
    figure = browser.find(".figure-box")[0]
    figure.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert "Before “said”: levels 1 to" in browser.text(".said") and "distance" in browser.text(".said")
    browser.open(text="the company said it expects a loss", tab="gates", model="prpn-ptb-small")
    assert "memories are open" in browser.find("svg.figure")[0].get_attribute("aria-label")


def test_five_predictions_are_shown_at_each_place(browser):
    browser.open(text="the company said", tab="expected")
    rows = browser.find(".expected tbody tr")
    assert len(rows) == 4
    for row in rows:
        shown = [float(cell.text.strip("<% ")) for cell in row.find_elements(By.CSS_SELECTOR, ".percent")]
        assert len(shown) == 5 and shown == sorted(shown, reverse=True)
    assert "(end)" in rows[-1].text
    browser.open(text="The company said", tab="expected")  # shown as typed, not as the model reads it
    assert browser.find(".guesses .came")[0].text.startswith("the ")


def test_learners_are_compared_with_pairwise_f1(browser):
    browser.open(text=GOLD, tab="learners")
    for label in browser.find("fieldset label"):
        if "prpn-ptb-small" in label.text or "left" in label.text:
            label.click()
    browser.wait(lambda: len(browser.find(".learners-tab tbody tr")) == 5)
    browser.settle()
    names = [row.text.split()[0] for row in browser.find(".learners-tab tbody tr")]
    assert names == ["gold", "onlstm-ptb-small-distilled", "prpn-ptb-small", "right", "left"]
    assert browser.driver.find_elements(By.CSS_SELECTOR, ".node.one")
    browser.picture("learners")


def test_corrected_brackets_update_f1(browser):
    browser.open(text="the old man sold the house", tab="correct")
    browser.button("Remove all").click()
    assert "compares nothing" in browser.text(".correct-tab")
    first = browser.find(".picks button")[0]
    first.click()
    browser.find(".picks button")[2].click()
    assert "((the old man) sold the house)" in browser.text(".correct-tab pre")
    browser.find(".picks button")[2].send_keys(Keys.ARROW_RIGHT)
    for key in (Keys.ENTER, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER):
        browser.driver.switch_to.active_element.send_keys(key)
    assert "((the old man) (sold the house))" in browser.text(".correct-tab pre")
    assert [row.text.rsplit(" ", 1)[1] for row in browser.find(".scores tbody tr")]
    browser.button("× the old man").click()
    assert "(the old man (sold the house))" in browser.text(".correct-tab pre")
    browser.button("Undo").click()
    browser.button("Use it as the gold tree").click()
    browser.wait(lambda: "Against the gold tree" in browser.text())
    assert browser.find("#text")[0].get_attribute("value") == "[[the old man] [sold the house]]"


def test_pairs_are_scored_in_total_and_at_the_critical_place_for_all_models(browser):
    pair = {"first": "no company has ever reported a loss", "second": "the company has ever reported a loss"}
    browser.open(view="pairs", **pair, at="ever")
    rows = [row.text for row in browser.find(".pairs tbody tr")]
    assert [row.split()[0] for row in rows] == list(MODELS[:2])  # the models of one language
    assert "+" in rows[0].split()[1] and "grammatical" in rows[0]
    assert "“ever”" in browser.text(".verdict")
    assert browser.button("ever").get_attribute("aria-pressed") == "true"
    browser.button("where they differ").click()
    browser.wait(lambda: "“no” or “the”" in browser.text(".verdict"))
    browser.wait(lambda: browser.driver.switch_to.active_element.text == "where they differ")
    browser.picture("pairs")
    browser.open(view="pairs")
    assert len(browser.find(".examples a")) >= 8
    assert browser.errors() == []


def test_a_class_draws_saves_and_compares_brackets(browser, tmp_path):
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.open(view="class", sentences=f"{GOLD}\nstocks fell sharply")
    words = [word.text for word in browser.find(".picks button")]
    assert words == ["the", "old", "man", "sold", "the", "house"]
    for name in ("Ada", "Bob"):
        browser.find(".picks button")[0].click()
        browser.find(".picks button")[2 if name == "Ada" else 1].click()
        browser.type(name, "#student")
        browser.button("Save my answers").click()
        browser.wait(lambda name=name: (tmp_path / f"{name.lower()}.json").is_file())
    (tmp_path / "bad.json").write_text(
        '{"format": "onlstm_hf class", "version": 1, "name": "<img src=x>", '
        '"answers": [{"words": ["a", "b", "c"], "spans": [[0, 9]]}]}'
    )
    files = browser.driver.find_element(By.ID, "files")
    files.send_keys("\n".join(str(tmp_path / f"{name}.json") for name in ("ada", "bob", "bad")))
    browser.wait(lambda: browser.find("#agreement tbody tr"))
    cells = [cell.text for cell in browser.find("#agreement tbody tr")[0].find_elements(By.CSS_SELECTOR, "th, td")]
    assert cells[0] == "the old man sold the house" and cells[1] == "2"
    assert 0 < float(cells[2]) < 100 and 0 < float(cells[3]) < 100  # with each other, with gold
    assert "bad.json: this is no file" in browser.text("#agreement [role=alert]")
    assert "2 files: Ada, Bob." in browser.text("#agreement")
    browser.picture("class")
    drawn = browser.find(".editor .chip")[0].text
    browser.open(view="class", sentences=f"{GOLD}\nstocks fell sharply")
    browser.wait(lambda: browser.find(".editor .chip"))
    assert browser.find(".editor .chip")[0].text == drawn
    browser.open(view="class", sentences="the old man sold the house")
    browser.wait(lambda: browser.find(".picks button"))
    assert not browser.find(".editor .chip")
    assert browser.errors() == []


def test_a_slider_shows_a_tree_during_training(browser):
    browser.open(view="growing")
    slider = browser.find("input[type=range]")[0]
    slider.send_keys(Keys.HOME)
    browser.wait(lambda: "After 0 updates" in browser.text(".said"))
    first = browser.find("svg.figure")[0].get_attribute("aria-label")
    slider.send_keys(Keys.END)
    browser.wait(lambda: "After 0 updates" not in browser.text(".said"))
    assert browser.find("svg.figure")[0].get_attribute("aria-label") != first
    browser.picture("growing")
    Select(browser.find(".growing-view select")[0]).select_by_visible_text("Penn Treebank")
    browser.wait(lambda: "newspaper" in browser.text(".growing-view p"))
    assert "After 0 updates" not in browser.text(".said")
    assert browser.errors() == []


def test_pasted_paragraphs_are_split_and_unknown_words_are_reported(browser):
    browser.open(text="The bank bought it. Mr. Smith sold the firm!")
    assert "Split into 2 sentences." in browser.text() and len(browser.find(".result")) == 2
    browser.open(text="el presidente dijo que no habrá elecciones")
    assert "does not know most of these words" in browser.text("[role=status]")
    browser.open(model="onlstm-es-small-distilled")
    assert "el presidente" in browser.find("#text")[0].get_attribute("value")
    assert browser.find(".result h2")[0].get_attribute("lang") == "es"


@pytest.mark.parametrize(
    "text, message",
    [
        ("(the cat", "never closed"),
        ("((a) (b ()))", "nothing between"),
        (" ", "no sentence"),
        ("cat " * 121, "at most"),
    ],
)
def test_input_errors_are_shown_and_the_input_is_kept(browser, text, message):
    browser.open(text=text)
    assert message in browser.text("#results [role=alert]")
    assert browser.find("#text")[0].get_attribute("value") == text


def test_an_empty_field_does_not_show_the_example(browser):
    browser.open(text="the dog sleeps")
    browser.find("#text")[0].clear()
    browser.find("#text")[0].send_keys(Keys.ENTER)
    browser.wait(lambda: "no sentence" in browser.text("#results [role=alert]"))


def test_parts_without_words_are_skipped(browser):
    browser.open(text="The bank bought it. 😀\n***\nStocks fell.")
    assert [heading.text for heading in browser.find(".result h2")] == ["The bank bought it", "Stocks fell"]
    assert "Split into 2 sentences. Left out: 2 without a word." in browser.text("#results .note")
    browser.open(text="😀")
    assert "There is no word in “😀”." in browser.text("#results [role=alert]")


@pytest.mark.parametrize("sentences, problem", [("(the cat", "never closed"), ("😀", "no sentence")])
def test_a_teacher_can_correct_the_sentences_of_a_class(browser, sentences, problem):
    browser.open(view="class", sentences=sentences)
    assert problem in browser.text("#view [role=alert]")
    assert browser.find("#sentences")[0].get_attribute("value") == sentences
    assert browser.errors() == []


# Browsers without module workers, and browsers without full screen (phones, frames).
@pytest.mark.parametrize(
    "script, seen, missing_button",
    [
        (
            "Worker = class extends EventTarget { postMessage() { this.dispatchEvent(new Event('error')); } };",
            "The model could not be run in this browser.",
            "All layers",
        ),
        ("Object.defineProperty(Document.prototype, 'fullscreenEnabled', { value: false });", "", "Full screen"),
    ],
)
def test_missing_browser_features_are_reported_or_hidden(browser, script, seen, missing_button):
    command = "Page.addScriptToEvaluateOnNewDocument"
    added = browser.driver.execute_cdp_cmd(command, {"source": script})
    try:
        browser.open(text="the dog sleeps")
        assert seen in browser.text("#results")
        assert missing_button not in browser.text("#results")
    finally:
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_long_sentences_have_an_outline_with_unknown_words(browser):
    browser.open(text=LONG)
    outline = browser.find(".outline")[0].text.split()
    assert outline[:3] == ["the", "company", "said"] and "zyzzyva unknown" in " ".join(outline)


def test_figures_and_numbers_are_saved_as_files(browser, tmp_path):
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.prefer("dark")
    browser.open(text="the old man sold =1+1 the house")
    for summary in browser.find(".result summary"):
        if "outline" not in summary.text:
            summary.click()
    for kind in ("SVG", "PNG", "TSV", "JSON"):
        browser.button(f"Save as {kind}").click()
    names = [f"the-old-man-sold-1-1-the-house.{kind}" for kind in ("svg", "png", "tsv", "json")]
    browser.wait(lambda: all((tmp_path / name).is_file() for name in names))
    svg, png, tsv, record = (tmp_path / name for name in names)
    assert png.read_bytes().startswith(b"\x89PNG") and "#ffffff" in svg.read_text() and "var(" not in svg.read_text()
    assert tsv.read_text().splitlines()[0].startswith("word\tdistance, layer 1")
    assert [form.text for form in browser.find(".exports h3")] == FORMS
    assert all("old" in form.text for form in browser.find(".exports pre"))
    content = json.loads(record.read_text())
    assert content["made_by"].startswith("onlstm-ptb-small-distilled") and len(content["words"]) > 5
    assert browser.errors() == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_accessible_and_fits_the_window(browser, axe, width, theme):
    browser.resize(width, 844, mobile=width < 500)
    browser.prefer(theme)
    size = "phone" if width < 500 else "wide"
    states = [{"text": f"{GOLD}\n{LONG}", "tab": tab} for tab in TABS]
    states += [{"view": view} for view in ("pairs", "class", "growing", "about")]
    states += [{"text": "(the cat"}, {"text": "zyzzyva quux"}]
    states += [{"text": f'"Yes," he said (again).\n{GOLD}', "punctuation": name} for name in ("attach", "cue")]
    for fields in states:
        browser.open(**fields)
        assert violations(browser, axe) == [], fields
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), fields
        for edges in browser.run(EDGES, "h1, label, textarea, summary, .ask button, .tools > button, h2"):
            assert -1 <= edges["left"] <= edges["right"] <= width + 1, (fields, edges)
        name = fields.get("view") or fields.get("tab") or fields.get("punctuation") or "message"
        browser.picture(f"{size}-{theme}-{name}")


def test_controls_are_not_printed(browser):
    browser.prefer("light", media="print")
    browser.open(text=GOLD)
    assert browser.find("svg.figure")
    assert not any(browser.find(hidden) for hidden in ("form", "nav", ".tools"))
    browser.prefer("light")
    for text in (GOLD, LONG):
        browser.open(text=text)
        printed = base64.b64decode(browser.driver.print_page())
        (browser.pictures / f"print-{len(text)}.pdf").write_bytes(printed)
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1


@pytest.mark.usefixtures("driver")
def test_the_first_and_later_trees_are_timed(address):
    first, others = time_load(DRIVER, address)
    assert len(others) == len(SENTENCES) and all(0 < milliseconds < 60_000 for milliseconds in (first, *others))


def test_the_page_opens_offline(browser):
    browser.open(text="stocks fell sharply")
    browser.wait(lambda: browser.run_async("return Boolean((await navigator.serviceWorker.ready).active)"))
    browser.run_async(
        "while (!navigator.serviceWorker.controller) await new Promise((later) => setTimeout(later, 50));"
    )
    # Its URL changes with the page, so that browsers do not keep an older version.
    version = browser.run_async("return (await (await fetch('site.json')).json()).version;")
    assert browser.run("return navigator.serviceWorker.controller.scriptURL").endswith(f"offline.js?version={version}")
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.driver.execute_cdp_cmd("Network.enable", {})
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        browser.open(text="the bank fell")
        assert browser.text("#view h2") == "the bank fell" and browser.find("svg.figure")
    finally:
        browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
        browser.errors()
