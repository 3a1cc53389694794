"""The files of a corpus."""

import glob
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers.io import size_limit
from pipeline.storage import file_search, places
from pipeline.storage.places import File


class FileList(list[File]):
    """Files of a corpus; `notes` count those of its folder that it does not have."""

    def __init__(self, files: list[File], others: Iterable[File]):
        super().__init__(files)
        endings = (PurePosixPath(file.name).suffix.lower() or "other" for file in others)
        self.notes = Counter(f"{ending} files left out" for ending in endings)


def files_of(
    corpus: CorpusConfig, source: str, suffixes: tuple[str, ...], of_reader: Callable[[list[File]], list[File]] = list
) -> FileList:
    """Return the corpus's files, sorted: `corpus.path` (file, folder, glob, URL), else `source`.

    A folder means all files below it whose names end in one of `suffixes` (case-insensitive).
    `of_reader` returns those that the reader reads, of which there may be fewer; `corpus.limit`
    counts no others.

    Raises:
        InputError: no file was found.
        ConfigError: the corpus has no download, and `corpus.path` is not set.
    """
    place = corpus.path or source
    top = places.at(place)
    left_out, others = set[Path](), list[File]()
    if places.is_folder(top):
        files = places.below(top, left_out)
        found = [file for file in files if file.name.lower().endswith(suffixes)]
        if corpus.path is not None:  # a download has lists and licences next to its files
            others = [file for file in files if not file.name.lower().endswith(suffixes)]
    else:
        found = places.matching(place, left_out)
    file_search.say_left_out(place, len(left_out))
    if found:
        return FileList(size_limit.choose(of_reader(found), place, corpus), others)
    key = "corpus.path"
    if corpus.path is not None:
        raise InputError(what_is_missing(place, suffixes), key, place, path=place)
    if corpus.files:
        raise InputError(
            f"{what_is_missing(place, suffixes)}; run python -m pipeline.download with this corpus first, or set {key}",
            key,
            path=place,
        )
    raise ConfigError(f"is required for corpus {corpus.name}; name a file or folder", key)


def what_is_missing(place: str, suffixes: tuple[str, ...]) -> str:
    """Return why no file of a corpus was found at `place`."""
    if glob.has_magic(place):
        return "no file matches this pattern"
    if not places.is_folder(places.at(place)):
        return "no such file or folder"
    plain = [end for end in suffixes if not any(end != o and end.startswith(o) for o in suffixes)]
    if not any(plain):
        return "no file in this folder"
    packed = " (plain or compressed)" if len(plain) < len(suffixes) else ""
    return f"no {', '.join(plain)} file{packed} in this folder"
