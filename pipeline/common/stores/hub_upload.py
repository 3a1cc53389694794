"""Folders put into repositories of the Hugging Face hub, with huggingface_hub.

A hub that does not answer, or limits the rate, is waited for as in `hub`. What is there already is
not sent again, so that the same command continues an upload that was cut off.
"""

from collections.abc import Iterable
from pathlib import Path

from pipeline.common.errors import InputError, Restart, first_line
from pipeline.common.stores import hub


def push(name: str, folder: Path, revision: str | None = None, ignore: Iterable[str] = ()) -> str:
    """Put a folder into a repository, private if it is new; return the address of the commit.

    With a `revision` it becomes the content of that branch, made where it is missing.

    Raises:
        InputError: the hub refuses, or cannot be reached.
        Restart: it does not answer.
    """
    try:
        with hub.patient():
            return _push(name, folder, revision, list(ignore))
    except Restart as error:
        raise Restart(f"push={name}: {error}") from error
    except Exception as error:  # also those of its HTTP client, which changes between releases
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None and (status == 429 or status >= 500):
            raise Restart(f"push={name}: the hub did not answer ({status})") from error
        raise InputError(f"{_reason(error, status)}", "push", name) from error


def _push(name: str, folder: Path, revision: str | None, ignore: list[str]) -> str:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=hub.endpoint())
    api.create_repo(name, private=True, exist_ok=True)
    if revision is None:
        return str(api.upload_folder(repo_id=name, folder_path=folder, ignore_patterns=ignore))
    api.create_branch(name, branch=revision, exist_ok=True)
    return str(
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            revision=revision,
            ignore_patterns=ignore,
            delete_patterns="*",  # what the branch has of the one that it was made from
        )
    )


def _reason(error: Exception, status: int | None) -> str:
    """Return in one line why the hub refuses, and what to do."""
    if status == 401:
        return "the hub does not accept the token; log in with `hf auth login`, or renew HF_TOKEN"
    if status == 403:
        return "the token may not write there; use one with the right to write"
    return f"{first_line(error)}; log in with `hf auth login` and rerun the same command"
