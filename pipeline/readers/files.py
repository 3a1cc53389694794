"""The files of a corpus."""

import glob
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers import formats
from pipeline.readers.base import FileRange, FileRanges
from pipeline.readers.io import size_limit, table_logs
from pipeline.readers.io.compressed import ARCHIVES, PACKED, CompressedFile
from pipeline.storage import file_search, places
from pipeline.storage.places import File

UNREAD = " files left out"  # in notes, after an ending
FEW_ENDINGS = 8  # others are numbers, as in news.en-00001-of-00100


class FileList(list[File]):
    """Files of a corpus, and its archives; `notes` count those of its folder that it does not have."""

    def __init__(self, files: Iterable[File], others: Iterable[File], archives: Iterable[File] = ()):
        super().__init__(files)
        self.archives = list(archives)
        endings = (PurePosixPath(file.name).suffix.lower() or "other" for file in others)
        self.notes = Counter(f"{ending}{UNREAD}" for ending in endings)

    def cut(self, ranges: Iterable[FileRange]) -> FileRanges:
        """Return the file ranges of the files, then a range for each archive, with the notes."""
        return FileRanges([*ranges, *(CompressedFile(file).whole() for file in self.archives)], self.notes)


def files_of(
    corpus: CorpusConfig,
    source: str,
    suffixes: tuple[str, ...],
    of_reader: Callable[[list[File]], list[File]] = list,
    *,
    rows: bool = False,
) -> FileList:
    """Return the corpus's files, sorted: `corpus.path` (file, folder, glob, URL), else `source`.

    A folder means all files below it whose names end in one of `suffixes` (case-insensitive).
    `of_reader` returns those that the reader reads, of which there may be fewer; `corpus.limit`
    counts no others. Archives are apart, unless the suffixes have them. Of a folder of `rows`, what is
    hidden to Spark and Hive is left out.

    Raises:
        InputError: no file was found.
        ConfigError: the corpus has no download, and `corpus.path` is not set; or a file is for another reader.
    """
    place = corpus.path or source
    ends = (*suffixes, *ARCHIVES)
    formats.check_name(corpus, place, ends)
    top = places.at(place)
    left_out, others, files, hidden = set[Path](), list[File](), list[File](), 0
    if places.is_folder(top):
        files = places.below(top, left_out)
        secret = {file for file in files if rows and table_logs.hidden(place, file)}
        found = [file for file in files if file.name.lower().endswith(ends) and file not in secret]
        if corpus.path is not None:  # a download has lists and licences next to its files
            others = [file for file in files if file not in secret and not file.name.lower().endswith(ends)]
        hidden = sum(file.name.lower().endswith(ends) for file in secret)
    else:
        found = places.matching(place, left_out)
        for file in found:
            formats.check_name(corpus, file.name, ends)
    found = table_logs.live(found, files, place) if rows else found
    file_search.say_left_out(place, len(left_out))
    if found:
        apart = {file for file in found if ".zip" not in suffixes and file.name.lower().endswith(ARCHIVES)}
        loose = [file for file in found if file not in apart]
        read = of_reader(loose) if loose else []
        if corpus.path is not None:
            others += sorted(set(loose).difference(read), key=str)
        chosen = size_limit.choose(sorted([*read, *apart], key=str), place, corpus)
        archives = [file for file in chosen if file in apart]
        listed = FileList((file for file in chosen if file not in apart), others, archives)
        listed.notes.update({"hidden files (_NAME) left out": hidden} if hidden else {})
        return listed
    key = "corpus.path"
    if corpus.path is not None:
        cure = formats.cures([file.name for file in others])
        cure = cure or (other_names(place, others) if any(end.endswith(PACKED) for end in suffixes) else "")
        raise InputError(f"{what_is_missing(place, suffixes)}{cure}", key, place, path=place)
    if corpus.files:
        why = f"{what_is_missing(place, suffixes)}; run python -m pipeline.download with this corpus first or set {key}"
        raise InputError(why, key, path=place)
    raise ConfigError(f"is required for corpus {corpus.name}; add {key}=PATH, a file or folder", key)


class WholeFiles:
    """What readers have in common for which a file is one range, as it is read from its first byte."""

    members: tuple[str, ...]

    def __init__(self, corpus: CorpusConfig, source: str):
        self.corpus, self.source = corpus, source

    def splits(self, split_bytes: int) -> FileRanges:
        """Return a range for each file."""
        files = files_of(self.corpus, self.source, self.members)
        return files.cut(CompressedFile(file).whole() for file in files)


def what_is_missing(place: str, suffixes: tuple[str, ...]) -> str:
    """Return why no file of a corpus was found at `place`."""
    if glob.has_magic(place):
        return "no file matches this pattern"
    if not places.is_folder(places.at(place)):
        return "no such file or folder"
    plain = [end for end in suffixes if not end.endswith(PACKED) and end not in ARCHIVES] or list(suffixes)
    if not any(plain):
        return "no file in this folder"
    packed = " (plain or compressed)" if len(plain) < len(suffixes) else ""
    return f"no {', '.join(plain)} file{packed} in this folder"


def other_names(place: str, files: list[File]) -> str:
    """Return what to type for files of a folder whose names end otherwise: .en of Moses, .train of BabyLM, or none."""
    ends = Counter(end for file in files if (end := PurePosixPath(file.name).suffix))
    few = min(ends, key=lambda end: (-ends[end], end), default="") if len(ends) < FEW_ENDINGS else ""
    return f"; for files of other names set corpus.path='{place.rstrip('/')}/**/*{few}'" if files else ""
