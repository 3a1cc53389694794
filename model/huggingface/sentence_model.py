"""The files of a sentence-transformers model other than its BERT."""

import shutil
from pathlib import Path

from pipeline.common import foreign_json
from pipeline.common.errors import InputError

MODULES = "modules.json"
# Settings of all modules, and of the first module, the BERT.
SETTINGS = (MODULES, "config_sentence_transformers.json", "sentence_bert_config.json")


def copy(source: Path, target: Path) -> None:
    """Copy the settings and modules of a sentence-transformers model, if `source` is one.

    Raises:
        InputError: The list of modules is broken, or names a folder outside the source.
    """
    if not (source / MODULES).is_file():
        return
    path = source / MODULES
    try:
        folders = [str(module["path"]) for module in foreign_json.read(path)]
    except (TypeError, KeyError) as error:
        raise InputError(f"{path}: not a list of modules ({error})", path=path) from error
    for name in filter(None, folders):  # the BERT's path is empty
        if Path(name).name != name or name in (".", "..") or (source / name).is_symlink():
            raise InputError(f"{path}: lists {name}, which is not in its folder", path=path)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=_links, dirs_exist_ok=True)
    for name in SETTINGS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _links(folder: str, names: list[str]) -> list[str]:
    """Return the symbolic links in a folder, which may point outside it."""
    return [name for name in names if (Path(folder) / name).is_symlink()]
