"""The example of docs/batches.md, run as it stands but for the address."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

from tests.api.running import Running

PAGE = (Path(__file__).parents[2] / "docs" / "batches.md").read_text()


def test_python(server: Running) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(text.replace("http://127.0.0.1:8000", server.url), {})
    names = {line.split(" ")[0] for line in printed.getvalue().splitlines() if line.startswith("question-")}
    assert names == {"question-0", "question-1", "question-2"}
