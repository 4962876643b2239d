"""Complaints about the layout of a page in a browser: text that a reader cannot read where it is drawn.

    assert_readable(browser, "http://127.0.0.1:8000/")       # on a phone and a desk, light and dark
    complaints(page)                                         # of one page as it is drawn now: [] if all is well

The rules hold for every page. A line of text must not leave the window, its container or its drawing, lie on another
line or on a bar of a chart, or be smaller than SMALLEST. A word that fits into half the width of a phone must not be
broken.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

WIDTHS = (390, 1440)  # pixels: of a phone, and of a desk
THEMES = ("light", "dark")
SMALLEST = 9.5  # pixels of a font
# Stands in for the widest fonts that a reader may have, on every machine.
WIDE = "* { letter-spacing: 0.05em !important; }"

SCRIPT = """({scrolled, smallest, longest}) => {
  const found = [], lines = [];
  const wide = document.documentElement.clientWidth;
  const show = text => JSON.stringify(text.trim().slice(0, 40));
  const beside = (a, b) => a.left < b.left - 1 || a.right > b.right + 1;
  const inside = (a, b) => !beside(a, b) && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  // How far two boxes overlap, without the blank space above and below letters.
  const overlap = (a, b, blank) => Math.min(
    Math.min(a.right, b.right) - Math.max(a.left, b.left),
    Math.min(a.bottom - blank * a.height, b.bottom - blank * b.height)
      - Math.max(a.top + blank * a.height, b.top + blank * b.height));

  // Whether the element is in a part that waits outside the window until it is called.
  const drawer = element => {
    for (let each = element; each; each = each.parentElement) {
      const box = each.getBoundingClientRect();
      if (getComputedStyle(each).position === "fixed" && (box.right <= 0 || box.left >= wide)) return true;
    }
    return false;
  };

  const visible = element => element.checkVisibility({checkVisibilityCSS: true, checkOpacity: true})
    && !element.closest("title, script, style, noscript, option, [aria-hidden=true]:empty")
    && element.getBoundingClientRect().width > 1
    && !drawer(element);

  const checkContainers = (text, box, element) => {
    const drawing = element.closest("svg");
    if (drawing && !inside(box, drawing.getBoundingClientRect())) found.push(`${show(text)} leaves its drawing`);
    if (beside(box, {left: 0, right: wide})) found.push(`${show(text)} leaves the window`);
    for (let each = element; each && each !== document.body; each = each.parentElement) {
      const style = getComputedStyle(each), outer = each.getBoundingClientRect();
      if (["inline", "contents"].includes(style.display) || each.closest("svg")) continue;
      const clips = style.overflowX !== "visible" || style.overflowY !== "visible";
      if (beside(box, outer)) found.push(`${show(text)} leaves its container`);
      else if (clips && !inside(box, outer)) found.push(`${show(text)} is cut`);
      else if (style.position === "static" || style.position === "relative") continue;
      break;
    }
  };

  // The part of a box that no container cuts off.
  const shownPart = (box, element) => {
    let {left, right, top, bottom} = box;
    for (let each = element; each && each !== document.body; each = each.parentElement) {
      const style = getComputedStyle(each), outer = each.getBoundingClientRect();
      if (style.overflowX === "visible" || style.display === "inline") continue;
      [left, right] = [Math.max(left, outer.left), Math.min(right, outer.right)];
      [top, bottom] = [Math.max(top, outer.top), Math.min(bottom, outer.bottom)];
    }
    return new DOMRect(left, top, Math.max(0, right - left), Math.max(0, bottom - top));
  };

  // Hyphens and slashes are places to break a word at.
  const checkWords = (node, element) => {
    const vertical = getComputedStyle(element).writingMode !== "horizontal-tb";
    const boxesOf = (start, text) => {
      const range = document.createRange();
      range.setStart(node, start);
      range.setEnd(node, start + text.length);
      return [...range.getClientRects()].filter(box => box.width > 0.5);
    };
    for (const {0: whole, index: start} of node.data.matchAll(/\\S+/g)) {
      if (boxesOf(start, whole).reduce((sum, box) => sum + box.width, 0) > longest) continue;
      for (const {0: word, index} of whole.matchAll(/[^-\u2010\u2013\u2014/|]+/g)) {
        const rows = boxesOf(start + index, word).map(box => Math.round(vertical ? box.left : box.top));
        if (new Set(rows).size > 1) found.push(`${show(word)} is broken`);
      }
    }
  };

  const size = element => {
    const pixels = parseFloat(getComputedStyle(element).fontSize);
    const matrix = element.getScreenCTM?.();
    return matrix ? pixels * Math.hypot(matrix.a, matrix.b) : pixels;
  };

  const walker = document.createTreeWalker(document.body ?? document.documentElement, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !visible(element) || element.tagName === "TEXTAREA") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter(box => box.width > 1 && box.height > 1);
    if (size(element) < smallest) found.push(`${show(node.data)} is too small`);
    checkWords(node, element);
    for (const box of boxes) {
      if (!scrolled || !element.closest(scrolled)) checkContainers(node.data, box, element);
      lines.push({box: shownPart(box, element), node, element});
    }
  }

  lines.sort((a, b) => a.box.top - b.box.top);
  lines.forEach((one, i) => {
    for (let k = i + 1; k < lines.length && lines[k].box.top < one.box.bottom; k++) {
      const other = lines[k];
      if (one.node !== other.node && overlap(one.box, other.box, 0.2) > 1.5)
        found.push(`${show(one.node.data)} lies on ${show(other.node.data)}`);
    }
  });
  for (const shape of document.querySelectorAll("svg rect:not([width='100%']), svg circle")) {
    const bar = shape.getBoundingClientRect();
    for (const {box, node, element} of lines) {
      if (element.closest("svg") !== shape.closest("svg") || inside(box, bar)) continue;
      if (overlap(box, bar, 0) > 1.5 + 0.2 * box.height) found.push(`${show(node.data)} lies on a bar or a dot`);
    }
  }
  return [...new Set(found)];
}"""


def widen(page: Any) -> None:
    """Draw the page in a wider font, whatever its content security policy allows."""
    page.evaluate(
        """css => {
          const sheet = new CSSStyleSheet();
          sheet.replaceSync(css);
          document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
        }""",
        WIDE,
    )


def complaints(page: Any, scrolled: str = "") -> list[str]:
    """What is wrong with the page as it is drawn now; `scrolled` selects parts that a reader may scroll sideways."""
    return page.evaluate(SCRIPT, {"scrolled": scrolled, "smallest": SMALLEST, "longest": min(WIDTHS) / 2})


def assert_readable(
    browser: Any, address: str, prepare: Callable[[Any], object] = lambda page: None, scrolled: str = ""
) -> None:
    """Look at an address in every width, theme and font, after `prepare` has filled the page."""
    found = []
    for width, theme in product(WIDTHS, THEMES):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.goto(address)
        prepare(page)
        found += [f"{width} pixels, {theme}: {each}" for each in complaints(page, scrolled)]
        widen(page)
        found += [f"{width} pixels, {theme}, wide font: {each}" for each in complaints(page, scrolled)]
        page.close()
    assert not found, "\n".join(found)
