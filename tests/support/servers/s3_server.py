"""An S3 server of this machine: moto's, or the one that `make test-store` builds, versitygw."""

import contextlib
import os

import boto3

from tests.support.servers.server_program import pointed, serving

GATEWAY = "VERSITYGW"  # environment: the program of versitygw
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secretsecret", "BERT_STORE_TIMEOUT": "60"}
KEYS |= {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}


@contextlib.contextmanager
def server(folder):
    """Serve an empty store on 127.0.0.1; a program that stores files does so in `folder`."""
    if GATEWAY not in os.environ:
        from moto.server import ThreadedMotoServer

        moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        moto.start()
        yield moto.get_host_and_port()
        moto.stop()
        return
    for name in ("data", "sidecar"):
        (folder / name).mkdir(parents=True)

    def words(port):
        keys = ["--access", KEYS["AWS_ACCESS_KEY_ID"], "--secret", KEYS["AWS_SECRET_ACCESS_KEY"]]
        place = ["--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(folder / "sidecar"), str(folder / "data")]
        return [os.environ[GATEWAY], *keys, *place]

    with serving(words) as place:
        yield place


def environment(url):
    """Point the environment to a server."""
    return pointed("s3", KEYS | {"AWS_ENDPOINT_URL": url})


def make_bucket(url, name):
    """Make a bucket."""
    keys = {name: KEYS[name.upper()] for name in ("aws_access_key_id", "aws_secret_access_key")}
    boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys).create_bucket(Bucket=name)
