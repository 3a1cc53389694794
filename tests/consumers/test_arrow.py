"""Arrow of other languages reads our shards, with ids of 16 and of 32 bits, the latter with marked words."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipeline.common.ranges import bounds_of
from pipeline.shards import ShardInfo, write_shard
from tests.consumers.conftest import environment, need, node_with

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(3000)]
SOURCES = Path(__file__).with_name("arrow")
JS, GO, RUST, JAVA = "21.2.0", "v18.8.0", "60.1.0", "19.0.0"
CARGO = '[package]\nname = "shards"\nversion = "0.1.0"\nedition = "2024"\n[dependencies]\n'
DEPENDENCY = (
    "<dependency><groupId>org.apache.arrow</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>"
    "<dependencies>{}</dependencies></project>"
)


def javascript(paths):
    run = node_with("arrow-js", f"apache-arrow@{JS}")
    return json.dumps(run((SOURCES / "shards.mjs").read_text(), paths))


def rust(paths):
    need("cargo")
    source = (SOURCES / "shards.rs").read_text()

    def make(place):
        crates = ("arrow-array", "arrow-ipc")
        (place / "Cargo.toml").write_text(CARGO + "".join(f'{name} = "={RUST}"\n' for name in crates))
        (place / "src").mkdir()
        (place / "src" / "main.rs").write_text(source)
        subprocess.run(["cargo", "build", "--quiet", "--release"], cwd=place, check=True)

    return output(environment("arrow-rust", RUST, source, make=make) / "target" / "release" / "shards", *paths)


def go(paths):
    need("go")
    source = (SOURCES / "shards.go").read_text()

    def make(place):
        (place / "main.go").write_text(source)
        for command in ("mod init shards", f"get github.com/apache/arrow-go/v18@{GO}", "mod tidy", "build -o shards ."):
            subprocess.run(["go", *command.split()], cwd=place, check=True, capture_output=True)

    return output(environment("arrow-go", GO, source, make=make) / "shards", *paths)


def java(paths):
    need("mvn")

    def make(place):
        jars = (DEPENDENCY.format(name, JAVA) for name in ("arrow-vector", "arrow-memory-netty"))
        (place / "pom.xml").write_text(POM.format("".join(jars)))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        subprocess.run(command, cwd=place, check=True, capture_output=True)

    place = environment("arrow-java", JAVA, make=make)
    opened = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    return output("java", opened, "-cp", f"{place}/jars/*", SOURCES / "Shards.java", *paths)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


@pytest.mark.parametrize(
    ("read", "types", "differs"),
    [
        pytest.param(read, types, differs, marks=pytest.mark.tool(f"Arrow, {language}", version))
        for language, version, read, types, differs in (
            ("JavaScript", JS, javascript, ("Uint16", "Uint32"), "`&` gives signed numbers: `>>> 0`"),
            ("Rust", RUST, rust, ("UInt16", "UInt32"), ""),
            ("Go", GO, go, ("uint16", "uint32"), ""),
            ("Java", JAVA, java, ("Character", "Integer, negative"), "`char` of 16 bits, signed `int` of 32: use `&`"),
        )
    ],
)
def test_a_language_reads_rows_and_metadata(read, types, differs, tmp_path, record_property):
    draws, paths, expected = np.random.default_rng(0), [], []
    for words, size, kind in ((None, 30_000, types[0]), ("jieba", 100_000, types[1])):
        info = ShardInfo(
            split="train", pairs="nsp", tokenizer="0" * 64, vocab_size=size, sequence_length=64, seed=0, words=words
        )
        lengths = draws.integers(2, 60, 500)
        ids, marks = draws.integers(0, size, lengths.sum()), draws.random(lengths.sum()) < (0.3 if words else 0)
        labels, path = lengths % 2 == 0, tmp_path / f"train-{size}.arrow"
        write_shard(path, info, info.marked(ids, marks), bounds_of(lengths), lengths // 2, labels)
        paths.append(str(path))
        expected.append([500, int(ids.sum()), int((lengths // 2).sum()), int(labels.sum()), kind, info.format])
    assert json.loads(read(paths)) == expected
    record_property("works", "shards: rows, labels, metadata")
    if differs:
        record_property("differs", differs)
