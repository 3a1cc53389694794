"""Beam is imported without what it would bring for its other uses."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import pipeline.prepare
unused = ("boto3", "botocore", "bson", "charset_normalizer", "httplib2", "pandas", "pymongo",
          "pyparsing", "requests", "urllib3")
print([name for name in unused if name in sys.modules])
import boto3
print(boto3.__name__)
from apache_beam.internal import http_client
print(type(http_client.get_new_http()).__module__)
"""

PART = """
import sys
from pipeline.beam.fast_import import _Later
sys.modules["requests"] = _Later("requests")
import requests.adapters
print(requests.adapters.HTTPAdapter.__name__, type(sys.modules["requests"]).__name__)
"""


def test_other_clients_are_not_imported_and_can_be_later(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[]", "boto3", "httplib2"]


def test_a_part_of_a_later_module_can_be_imported_first(root: Path) -> None:
    """As Google's client of its storage does, where it is installed."""
    done = subprocess.run(
        [sys.executable, "-c", PART], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["HTTPAdapter", "module"]
