"""`python -m pipeline.download +corpus=NAME`: the files of a corpus, checked.

Runs in place: what is there and right is kept, what broke off is gone on with. A file gets its
name when its digest is the publisher's, never before.
"""

import dataclasses
import hashlib
import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from tqdm import tqdm

from pipeline.cli import entry_point
from pipeline.common import http_transfer
from pipeline.common.errors import ConfigError, InputError
from pipeline.common.formatting import pluralize
from pipeline.common.http_transfer import NotFound, RetryPolicy
from pipeline.common.manifest import MANIFEST, Result
from pipeline.config import DownloadConfig, DownloadFile
from pipeline.stages import stage

ALGORITHMS = {32: "md5", 40: "sha1", 64: "sha256"}
_LATEST = "latest"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a file is to be had, and what it must be."""

    name: str
    urls: tuple[str, ...]  # the first that the server has
    digest: str | None


def name_of(url: str) -> str:
    """The file name at the end of an address.

    Raises:
        ConfigError: there is none.
    """
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if not name or name.startswith(".") or name.endswith(".part") or name == MANIFEST:
        raise ConfigError(f"corpus.files: {url} does not end in a name for the file")
    return name


def check_digest(digest: str, where: str) -> str:
    """The digest in lower case.

    Raises:
        ConfigError: no digest of a known kind.
    """
    if len(digest) not in ALGORITHMS or not re.fullmatch("[0-9a-fA-F]+", digest):
        kinds = ", ".join(f"{kind} ({length})" for length, kind in ALGORITHMS.items())
        raise ConfigError(f"{where}: {digest} is no digest; known by their hex digits: {kinds}")
    return digest.lower()


def listed_digest(sums: str, name: str, where: str) -> tuple[str, str]:
    """The digest of a file in a publisher's list, and the name that it has there.

    A list of dumps names each by its date where the address says `latest`; one date must fit.

    Raises:
        InputError: the list does not name the file, or several dates of it.
    """
    lines = (line.split(maxsplit=1) for line in sums.splitlines())
    entries = {
        PurePosixPath(parts[1].strip().lstrip("*")).name: parts[0]
        for parts in lines
        if len(parts) == 2
    }
    dated = re.compile(re.escape(name).replace(_LATEST, r"(\d{8})", 1))
    found = [name] if name in entries else sorted(filter(dated.fullmatch, entries))
    if len(found) != 1:
        problem = f"names several: {', '.join(found)}" if found else f"does not name {name}"
        raise InputError(
            f"{where} {problem}; a new dump may be under way: try later, or state digest"
        )
    return check_digest(entries[found[0]], where), found[0]


def resolve(file: DownloadFile, patience: RetryPolicy) -> Source:
    """The address and the digest of a file.

    Where the publisher's list gives `latest` a date, the file of that date is asked for first, so
    that a dump that is published in between does no harm.

    Raises:
        UserError: the list is not to be had, or does not help.
    """
    name = name_of(file.url)
    if file.digest is not None:
        return Source(name, (file.url,), check_digest(file.digest, f"corpus.files: {name}"))
    if file.sums is None:
        return Source(name, (file.url,), None)
    sums = http_transfer.read(file.sums, patience).decode("utf-8", "replace")
    digest, listed = listed_digest(sums, name, file.sums)
    if listed == name:
        return Source(name, (file.url,), digest)
    before, after = name.split(_LATEST, 1)
    date = listed[len(before) : len(listed) - len(after)]
    address = urlsplit(file.url)
    of_date = address._replace(path=address.path.replace(_LATEST, date)).geturl()
    return Source(name, (of_date, file.url), digest)


def checksums(path: Path, digest: str | None) -> dict[str, str]:
    """The file's sha256, and what it has of the kind of `digest`, by algorithm."""
    kinds = {"sha256", ALGORITHMS[len(digest)]} if digest else {"sha256"}
    hashes = {kind: hashlib.new(kind, usedforsecurity=False) for kind in kinds}
    with (
        path.open("rb") as file,
        tqdm(
            total=path.stat().st_size, desc="check", unit="B", unit_scale=True, disable=None
        ) as bar,
    ):
        while chunk := file.read(http_transfer.CHUNK):
            for each in hashes.values():
                each.update(chunk)
            bar.update(len(chunk))
    return {kind: each.hexdigest() for kind, each in hashes.items()}


def is_right(sums: dict[str, str], digest: str | None) -> bool:
    """Whether a file with these checksums is the one with this digest."""
    return digest is None or sums[ALGORITHMS[len(digest)]] == digest


def fetch(source: Source, part: Path, patience: RetryPolicy) -> str:
    """Bring the file from the first of its addresses that has it; returns that one.

    Raises:
        InputError: it cannot be had.
    """
    for url in source.urls:
        try:
            http_transfer.fetch(url, part, patience, checked=source.digest is not None)
            return url
        except NotFound:
            if url == source.urls[-1]:
                raise
    raise AssertionError("a source has an address")


def obtain(source: Source, out: Path, config: DownloadConfig) -> dict[str, Any]:
    """Bring one file, unless it is there; returns the account of it.

    Raises:
        InputError: it cannot be had, or is not what the publisher says.
    """
    path, part = out / source.name, out / f"{source.name}.part"
    url, kept = source.urls[0], False
    if path.exists() and (source.digest is not None or not config.force):
        sums = checksums(path, source.digest)
        kept = is_right(sums, source.digest)
    if not kept:
        url = fetch(source, part, RetryPolicy(config.timeout, config.tries))
        sums = checksums(part, source.digest)
        if not is_right(sums, source.digest):
            assert source.digest is not None
            kind = ALGORITHMS[len(source.digest)]
            http_transfer.discard(part)
            raise InputError(
                f"{url}: the {kind} of what came is {sums[kind]}, of what was published "
                f"{source.digest}; it has been removed: run again, or ask the publisher"
            )
        part.replace(path)
        http_transfer.discard(part)
    return {
        "name": source.name,
        "url": url,
        "bytes": path.stat().st_size,
        "digest": source.digest,
        "sha256": sums["sha256"],
        "kept": kept,
    }


def check(config: DownloadConfig, out: Path) -> None:
    """Check that there is something to fetch, and that its folder holds nothing else.

    Raises:
        ConfigError: the corpus has no addresses, or two files of one name.
        InputError: the folder holds files of something else, which a reader would take for it.
    """
    corpus = config.corpus
    if not corpus.files:
        raise ConfigError(
            f"corpus {corpus.name} has no address to download from; "
            "its files are read from corpus.path, if it needs any"
        )
    names = [name_of(file.url) for file in corpus.files]
    if len(set(names)) < len(names):
        raise ConfigError(f"corpus.files: two files of one name among {', '.join(names)}")
    ours = {*names, *(f"{name}.part" for name in names)}
    for path in sorted(out.iterdir()):
        if path.name not in ours and not path.name.startswith("."):
            raise InputError(
                f"{path} is not of corpus {corpus.name}: it would be read as if it were; "
                "remove it, or set out"
            )


def make(config: DownloadConfig, out: Path) -> Result:
    """Bring the corpus's files to `out`."""
    check(config, out)
    patience = RetryPolicy(config.timeout, config.tries)
    files = [obtain(resolve(file, patience), out, config) for file in config.corpus.files]
    size = sum(file["bytes"] for file in files)
    unchecked = sum(file["digest"] is None for file in files)
    note = f", {unchecked} without a digest to check" if unchecked else ", digests right"
    return Result(
        summary=f"{pluralize(len(files), 'file')}, {size:,} bytes{note}",
        figures={"files": files, "bytes": size},
        sums={file["name"]: file["sha256"] for file in files},
    )


def main() -> None:
    """The command."""
    entry_point.run(
        "download",
        DownloadConfig,
        lambda config: stage.run("download", config, make, in_place=True),
    )


if __name__ == "__main__":
    main()
