"""The examples of docs/python.md are run with the bundled model, in their order."""

import pytest

from tests.api.pages import run_python


@pytest.mark.model
def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    run_python("python.md", "")
    printed = capsys.readouterr().out
    assert "Paris" in printed and "City " in printed and "tool " in printed
