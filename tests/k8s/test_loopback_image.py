"""The images are built, and the graph runs in them: the DAG on two nodes, from nothing else."""

import json
import os
import shlex
import shutil
import subprocess

import pytest
import yaml

from pipeline import __version__
from tests.k8s.cluster import Cluster
from tests.k8s.images import Builder, sh
from tests.k8s.overlays import kustomize
from tests.k8s.pod_script import image_of
from tests.k8s.registry import PASSWORD, USER, Registry

pytestmark = [pytest.mark.image, pytest.mark.timeout(3000)]

COMPILERS = ("cc", "gcc", "g++", "clang", "make", "nvcc", "ld")


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """A store with the base image."""
    if os.geteuid() != 0:
        pytest.skip("a root file system is root's to make")
    for tool in ("buildah", "mmdebstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine")
    made = Builder(tmp_path_factory.mktemp("images"))
    try:
        made.base()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def images(builder, root):
    """The file systems of both images, by name."""
    names = [builder.build(root, target) for target in ("prepare", "trainer")]
    return {name: builder.mount(name) for name in names}


@pytest.mark.parametrize("target", ["prepare", "trainer"])
def test_an_image_is_small_in_what_it_may_and_holds(builder, images, target):
    name = f"bert-pipeline/{target}:0.2.0"
    held, folder = builder.inspect(name), images[name]
    config = held["config"]
    assert config["User"] == "1000:1000"
    assert config["Entrypoint"] == ["tini", "-g", "--"]
    assert config["Labels"]["org.opencontainers.image.title"] == f"bert-pipeline {target}"
    names = sorted(path.name for path in (folder / "app").iterdir())
    assert names == ["LICENSE", "README.md", "conf", "model", "pipeline"]
    found = {tool for tool in COMPILERS for _ in folder.glob(f"usr/**/bin/{tool}")}
    assert found <= ({"cc", "gcc", "ld"} if target == "trainer" else set()), "for Triton alone"
    assert not (folder / "etc" / "pip.conf").exists()
    assert "extra-index-url" not in json.dumps(held)


def test_only_the_trainer_has_pytorch(images):
    prepare, trainer = images.values()
    script = "import importlib.util as u; print(u.find_spec('torch') is not None)"
    said = [
        sh("chroot", "--userspec=1000:1000", folder, "/opt/venv/bin/python", "-c", script).strip()
        for folder in (prepare, trainer)
    ]
    assert said == ["False", "True"]


def test_the_prepare_image_is_a_beam_worker(images):
    folder = images["bert-pipeline/prepare:0.2.0"]
    python = "cd /app && exec /opt/venv/bin/python -m pipeline.beam.pool -h"
    said = sh("chroot", "--userspec=1000:1000", folder, "/bin/sh", "-c", python)
    assert "--port" in said


@pytest.fixture
def registry(tmp_path):
    """A private registry."""
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not on this machine")
    (tmp_path / "registry").mkdir()
    made = Registry(tmp_path / "registry")
    try:
        yield made.start()
    finally:
        made.stop()


def make_images(root, builder, registry):
    """Run `make images` for the small image: the other is 7 GB, by the same two commands."""
    words = [f"REGISTRY={registry.address}/team", "TARGETS=prepare", f"BUILDER={shlex.join(builder.command)}"]
    words.append(f"BUILD_OPTIONS={shlex.join(builder.options())}")
    kept = {"capture_output": True, "text": True, "check": False}
    return subprocess.run(["make", "images", *words], cwd=root, env=os.environ | registry.environment, **kept)


def test_what_make_images_pushes_is_what_an_overlay_by_digest_names(builder, registry, root, tmp_path):
    refused = make_images(root, builder, registry)
    assert refused.returncode != 0, "nobody has logged in"
    assert "authentication required" in refused.stderr
    assert json.loads(registry.ask("_catalog")) == {"repositories": []}
    login = ("login", "--username", USER, "--password", PASSWORD, registry.address)
    sh(*builder.command, *login, env=os.environ | registry.environment)
    done = make_images(root, builder, registry)
    assert done.returncode == 0, done.stderr[-3000:]

    name = "team/bert-pipeline/prepare"
    digest, pushed = registry.image(name, __version__)
    built = builder.inspect(f"{registry.address}/{name}:{__version__}")
    assert pushed["config"] == built["config"]
    assert pushed["rootfs"] == built["rootfs"]

    shutil.copytree(root / "k8s", tmp_path / "k8s", symlinks=True)
    site, mine = (tmp_path / "k8s" / "overlays" / each for each in ("site", "mine"))
    shutil.copytree(site, mine)
    settings = yaml.safe_load((mine / "kustomization.yaml").read_text())
    image = next(each for each in settings["images"] if each["name"] == "bert-pipeline/prepare")
    before = f"{image['newName']}:{image.pop('newTag')}"
    image |= {"newName": f"{registry.address}/{name}", "digest": digest}
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(settings))
    plain = json.dumps(kustomize(site))
    assert plain.count(f'"{before}"') == 2, "the template `prepare` and the driver"
    assert json.dumps(kustomize(mine)) == plain.replace(before, f"{image['newName']}@{digest}")


def test_an_edit_installs_nothing_again(builder, images, root, tmp_path):
    for name in ("LICENSE", "README.md", ".dockerignore"):
        shutil.copy2(root / name, tmp_path)
    for name in ("conf", "docker", "model", "pipeline"):
        shutil.copytree(root / name, tmp_path / name)
    (tmp_path / "pipeline" / "run.py").open("a").write("\n# An edit.\n")
    before = builder.inspect("bert-pipeline/trainer:0.2.0")["rootfs"]["diff_ids"]
    builder.build(tmp_path, "trainer")
    after = builder.inspect("bert-pipeline/trainer:0.2.0")["rootfs"]["diff_ids"]
    same = [old == new for old, new in zip(before, after, strict=True)]
    assert same.count(False) == 1, "only the layer of the edited folder is another"


def test_the_graph_runs_in_the_images(builder, images, manifest, tmp_path, has_cluster):
    settings = manifest["items"][0]["data"]
    settings["overrides"] = settings["overrides"].replace("sklearn", "numpy")  # both have it
    known = {name: image_of(folder, json.dumps(builder.inspect(name)["config"])) for name, folder in images.items()}
    cluster = Cluster(tmp_path, known)
    try:
        cluster.start().apply(manifest)
        cluster.wait(lambda: cluster.is_over("driver"), 600)
        story = cluster.log("driver")
        assert cluster.is_over("driver") == "Complete", story
        assert "Sample-Next (sample task) accuracy" in story
        assert cluster.job("train")["status"]["succeeded"] == 2
        assert "2 x cpu" in cluster.log("train")
        owners = {path.stat().st_uid for path in cluster.claim.rglob("*")}
        assert owners == {1000}
    finally:
        cluster.stop()
