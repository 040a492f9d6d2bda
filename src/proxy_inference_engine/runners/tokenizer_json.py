"""The vocabulary of a folder's tokenizer.json: text to ids without ever making a special token, and ids to bytes.

What a file would do to a text before it is cut (Unicode forms, a space in front, a longest length) is left out: the
bytes of a text's tokens are always the text's. Only models that write no text, as BERT, get theirs as they were
trained: in small letters, say. Knows no weights.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.checkpoint import CONFIG, Json, read_object, read_optional
from proxy_inference_engine.runners.pieces import is_byte_level, piece_bytes, plain_steps

# Tokens that end a turn, whatever else a model's files say of ends.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>", "<|endoftext|>")
_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class _Added(NamedTuple):
    """A token beside the pieces that texts are cut into."""

    id: int
    text: str
    is_control: bool
    entry: Json  # as tokenizer.json has it

    @property
    def is_marker(self) -> bool:
        """Runs of white space that a vocabulary defines as tokens are text like any other."""
        return self.is_control or len(self.text.replace("▁", " ").strip()) > 1


class JsonVocabulary:
    """Implements `Tokenizer`. Safe from any thread: the library only reads here."""

    def __init__(self, folder: Path, num_tokens: int | None = None) -> None:
        """`num_tokens` is how many logits the model gives; None: as many as its config says."""
        file, settings = _read_tokenizer(folder), read_optional(folder / "tokenizer_config.json")
        whole = _build({**file, "truncation": None, "padding": None}, folder)
        self.num_tokens = num_tokens or _config_size(folder) or whole.get_vocab_size()
        added = [each for each in _added(file, settings) if each.id < self.num_tokens]
        self._pieces = [whole.id_to_token(i) for i in range(self.num_tokens)]
        self._is_byte_level = is_byte_level(file)
        self._bytes: list[bytes | None] = [None] * self.num_tokens
        for each in added:
            self._bytes[each.id] = each.text.encode() if each.is_marker else self._plain_bytes(each)
        unknown = whole.token_to_id(file["model"].get("unk_token") or "")
        self.control_ids = frozenset(
            {each.id for each in added if each.is_control}
            | {i for i, piece in enumerate(self._pieces) if piece is None and self._bytes[i] is None}
            | ({unknown} if unknown is not None and unknown < self.num_tokens else set())
        )
        self.specials = {self.token_bytes(each.id).decode(errors="replace"): each.id for each in added}
        self.bos_id = _bos_id(whole, settings)
        self.frame = _frame(whole)  # the tokens before and behind a text that is read as a whole
        is_reader = _is_reader(settings, self.frame)
        self.end_ids = frozenset(self.frame[1][-1:]) if is_reader else self._find_ends(folder, settings)
        self._markers = frozenset(each.id for each in added if each.is_marker) | self.control_ids
        if is_reader:  # it has learnt what to make of a word that it does not know
            self._markers -= {unknown}
        blanks = [each for each in added if not each.is_marker]
        plain = plain_steps(file, [each.entry for each in blanks])
        kept = ("normalizer", "pre_tokenizer") if is_reader else ()
        self._plain = _build({**plain, **{step: file.get(step) for step in kept}}, folder)
        # The library counts added tokens anew, so those behind one that was left out have other ids there.
        self._moved = {self._plain.token_to_id(each.text): each.id for each in blanks}
        texts = sorted((each.text for each in added if each.is_marker), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts)) or r"(?!)")

    def encode(self, text: str) -> list[int]:
        ids = self._encode(text)
        return ids if self._markers.isdisjoint(ids) else self._encode_cut(text)

    def token_bytes(self, token_id: int) -> bytes:
        known = self._bytes[token_id]
        if known is None:
            piece = self._pieces[token_id]
            known = b"" if piece is None else piece_bytes(piece, is_byte_level=self._is_byte_level)
            self._bytes[token_id] = known
        return known

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return [self._moved.get(token_id, token_id) for token_id in ids] if self._moved else ids

    def _encode_cut(self, text: str) -> list[int]:
        """Some vocabularies have their markers among the pieces: a text that spells one is cut inside it.

        What is left then are unknown characters, which have no token.
        """
        ids: list[int] = []
        start = 0
        ends = [match.start() + 1 for match in self._pattern.finditer(text)]
        for end in [*ends, len(text)]:
            ids += self._encode(text[start:end])
            start = end
        return [token_id for token_id in ids if token_id not in self._markers]

    def _plain_bytes(self, added: _Added) -> bytes:
        return added.text.encode() if self._is_byte_level else added.text.replace("▁", " ").encode()

    def _find_ends(self, folder: Path, settings: Json) -> frozenset[int]:
        ids: set[object] = set()
        for name in ("generation_config.json", CONFIG):
            values = read_optional(folder / name)
            for source in (values, values.get("text_config") or {}):
                found = source.get("eos_token_id")
                ids |= set(found if isinstance(found, list) else [found])
        ids |= {self.specials.get(text) for text in (*_ENDS, _role(settings, "eos_token"))}
        ends = frozenset(i for i in ids if isinstance(i, int) and 0 <= i < self.num_tokens)
        if not ends:
            raise StartupError(
                f"model {str(folder)!r} names no token that ends an answer: set eos_token_id in {CONFIG}"
            )
        return ends


def load_vocabulary(folder: Path, num_tokens: int | None = None) -> JsonVocabulary:
    """The vocabulary in a folder. Raises StartupError where files are missing, or say what no tokenizer says."""
    try:
        return JsonVocabulary(folder, num_tokens)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StartupError(f"tokenizer of model {str(folder)!r} cannot be read: {error!r}") from error


def _read_tokenizer(folder: Path) -> Json:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise StartupError(f"model {str(folder)!r} has no tokenizer.json; older formats of tokenizers are not read")
    file = read_object(path)
    if not isinstance(file.get("model"), dict):
        raise StartupError(f"model file {str(path)!r} is not a tokenizer")
    return file


def _build(file: Json, folder: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(file))
    except Exception as error:  # the library raises nothing narrower
        raise StartupError(f"tokenizer of model {str(folder)!r} cannot be read: {error}") from None


def _config_size(folder: Path) -> int | None:
    config = read_optional(folder / CONFIG)
    size = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    return size if isinstance(size, int) else None


def _added(file: Json, settings: Json) -> Iterator[_Added]:
    """Added tokens: those of tokenizer.json, and those that only tokenizer_config.json has."""
    roles = {_role(settings, role) for role in _ROLES} | set(_more_specials(settings))
    entries = {entry["id"]: entry for entry in file.get("added_tokens") or ()}
    for key, entry in (settings.get("added_tokens_decoder") or {}).items():
        entries.setdefault(int(key), {**entry, "id": int(key)})
    for token_id, entry in sorted(entries.items()):
        text = entry["content"]
        yield _Added(token_id, text, is_control=bool(entry.get("special")) or text in roles, entry=entry)


def _more_specials(settings: Json) -> Iterator[str]:
    """`extra_special_tokens` may be a table of names too."""
    for key in ("additional_special_tokens", "extra_special_tokens"):
        values = settings.get(key) or ()
        for value in values.values() if isinstance(values, dict) else values:
            yield value if isinstance(value, str) else value["content"]


def _role(settings: Json, name: str) -> str:
    value = settings.get(name) or ""
    return value if isinstance(value, str) else str(value.get("content", ""))


def _frame(whole: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    plain, framed = (whole.encode("a", add_special_tokens=is_framed).ids for is_framed in (False, True))
    for start in range(len(framed) - len(plain) + 1):
        if framed[start : start + len(plain)] == plain:
            return tuple(framed[:start]), tuple(framed[start + len(plain) :])
    return (), ()


def _is_reader(settings: Json, frame: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether the model reads texts as a whole and writes none: `[CLS]` before each, and a token that ends it."""
    return bool(_role(settings, "cls_token") and frame[0] and frame[1])


def _bos_id(whole: Tokenizer, settings: Json) -> int | None:
    """The token before every text: what the settings say, else what the tokenizer really puts there."""
    wanted = settings.get("add_bos_token")
    if wanted is False:
        return None
    plain, framed = (whole.encode("a", add_special_tokens=is_framed).ids for is_framed in (False, True))
    if len(framed) > len(plain) and framed[:1] != plain[:1]:
        return int(framed[0])
    text = _role(settings, "bos_token")
    return whole.token_to_id(text) if wanted and text else None
