"""`python -m pipeline.download +corpus=NAME`: the files of a corpus, verified by checksum.

Runs in place: correct files are kept, partial ones are resumed. A file is renamed to its final name
only after its checksum was verified.
"""

import hashlib
import re
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pipeline.cli import entry_point
from pipeline.common import schema
from pipeline.config import DownloadConfig, DownloadFile
from pipeline.console.bars import Bar
from pipeline.console.formatting import pluralize
from pipeline.console.redact import hide
from pipeline.errors import ConfigError, InputError
from pipeline.records.manifest import MANIFEST, Manifest, Result
from pipeline.stages import stage
from pipeline.storage import http_transfer
from pipeline.storage.atomic import flush, write_text
from pipeline.storage.http_transfer import NotFound, RetryPolicy

ALGORITHMS = {32: "md5", 40: "sha1", 64: "sha256"}
_LATEST = "latest"


class Source(NamedTuple):
    """A file to download: its addresses and checksum."""

    name: str
    urls: tuple[str, ...]  # the first that exists is used; the last is that of the settings
    digest: str | None


def name_of(url: str) -> str:
    """Return the file name at the end of an address.

    Raises:
        ConfigError: the address has none.
    """
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if not name or name.startswith(".") or name.endswith(".part") or name == MANIFEST:
        raise ConfigError(f"{url} must end in a file name; correct the address", "corpus.files")
    return name


def check_digest(digest: str, where: str) -> str:
    """Return a checksum in lower case.

    Raises:
        ConfigError: the text is not a checksum of a known algorithm.
    """
    if len(digest) not in ALGORITHMS or not re.fullmatch("[0-9a-fA-F]+", digest):
        known = ", ".join(f"{name} ({length})" for length, name in ALGORITHMS.items())
        raise ConfigError(f"{digest} is not a checksum; expected hex digits of {known}", "corpus.files", path=where)
    return digest.lower()


def listed_digest(sums: str, name: str, where: str) -> tuple[str, str]:
    """Return the checksum of a file in a publisher's list, and its name in that list.

    The list names dumps by date where the address has `latest`; exactly one date must match.

    Raises:
        InputError: the list has no such file, or several dates of it.
    """
    lines = (line.split(maxsplit=1) for line in sums.splitlines())
    entries = {PurePosixPath(parts[1].strip().lstrip("*")).name: parts[0] for parts in lines if len(parts) == 2}
    dated = re.compile(re.escape(name).replace(_LATEST, r"(\d{8})", 1))
    names = [name] if name in entries else sorted(filter(dated.fullmatch, entries))
    if len(names) != 1:
        problem = f"lists several: {', '.join(names)}" if names else f"does not list {name}"
        raise InputError(
            f"{problem}; a new dump may be in progress: rerun later, or set digest", "corpus.files", path=where
        )
    return check_digest(entries[names[0]], where), names[0]


def resolve(file: DownloadFile, policy: RetryPolicy) -> Source:
    """Look up the addresses and checksum of a file.

    If the publisher's list has a date for `latest`, the file of that date is requested first, in
    case a new dump is published meanwhile.

    Raises:
        UserError: the list cannot be downloaded, or does not list the file.
    """
    name, urls, digest = name_of(file.url), [file.url], file.digest
    if digest is not None:
        digest = check_digest(digest, f"corpus.files: {name}")
    elif file.sums is not None:
        sums = http_transfer.read(file.sums, policy).decode("utf-8", "replace")
        digest, listed = listed_digest(sums, name, file.sums)
        if listed != name:
            before, after = name.split(_LATEST, 1)
            date = listed[len(before) : len(listed) - len(after)]
            address = urlsplit(file.url)
            urls.insert(0, address._replace(path=address.path.replace(_LATEST, date)).geturl())
    return Source(name, tuple(urls), digest)


def checksums(path: Path, digest: str | None) -> dict[str, str]:
    """Return the file's sha256 and its checksum by the algorithm of `digest`, by algorithm."""
    kinds = {"sha256", ALGORITHMS[len(digest)]} if digest else {"sha256"}
    hashes = {kind: hashlib.new(kind, usedforsecurity=False) for kind in kinds}
    with path.open("rb") as file, Bar("check", path.stat().st_size, "B") as bar:
        while chunk := file.read(http_transfer.CHUNK):
            bar.update(len(chunk))
            for each in hashes.values():
                each.update(chunk)
    return {kind: each.hexdigest() for kind, each in hashes.items()}


def is_right(sums: dict[str, str], digest: str | None) -> bool:
    """Return whether these checksums match `digest`."""
    return digest is None or sums[ALGORITHMS[len(digest)]] == digest


def fetch(source: Source, part: Path, policy: RetryPolicy) -> str:
    """Download a file from the first address that has it, and return that address.

    Raises:
        InputError: the download failed.
    """
    *dated, last = source.urls
    for url in dated:
        with suppress(NotFound):
            http_transfer.fetch(url, part, policy, digest=source.digest)
            return url
    http_transfer.fetch(last, part, policy, digest=source.digest)
    return last


def note_of(path: Path) -> Path:
    """Return the path of the note with the address that a file was downloaded from."""
    return path.with_name(f".{path.name}.url")


def addresses(config: DownloadConfig) -> dict[str, str]:
    """Return the addresses that the finished folder was made from, by file name."""
    made = Manifest.read(config.out)
    if made is None or made.stage != "download":
        return {}
    return {name_of(file["url"]): file["url"] for file in made.config.get("corpus", {}).get("files", [])}


def obtain(source: Source, out: Path, policy: RetryPolicy) -> dict[str, Any]:
    """Download a file unless it exists, and return its record for the manifest.

    Raises:
        InputError: the download failed, or its checksum is wrong.
    """
    path, part = out / source.name, out / f"{source.name}.part"
    url, kept, note, address = source.urls[0], False, note_of(path), hide(source.urls[-1])
    # Without a checksum, the address alone says which file it is: without a note it is the same.
    if path.exists() and (source.digest or not note.exists() or hide(note.read_text()) == address):
        sums = checksums(path, source.digest)
        kept = is_right(sums, source.digest)
    if not kept:
        url = fetch(source, part, policy)
        sums = checksums(part, source.digest)
        if not is_right(sums, source.digest):
            assert source.digest is not None
            kind = ALGORITHMS[len(source.digest)]
            http_transfer.discard(part)
            why = f"{kind} of the download is {sums[kind]}, but {source.digest} was published"
            cure = "the file was deleted: rerun, or ask the publisher"
            raise InputError(f"{why}; {cure}", "corpus.files", path=url)
        flush(part)  # without a checksum, nothing else would tell that the power went
        part.replace(path)
    http_transfer.discard(part)  # or its note, of a start that was killed
    if source.digest is None:
        write_text(note, address)
    else:
        note.unlink(missing_ok=True)
    return {
        "name": source.name,
        "url": url,
        "bytes": path.stat().st_size,
        "digest": source.digest,
        "sha256": sums["sha256"],
        "kept": kept,
    }


def check(config: DownloadConfig, out: Path) -> None:
    """Check that the corpus has files to download, and that their folder holds no others.

    Raises:
        ConfigError: the corpus has no addresses, or two files of the same name.
        InputError: the folder holds other files, which readers would pick up.
    """
    corpus = config.corpus
    why = "has no files to download; skip download, its text is read from corpus.path, if any"
    schema.check(bool(corpus.files), why, "corpus", corpus.name)
    names = [name_of(file.url) for file in corpus.files]
    schema.check(len({*names}) == len(names), f"names must be unique, not {', '.join(names)}", "corpus.files")
    ours = {*names, *(f"{name}.part" for name in names)}
    for path in sorted(out.iterdir()):
        if path.name not in ours and not path.name.startswith("."):
            why = f"is not a file of corpus {corpus.name}, but readers would pick it up; delete it, or set out"
            raise InputError(why, "out", path=path)


def make(config: DownloadConfig, out: Path) -> Result:
    """Download the corpus's files to `out`."""
    check(config, out)
    policy = RetryPolicy(config.timeout, config.tries)
    files = [obtain(resolve(file, policy), out, policy) for file in config.corpus.files]
    size = sum(file["bytes"] for file in files)
    unchecked = sum(file["digest"] is None for file in files)
    note = f", {unchecked} without a checksum" if unchecked else ", checksums verified"
    return Result(
        summary=f"{pluralize(len(files), 'file')}, {size:,} bytes{note}",
        figures={"files": files, "bytes": size},
        sums={file["name"]: file["sha256"] for file in files},
    )


def run(config: DownloadConfig) -> Manifest:
    """Make `config.out`, unless it is up to date."""
    known = addresses(config)

    def with_addresses(config: DownloadConfig, out: Path) -> Result:
        # The notes that are missing, as the manifest with the addresses is gone.
        for name, url in known.items():
            if (out / name).exists() and not note_of(out / name).exists():
                write_text(note_of(out / name), url)
        return make(config, out)

    return stage.run("download", config, with_addresses, in_place=True)


def main() -> None:
    """Run the command."""
    entry_point.run("download", DownloadConfig, run)


if __name__ == "__main__":
    main()
