"""Beam is imported without what it would bring for its other uses."""

import os
from pathlib import Path

import pytest

from tests.support import forked

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


def test_other_clients_are_not_imported_and_can_be_later() -> None:
    done = forked.fresh("-c", PROGRAM, check=True)
    assert done.stdout.split() == ["[]", "boto3", "httplib2"]


@pytest.mark.parametrize("dataflow", [False, True])
def test_clients_of_stores_are_not_imported_but_for_dataflow(root: Path, tmp_path: Path, dataflow: bool) -> None:
    for name in ("azure/core/exceptions", "azure/storage/blob", "google/cloud/storage"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("import requests.adapters, requests\n")
    for name in ("azure", "azure/core", "azure/storage"):
        (tmp_path / name / "__init__.py").write_text("")
    if dataflow:
        (tmp_path / "apitools").mkdir()
        (tmp_path / "apitools" / "__init__.py").write_text("import google.cloud.storage\n")
    program = """
import sys
import pipeline.prepare
print([name for name in ("azure", "google.cloud.storage", "requests") if name in sys.modules])
import azure.core.exceptions, azure.storage.blob, google.cloud.storage
"""
    done = forked.fresh("-c", program, env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{['google.cloud.storage', 'requests'] if dataflow else []}\n"


def test_a_client_that_beam_finds_installed_may_need_them_at_once(root: Path, tmp_path: Path) -> None:
    """As Google's does, which comes with Beam's extra for Dataflow."""
    package = tmp_path / "google" / "api_core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import requests.adapters, requests\n")
    program = """
import sys
import pipeline.beam.fast_import
assert "requests.adapters" in sys.modules
import requests, requests.adapters
print(requests.adapters is sys.modules["requests"].adapters, requests.Session.__module__)
"""
    done = forked.fresh("-c", program, env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["True", "requests.sessions"]
