"""Starts llama.cpp's own server from the `xllamacpp` package: `xllamacpp_server.py '{"model": …, "n_parallel": 16}'`.

Runs in that package's environment, so it imports nothing of ours. The JSON has fields of llama.cpp's common_params.
"""

import json
import sys
import threading

import xllamacpp


def main() -> None:
    params = xllamacpp.CommonParams()
    for name, value in json.loads(sys.argv[1]).items():
        match name:
            case "model":
                params.model.path = value
            case "threads":
                params.cpuparams.n_threads = value
                params.cpuparams_batch.n_threads = value
            case "flash_attn":
                params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{value}")
            case _:
                setattr(params, name, value)
    server = xllamacpp.Server(params)
    print(server.listening_address, xllamacpp.get_system_info(), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
