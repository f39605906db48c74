"""Writes a checkpoint of any size in no time: `python -m examples.shared_weights.checkpoint DIR`.

The file is sparse. Row N of its table begins with N and is zero from there.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path

COLUMNS = 16384
FILE = "model.safetensors"
_VALUE_BYTES = 4


def write_checkpoint(folder: Path, gib: float) -> int:
    """Write a checkpoint with a float32 table of so many GiB; return how many rows it has."""
    row_bytes = COLUMNS * _VALUE_BYTES
    rows = int(gib * 2**30) // row_bytes
    end = rows * row_bytes
    table = {"dtype": "F32", "shape": [rows, COLUMNS], "data_offsets": [0, end]}
    header = json.dumps({"weight": table}).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        begin = file.tell()
        for row in range(rows):
            file.seek(begin + row * row_bytes)
            file.write(struct.pack("<f", row))
        file.truncate(begin + end)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a sparse checkpoint.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=1.0, help="size of its table in GiB")
    given = parser.parse_args()
    print(f"{write_checkpoint(given.folder, given.gib)} rows in {given.folder / FILE}")
