"""What is sealed opens here and nowhere else, also after a restart."""

import stat
from pathlib import Path

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.server.apis.shared.sealer import Sealer, Unopenable


def test_it_opens_again_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    sealed = Sealer.in_folder(folder).seal("reasoning", "täglich")
    assert Sealer.in_folder(folder).open("reasoning", sealed) == "täglich" and "glich" not in sealed
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_it_opens_nowhere_else() -> None:
    sealer = Sealer()
    sealed = sealer.seal("compaction", {"summary": "s", "items": []})
    assert sealer.open("compaction", sealed) == {"summary": "s", "items": []}
    changed = sealed[:20] + ("A" if sealed[20] != "A" else "B") + sealed[21:]
    for other, kind, text in (
        (Sealer.in_folder(None), "compaction", sealed),
        (sealer, "reasoning", sealed),
        (sealer, "compaction", changed),
        (sealer, "compaction", ""),
        (sealer, "compaction", "ü"),
    ):
        with pytest.raises(Unopenable):
            other.open(kind, text)  # type: ignore[arg-type]


def test_a_damaged_key_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "sealing.key").write_bytes(b"short")
    with pytest.raises(StartupError):
        Sealer.in_folder(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError):
        Sealer.in_folder(tmp_path / "file")
