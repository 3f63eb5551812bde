"""Captures made long: their events over and over, later each time, so that a gigabyte has the mix of a real file."""

import gzip
import re
import sqlite3

import oracle_tools

_NUMBERS = re.compile(r'("(?:ts|correlation|wait_on_cuda_event_record_corr_id)": )(\d+)')
_APART_US = 50_000
_APART_NS = 5_000_000_000  # longer than the capture
_LINKS = 1_000_000


def kineto(path, size, capture="train_step_h200.kineto.json.gz"):
    """A trace of at least size bytes; the number of times that the capture is in it."""
    text = gzip.decompress((oracle_tools.DATA / capture).read_bytes()).decode()
    head, _, rest = text.partition('"traceEvents": [')
    events, _, tail = rest.rpartition("]")
    parts = _NUMBERS.split(events)
    plain, keys, numbers = parts[0], parts[1::3], [int(n) for n in parts[2::3]]
    after = parts[3::3]
    shifts = [_APART_US if "ts" in key else _LINKS for key in keys]
    copies = -(-size // len(events))
    with path.open("w") as file:
        file.write(f'{head}"traceEvents": [')
        for turn in range(copies):
            rows = zip(keys, numbers, shifts, after, strict=True)
            file.write(("," if turn else "") + plain)
            file.write("".join([f"{key}{number + turn * shift}{text}" for key, number, shift, text in rows]))
        file.write("]" + tail)
    return copies


def nsys(path, size, capture="train_step_h200.nsys.sqlite.gz"):
    """An export of at least size bytes; the number of times that the capture is in it."""
    path.write_bytes(gzip.decompress((oracle_tools.DATA / capture).read_bytes()))
    copies = 1
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        tables = [f"CUPTI_ACTIVITY_KIND_{t}" for t in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION")]
        tables.append("NVTX_EVENTS")
        rows = {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
        while (missing := size - path.stat().st_size) > 0:  # doubled, or as much as is missing
            more = min(copies, -(-missing * copies // path.stat().st_size))
            for name in tables:
                columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
                shift = {"start": copies * _APART_NS, "end": copies * _APART_NS, "correlationId": copies * _LINKS}
                moved = [f'"{c}" + {shift[c]}' if c in shift else f'"{c}"' for c in columns]
                db.execute(
                    f"INSERT INTO {name} SELECT {', '.join(moved)} FROM {name} ORDER BY rowid LIMIT {more * rows[name]}"
                )
            db.commit()
            copies += more
    db.close()
    return copies
