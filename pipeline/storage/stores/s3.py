"""Objects of S3 and of stores that speak its protocol, with boto3.

Keys, profile, region, endpoint and certificates are found as Amazon's own tools find them, in the
environment and in ~/.aws. The store compares what arrives with the sha256 that goes with it.
"""

import base64
import contextlib
import hashlib
from typing import Any

from pipeline.errors import first_line
from pipeline.storage.stores import retries
from pipeline.storage.stores.client import At, Client, Failure, Got, Page, Seen, Span
from pipeline.storage.stores.remote_file import Info

_PASSING = {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "InternalError"}
_PASSING |= {"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}  # damaged on the way


class S3(Client):
    """Objects of `s3://`."""

    EXTRA, ENDPOINT, ADVICE = "s3", "meta.endpoint_url", "AWS_ENDPOINT_URL and AWS_REGION"
    CREDENTIALS = "check ~/.aws, and set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

    def _connect(self, account: str) -> Any:
        import boto3
        from botocore.config import Config

        # Retries are ours: botocore's end after seconds, and do not cover the body of an answer.
        config = Config(
            retries={"mode": "standard", "max_attempts": 1},
            connect_timeout=10,
            read_timeout=15,
            max_pool_connections=32,
        )
        return boto3.client("s3", config=config)

    def _unusable(self, error: Exception) -> str:
        wrong = isinstance(error, ValueError)  # the endpoint, which has no scheme, say
        return f"{first_line(error)}; check {self.ADVICE}" if wrong else super()._unusable(error)

    def _failure(self, error: Exception) -> Failure:
        from botocore import exceptions as boto
        from urllib3.exceptions import HTTPError

        if isinstance(error, boto.ClientError):
            status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
            code = error.response["Error"].get("Code", "")
            no_upload = code == "NoSuchUpload"  # also where the answer to its completion was lost
            return Failure(
                status,
                code,
                missing=status == 404 and code != "NoSuchBucket" and not no_upload,
                unmet=status in (409, 412) or no_upload,
                passes=code in _PASSING,
            )
        if isinstance(error, boto.ParamValidationError):
            return Failure(words="no bucket has such a name; correct it, without wildcards")
        if isinstance(
            error,
            boto.NoCredentialsError
            | boto.PartialCredentialsError
            | boto.CredentialRetrievalError
            | boto.ProfileNotFound,
        ):
            return Failure(words=self._unusable(error))
        cut = boto.IncompleteReadError | boto.ResponseStreamingError | boto.FlexibleChecksumError
        away = boto.ConnectionError | boto.HTTPClientError | HTTPError | ConnectionError | TimeoutError
        return Failure(passes=isinstance(error, cut | away))

    def _reason(self, at: At, failure: Failure) -> str:
        if failure.status and (failure.code.isdigit() or not failure.code):  # a HEAD has no body to say why
            try:
                at.client.list_objects_v2(Bucket=at.bucket, MaxKeys=1)
            except Exception as error:
                return self._failure(error).code or failure.code
        return failure.code

    def _condition(self, etag: str | None) -> dict[str, Any]:
        return {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}

    def _look(self, at: At) -> Seen:
        response = at.client.head_object(**_named(at))
        info = Info.at(at.key, response["ContentLength"], response["LastModified"], response["ETag"])
        return info, response["ResponseMetadata"]["HTTPHeaders"].get("date")

    def _page(self, at: At, size: int, token: str | None) -> Page:
        more = {"ContinuationToken": token} if token else {}
        page = at.client.list_objects_v2(Bucket=at.bucket, Prefix=at.key, MaxKeys=size, **more)
        contents = page.get("Contents", ())
        infos = [Info.at(item["Key"], item["Size"], item["LastModified"], item["ETag"]) for item in contents]
        return infos, page["NextContinuationToken"] if page.get("IsTruncated") else None

    def _get(self, at: At, etag: str | None = None, span: Span = None) -> Got:
        bound = {"IfMatch": etag} if etag is not None else {}
        bound |= {"Range": f"bytes={span[0]}-{span[1] - 1}"} if span else {}
        answer = at.client.get_object(**_named(at), **bound)
        body = retries.Body()
        with contextlib.closing(answer["Body"]) as parts:
            for part in parts.iter_chunks(2**16):
                body.write(part)
        return body.getvalue(), answer["ETag"]

    def _put(self, at: At, data: bytes, **condition: Any) -> str:
        answer = at.client.put_object(**_named(at), Body=data, ChecksumSHA256=_digest(data), **condition)
        return str(answer["ETag"])

    def _delete(self, at: At) -> None:
        at.client.delete_object(**_named(at))

    def _begin(self, at: At) -> str:
        return str(at.client.create_multipart_upload(**_named(at), ChecksumAlgorithm="SHA256")["UploadId"])

    def _send(self, at: At, upload: str, number: int, data: bytes) -> Any:
        part = {"PartNumber": number + 1, "ChecksumSHA256": _digest(data)}
        answer = at.client.upload_part(**_named(at), UploadId=upload, Body=data, **part)
        return part | {"ETag": answer["ETag"]}

    def _complete(self, at: At, upload: str, parts: list[Any], **condition: Any) -> str:
        done = at.client.complete_multipart_upload(
            **_named(at), UploadId=upload, MultipartUpload={"Parts": parts}, **condition
        )
        return str(done["ETag"])

    def _abort(self, at: At, upload: str) -> None:
        # Parts cost the bucket's owner money until a rule of the bucket removes them.
        at.client.abort_multipart_upload(**_named(at), UploadId=upload)


def _named(at: At) -> dict[str, str]:
    return {"Bucket": at.bucket, "Key": at.key}


def _digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
