"""`python -m benchmarks.first_paint`: how soon a browser shows the page at `/`, on this machine.

A server with the bundled model, and Chromium by Playwright (CHROMIUM names another one). Visits are in turn by somebody
who was never there, with an empty cache, and by somebody who comes back. From where the navigation begins: the first
byte, the first paint, the first paint with something in it, and the box to type in. Nothing else should run.
"""

import argparse
import os
import shutil
import statistics
from typing import Any

from playwright.sync_api import Browser, BrowserContext, sync_playwright

from benchmarks.batches import serving

_TARGET_MS = 200.0
_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
_LOOK = """() => {
  const at = (name) => performance.getEntriesByName(name)[0]?.startTime;
  if (at("first-contentful-paint") === undefined || !document.querySelector("#question")) return null;
  const first = performance.getEntriesByType("navigation")[0].responseStart;
  return [first, at("first-paint"), at("first-contentful-paint"), performance.now()];
}"""
_NAMES = ("first byte", "first paint", "first contentful paint", "the question's box")


def visit(context: BrowserContext, url: str) -> list[float]:
    """Milliseconds of each of the names."""
    page = context.new_page()
    page.goto(url)
    found: list[float] = page.wait_for_function(_LOOK).json_value()
    page.close()
    return found


def visits(browser: Browser, url: str, count: int) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {"the first time": [], "again": []}
    for _ in range(count):
        context = browser.new_context()
        for who in found:
            found[who].append(visit(context, url))
        context.close()
    return found


def report(found: dict[str, list[list[float]]]) -> str:
    rows = ["| ms | visit | median | worst |", "|---|---|---|---|"]
    for column, name in enumerate(_NAMES):
        for who, times in found.items():
            values = [each[column] for each in times]
            rows.append(f"| {name} | {who} | {statistics.median(values):.0f} | {max(values):.0f} |")
    paints = [each[1] for times in found.values() for each in times]
    middle, worst = statistics.median(paints), max(paints)
    verdict = "held" if worst < _TARGET_MS else "held by the median alone" if middle < _TARGET_MS else "missed"
    return "\n".join([*rows, "", f"First paint under {_TARGET_MS:.0f} ms: {verdict} (worst {worst:.0f})."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visits", type=int, default=20)
    wanted = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    options: dict[str, Any] = {"args": _FLAGS, **({"executable_path": chromium} if chromium else {})}
    with serving() as client, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**options)
        url = str(client.base_url).removesuffix("v1/")
        visits(browser, url, 1)  # what the browser and the server do once
        found = visits(browser, url, wanted.visits)
        browser.close()
    print(report(found))


if __name__ == "__main__":
    main()
