"""Beam is imported without what it would bring for its other uses."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import pipeline.prepare
print([name for name in ("boto3", "botocore", "bson", "pandas", "pymongo") if name in sys.modules])
import boto3
print(boto3.__name__)
"""


def test_other_clients_are_not_imported_and_can_be_later(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[]", "boto3"]
