"""Takes out of traffic what differs from run to run, and leaves everything else as it is.

Ids are numbered in the order in which a case shows them, so that what belongs together still does.
"""

import base64
import re
import struct

_ID = re.compile(
    r"\b(chatcmpl-|cmpl-|resp_|msg_|call_|req-|sig_|toolu_|conv_|fc_|ctc_|fco_|ctco_|rs_|cmp_|file-|batch_)([0-9a-f]{32})"
)
_MOMENT = re.compile(r'"(created_at|modified_at|expires_at)":"\d{4}-\d\d-\d\dT[\d:.]+Z"')
_LASTED = re.compile(r'"((?:total|load|prompt_eval|eval)_duration)":\d+')
_TIME = re.compile(r'"(created|created_at|completed_at|expires_at|last_used_at)":(?:\d{9,}|"\d{4}-[^"]*Z")')
_MEASURED = re.compile(
    r'"(prompt_ms|prompt_per_second|predicted_ms|predicted_per_second|compile_ms)":\d+(\.\d+)?(e[-+]?\d+)?'
)
# The first event of a message tells how much was thought before it was written: by chance.
_EARLY = re.compile(r'("output_tokens":0,"output_tokens_details":\{"thinking_tokens":)\d+')
_SEALED = re.compile(r"\bgAAAAA[A-Za-z0-9_-]{20,}={0,2}")
# The last digits of what a processor computes differ between processors.
_LONG_FLOAT = re.compile(r"(?<!\d)-?\d{1,9}(?:\.\d{6,20}(?:e[-+]?\d+)?|(?:\.\d{1,20})?e-\d+)")
_VECTOR = re.compile(r'"embedding":"([A-Za-z0-9+/]+=*)"')
_SAMPLE = re.compile(r"^([^#\n].*) \S+$", re.MULTILINE)  # of Prometheus
_PINGS = (": ping\n\n", 'event: ping\ndata: {"type":"ping"}\n\n')


class Normal:
    """Of one case: its ids are numbered from 1."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        text = _SEALED.sub("<sealed>", _ID.sub(self._number, text))
        text = _TIME.sub(r'"\1":"<time>"', text)
        text = _LASTED.sub(r'"\1":"<measured>"', _MOMENT.sub(r'"\1":"<time>"', text))
        text = _MEASURED.sub(r'"\1":"<measured>"', text)
        text = _EARLY.sub(r'\1"<early>"', text)
        text = _VECTOR.sub(_numbers, text)
        return _LONG_FLOAT.sub(lambda found: f"{float(found[0]):.4g}", text)

    def _number(self, found: re.Match[str]) -> str:
        return f"{found[1]}<{self._numbers.setdefault(found[2], len(self._numbers) + 1)}>"


def _numbers(found: re.Match[str]) -> str:
    data = base64.b64decode(found[1], validate=True)
    floats = struct.unpack(f"<{len(data) // 4}f", data)
    return f'"embedding":"<base64 of {" ".join(f"{number:.4g}" for number in floats)}>"'


def without_pings(text: str) -> str:
    for ping in _PINGS:
        text = text.replace(ping, "")
    return text


def without_values(text: str) -> str:
    """Names and labels of metrics."""
    return _SAMPLE.sub(r"\1", text)
