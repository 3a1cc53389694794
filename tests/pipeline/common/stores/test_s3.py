"""S3's own: where keys come from."""

import pytest

from pipeline.common import storage
from pipeline.common.errors import StoreError
from pipeline.common.stores import s3


def test_no_keys_are_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    s3._client.cache_clear()
    with pytest.raises(StoreError, match="AWS_PROFILE"):
        storage.at("s3://bucket/x").is_file()
