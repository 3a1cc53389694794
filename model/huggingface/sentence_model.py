"""The files of a sentence-transformers model other than its BERT."""

import shutil
from pathlib import Path

from pipeline.common import foreign_json
from pipeline.common.errors import InputError
from pipeline.common.file_search import inside, leads_out, say_left_out

MODULES = "modules.json"
# Settings of all modules, and of the first module, the BERT.
SETTINGS = (MODULES, "config_sentence_transformers.json", "sentence_bert_config.json")


def copy(source: Path, target: Path) -> None:
    """Copy the settings and modules of a sentence-transformers model, if `source` is one.

    Links that lead out of the source, or to a folder, are left out, and said.

    Raises:
        InputError: The list of modules is broken, or names a folder outside the source.
    """
    left_out: list[Path] = []

    def leaves(folder: str | Path, names: list[str]) -> list[str]:
        paths = [Path(folder, name) for name in names]
        rings = {path for path in paths if path.is_symlink() and path.is_dir()}
        left = [path for path in paths if path in rings or leads_out(source, path)]
        left_out.extend(left)
        return [path.name for path in left]

    path = source / MODULES
    if path.is_file() and not leaves(source, [MODULES]):
        try:
            folders = [str(module["path"]) for module in foreign_json.read(path)]
        except (TypeError, KeyError) as error:
            raise InputError(f"{path}: not a list of modules ({error})", path=path) from error
        for name in filter(None, folders):  # the BERT's path is empty
            if inside(source, name, path).is_dir() and not leaves(source, [name]):
                shutil.copytree(source / name, target / name, ignore=leaves, dirs_exist_ok=True)
        for name in SETTINGS:
            if (source / name).is_file() and not leaves(source, [name]):
                shutil.copyfile(source / name, target / name)
    say_left_out(str(source), len(left_out))
