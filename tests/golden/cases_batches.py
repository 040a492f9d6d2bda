"""Files and batches, as far as they do not depend on the moment: what is sent, found, and refused."""

from collections.abc import Iterator

from tests.golden.case import Case, Json, get, refused

FILES, BATCHES = "/v1/files", "/v1/batches"
FORM = (("content-type", "multipart/form-data; boundary=b"),)
LINE = b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi"}}\n'
ID = r"file-[0-9a-f]{32}"


def part(name: str, value: bytes, file_name: str | None = None) -> bytes:
    named = "" if file_name is None else f'; filename="{file_name}"'
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + value + b"\r\n"


def upload(name: str, *parts: bytes, **options: object) -> Case:
    return Case(name, FILES, b"".join(parts) + b"--b--\r\n", headers=FORM, **options)  # type: ignore[arg-type]


PURPOSE, FILE = part("purpose", b"batch"), part("file", LINE, "in.jsonl")
BODY: Json = {"input_file_id": "<<file>>", "endpoint": "/v1/completions", "completion_window": "24h"}
BAD: list[Json] = [
    {"endpoint": ...}, {"endpoint": "/v1/moderations"}, {"completion_window": ...}, {"completion_window": "1y"},
    {"input_file_id": ...}, {"input_file_id": "file-none"}, {"input_file_id": 1}, {"metadata": {"a": 1}},
    {"output_expires_after": {"anchor": "created_at", "seconds": 1}}, {"more": 1},
]  # fmt: skip


def cases() -> Iterator[Case]:
    yield get(FILES, "no files")
    yield get(BATCHES, "no batches")
    yield upload("upload", PURPOSE, FILE, keep={"file": ID})
    yield upload("upload that expires", part("expires_after[anchor]", b"created_at"),
                 part("expires_after[seconds]", b"3600"), PURPOSE, FILE)  # fmt: skip
    yield upload("the file first", FILE, part("purpose", b"user_data"), keep={"other": ID})
    yield get(f"{FILES}/<<file>>", "one file")
    yield get(f"{FILES}/<<file>>/content", "its content")
    for query in (
        "",
        "?limit=1",
        "?purpose=user_data",
        "?order=asc&after=<<file>>",
        "?limit=10001",
        "?purpose=x",
        "?a=1",
    ):
        yield get(f"{FILES}{query}", f"files{query}")
    yield from _refused()
    yield Case("a batch", BATCHES, {**BODY, "metadata": {"topic": "tea"}})
    yield from refused(Case("a batch", BATCHES, BODY), BAD)
    yield Case("a batch of another purpose", BATCHES, {**BODY, "input_file_id": "<<other>>"})
    for path in (f"{BATCHES}/batch_none", f"{FILES}/file-none", f"{FILES}/file-none/content"):
        yield get(path)
    yield Case("cancel nothing", f"{BATCHES}/batch_none/cancel")
    yield Case("delete a file", f"{FILES}/<<other>>", method="DELETE")
    yield Case("delete it again", f"{FILES}/<<other>>", method="DELETE")


def _refused() -> Iterator[Case]:
    yield upload("no purpose", FILE)
    yield upload("no file", PURPOSE)
    yield upload("another purpose", part("purpose", b"assistants"), FILE)
    yield upload("two files", PURPOSE, FILE, FILE)
    yield upload("another field", PURPOSE, FILE, part("more", b"1"))
    yield upload("a wrong expiry", PURPOSE, FILE, part("expires_after[anchor]", b"now"))
    yield Case("no form", FILES, b"x", headers=FORM)
    yield Case("JSON for a file", FILES, {"purpose": "batch"})
