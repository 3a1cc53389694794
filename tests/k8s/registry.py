"""A private registry of this machine: Debian's docker-registry, over TLS and with a password."""

import base64
import hashlib
import json
import re
import shutil
import ssl
import subprocess
import time
import urllib.request

import yaml

from tests.support.certificates import certify

USER, PASSWORD = "team", "secret"
HASHED = "$2b$04$SU0XMN.DKLMSseFtS1KKlu1QvPZyuZ4p81CsEUY0D8fCAYPTH/3MG"  # bcrypt of the password
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
START = 60  # seconds for it to come up on a busy machine


class Registry:
    """A process that serves images at `address`, with its files below `folder`."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "log"
        self.trusted, key = certify(folder, "127.0.0.1")
        (folder / "htpasswd").write_text(f"{USER}:{HASHED}\n")
        (folder / "auth.json").write_text("{}")  # a login is added to it
        tls = {"certificate": str(self.trusted), "key": str(key)}
        served = {"addr": "127.0.0.1:0", "secret": "any", "tls": tls}
        users = {"htpasswd": {"realm": "team", "path": f"{folder}/htpasswd"}}
        storage = {"filesystem": {"rootdirectory": f"{folder}/data"}}
        settings = {"version": 0.1, "storage": storage, "http": served, "auth": users}
        (folder / "registry.yml").write_text(yaml.safe_dump(settings))
        with self.log.open("wb") as log:
            command = ["docker-registry", "serve", str(folder / "registry.yml")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        # What a builder needs to push here: whom it trusts, and where it keeps passwords.
        self.environment = {"SSL_CERT_FILE": str(self.trusted), "REGISTRY_AUTH_FILE": f"{folder}/auth.json"}
        self.address = ""

    def start(self):
        """Wait for its address."""
        until = time.monotonic() + START
        while not (found := re.search(r"listening on (127\.0\.0\.1:\d+)", self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.1)
        self.address = found[1]
        return self

    def ask(self, path, kind="*/*"):
        """Return what it answers to a user who is logged in."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(
            f"https://{self.address}/v2/{path}", headers={"Accept": kind, "Authorization": f"Basic {login}"}
        )
        context = ssl.create_default_context(cafile=str(self.trusted))
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            content = answer.read()
        return content

    def image(self, name, tag):
        """Return the digest of an image, by which alone it is read here, and its configuration."""
        digest = f"sha256:{hashlib.sha256(self.ask(f'{name}/manifests/{tag}', MANIFEST)).hexdigest()}"
        manifest = json.loads(self.ask(f"{name}/manifests/{digest}", MANIFEST))
        return digest, json.loads(self.ask(f"{name}/blobs/{manifest['config']['digest']}"))

    def stop(self):
        """End it, and remove its images."""
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder / "data", ignore_errors=True)
