#!/usr/bin/env python3
"""Opens a run folder's Parquet files with DuckDB, pyarrow and polars and checks that all see what the manifest says.

Usage: python3 tests/parquet_readers.py RUN_FOLDER
Needs: pip install duckdb polars pyarrow
Exits with 1 and one line per failed check if anything is wrong.
"""

import json
import sys
from pathlib import Path

import duckdb
import polars
import pyarrow.parquet

# Metrics that every row with an outcome has, whatever the workload.
MEASURED = ["submitted", "completed", "measured", "makespan_s", "ttft_p95_ms", "e2e_p95_ms", "output_throughput"]
CONFIGURATION = ["index", "id", "architecture", "deployment", "gpu", "gpus", "usd_per_hour", "load", "status"]


class Checks:
    """Collects failures, so that one run reports all of them."""

    def __init__(self):
        self.failures = []

    def equal(self, what, got, expected):
        if got != expected:
            self.failures.append(f"{what}: got {got}, expected {expected}")


def check_rows(checks, connection, files, manifest, finished):
    """Row counts, order and uniqueness, as DuckDB sees them."""
    source = f"read_parquet({[str(file) for file in files]})"

    def query(sql):
        return connection.execute(sql.format(source=source)).fetchall()[0]

    expected = sum(part["content"]["rows"] for part in manifest["parts"])
    rows, ids, indices = query("SELECT count(*), count(DISTINCT id), count(DISTINCT index) FROM {source}")
    checks.equal("rows (DuckDB)", rows, expected)
    checks.equal("distinct ids", ids, rows)
    checks.equal("distinct indices", indices, rows)
    if finished and manifest["shard"]["of"] == 1:
        checks.equal("rows of a finished run", rows, manifest["simulated"])
    for name in CONFIGURATION:
        checks.equal(f"nulls in {name}", query(f'SELECT count(*) FROM {{source}} WHERE "{name}" IS NULL')[0], 0)
    for name in MEASURED:
        bad = query(f"SELECT count(*) FROM {{source}} WHERE (status = 'panicked') <> (\"{name}\" IS NULL)")[0]
        checks.equal(f"nulls in {name} other than in panicked rows", bad, 0)
    bad = query("SELECT count(*) FROM {source} WHERE NOT regexp_full_match(id, '[0-9a-f]{{16}}')")[0]
    checks.equal("ids that are not 16 hexadecimal digits", bad, 0)
    return rows


def check_parts(checks, run, manifest):
    """Row counts, first index, order and creator of each part, as pyarrow and polars see them."""
    previous = -1
    for part in manifest["parts"]:
        name = part["content"]["file"]
        table = pyarrow.parquet.read_table(run / name)
        indices = table["index"].to_pylist()
        checks.equal(f"rows of {name} (pyarrow)", table.num_rows, part["content"]["rows"])
        frame = polars.read_parquet(run / name)
        checks.equal(f"rows and columns of {name} (polars)", frame.shape, (table.num_rows, table.num_columns))
        checks.equal(f"first index of {name}", indices[0], part["first_index"])
        checks.equal(f"{name} is in index order", indices == sorted(indices) and indices[0] > previous, True)
        created_by = pyarrow.parquet.read_metadata(run / name).created_by
        checks.equal(f"creator of {name}", created_by.startswith("servescape "), True)
        previous = indices[-1]


def check_pruned(checks, connection, run, manifest):
    """Every pruned candidate has a reason; prints the counts."""
    if manifest["pruned"] is None:
        return
    path = run / manifest["pruned"]["file"]
    checks.equal("rows of pruned.parquet", pyarrow.parquet.read_metadata(path).num_rows, manifest["pruned"]["rows"])
    reasons = connection.sql(f"SELECT reason, count(*) FROM read_parquet('{path}') GROUP BY ALL ORDER BY 2 DESC")
    for reason, count in reasons.fetchall():
        checks.equal("a pruned row without reason", reason is None, False)
        print(f"  pruned: {count:>9,}  {reason}")


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    run = Path(sys.argv[1])
    manifest = json.loads((run / "manifest.json").read_text())
    files = [run / part["content"]["file"] for part in manifest["parts"]]
    checks, connection = Checks(), duckdb.connect()
    if not files:
        print(f"{run} has no parts")
        return 1
    rows = check_rows(checks, connection, files, manifest, manifest["status"] == "finished")
    check_parts(checks, run, manifest)
    columns = pyarrow.parquet.read_schema(files[0])
    print(f"{run}: {rows:,} rows, {len(columns)} columns, {len(files)} parts")
    if manifest["merged"] is not None:
        merged = pyarrow.parquet.read_table(run / manifest["merged"]["file"])
        parts = pyarrow.concat_tables([pyarrow.parquet.read_table(file) for file in files])
        checks.equal("the merged file holds the parts' rows", merged.equals(parts), True)
    check_pruned(checks, connection, run, manifest)
    for failure in checks.failures:
        print(f"FAILED  {failure}")
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
