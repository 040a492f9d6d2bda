"""A PostgreSQL for the tests: one cluster for all of them, started by the first that needs it, and a schema for each.

Where there is none they are skipped, unless REQUIRE_POSTGRES is set, as it is in CI.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from scripts.postgres import Cluster, cluster, find_programs

_numbers = itertools.count(1)


def require_programs() -> Path:
    """Where they are, or the test is skipped."""
    programs = find_programs()
    if programs is None and os.environ.get("REQUIRE_POSTGRES"):
        pytest.fail("REQUIRE_POSTGRES is set and there is no PostgreSQL: install the package postgresql")
    if programs is None:
        pytest.skip("there is no PostgreSQL here: install the package postgresql")
    return programs


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    with cluster(require_programs()) as made:
        yield made


def new_schema(made: Cluster) -> str:
    """The URL of an empty one."""
    name = f"test{next(_numbers)}"
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{made.url}?options={quote(f'-c search_path={name}')}"
