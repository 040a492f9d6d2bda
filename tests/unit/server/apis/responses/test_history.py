"""What is kept of a response."""

from proxy_inference_engine.server.apis.responses.history import packed, unpacked


def test_frames_take_little_room() -> None:
    frames = [
        f'event: response.output_text.delta\ndata: {{"delta":"ü {n}","item_id":"{"x" * 36}"}}\n\n' for n in range(999)
    ]
    assert unpacked(packed(frames)) == frames and len(packed(frames)) < len("".join(frames)) / 10
    assert unpacked(packed([])) == []
