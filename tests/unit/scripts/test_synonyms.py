"""The page of other servers' words is made of the table."""

from scripts.synonyms import PAGE, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python scripts/synonyms.py --write"
