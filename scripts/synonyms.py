"""Makes docs/synonyms.md of the table in `server/apis/shared/synonyms.py`.

python scripts/synonyms.py            prints it
python scripts/synonyms.py --write    writes it
"""

import sys
from pathlib import Path
from typing import Any

from proxy_inference_engine.server.apis.shared.readings import refuse
from proxy_inference_engine.server.apis.shared.synonyms import WORDS, Word
from proxy_inference_engine.server.http.wire import dumps

PAGE = Path(__file__).parents[1] / "docs" / "synonyms.md"
_HEAD = """\
# Other servers' words

Made by `python scripts/synonyms.py --write`: do not edit.

Chat and text completions, responses (and llama.cpp's own routes) read these fields of other servers. A field at the
value in the last column asks for nothing, and is accepted whatever its name. What is not in the table, and what cannot
be said in our words, is refused by name. Two fields that contradict each other are a 400. The third column has the
fields of a chat; a response has `text.format` (JSON only), `max_output_tokens` and `top_logprobs` for the same.

| field | of | becomes | asks for nothing |
|---|---|---|---|
"""


def page() -> str:
    return _HEAD + "".join(map(_row, WORDS.values()))


def _row(word: Word) -> str:
    means = "refused otherwise" if word.read is refuse else word.means
    neutral = ", ".join(f"`{_shown(value)}`" for value in word.neutral)
    return f"| `{word.name}` | {word.servers} | {means} | {neutral} |\n"


def _shown(value: Any) -> str:
    return dumps(value)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
