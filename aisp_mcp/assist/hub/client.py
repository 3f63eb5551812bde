"""The Hugging Face Hub through its own client library: search, trending models, and downloads into one folder.

The token comes from the library's usual sources (HF_TOKEN, or the file that `hf auth login` writes). Runs inside a job.
"""

from __future__ import annotations

import importlib
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from aisp_mcp.errors import AispError, NotFound, Refused, Unavailable, UsageError
from aisp_mcp.records import Record
from aisp_mcp.server.text.numbers import quantity


class HubModel(Record):
    """One model as the hub lists it."""

    id: str
    task: str | None = None
    downloads: int | None = Field(default=None, description="In the last 30 days.")
    likes: int | None = None
    trending_score: float | None = None
    gated: bool = False


class HubAnswer(Record):
    """Models of a search, or a download. bytes, files: size and number of the chosen files."""

    models: list[HubModel] = Field(default_factory=list)
    repository: str | None = None
    revision: str | None = Field(default=None, description="The commit that was downloaded.")
    folder: str | None = None
    files: int | None = None
    bytes: int | None = None
    bytes_fetched: int | None = Field(default=None, description="Less than bytes if some files already existed.")


MAX_NAME = 96
ANSWER_S = 10.0
_REPOSITORY = re.compile(r"(?=.{1,96}$)[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
RESERVE = 1.05  # times the bytes: a file system needs some itself


def listed(query: str | None, limit: int) -> HubAnswer:
    """Matching models, most downloaded first; without a query, trending models. Raises AispError."""
    hub = _library()
    order = {"search": query, "sort": "downloads"} if query else {"sort": "trending_score"}
    try:
        hub.get_session().head(hub.HfApi().endpoint, timeout=ANSWER_S)  # listing is retried for half a minute
        models = list(hub.HfApi().list_models(limit=limit, **order))
    except Exception as error:
        raise _explained(error, query or "trending") from error
    return HubAnswer(models=[_model(model) for model in models])


def download(repository: str, folder: Path, patterns: Sequence[str], revision: str | None, max_mb: float) -> HubAnswer:
    """Fetch the files of a model into folder/ORG--NAME; existing files are not fetched again.

    Raises Refused CONFIRM_FIRST with the size if more than max_mb (10^6 bytes) must be fetched, DISK_FULL if it does
    not fit, and AispError.
    """
    hub = _library()
    target = folder / _folder_name(repository)
    options = {"revision": revision, "local_dir": target, "allow_patterns": list(patterns) or None}
    try:
        hub.HfApi().model_info(repository, revision=revision)  # a dry run hides why a repository cannot be read
        planned = hub.snapshot_download(repository, dry_run=True, **options)
        _check_inside(target, [file.filename for file in planned])
        total = sum(file.file_size for file in planned)
        missing = sum(file.file_size for file in planned if file.will_download)
        _check_room(target, missing)
        if missing > max_mb * 1e6:
            raise _unconfirmed(repository, patterns, len(planned), total, missing, target)
        hub.snapshot_download(repository, **options)
    except AispError:
        raise
    except Exception as error:
        raise _explained(error, repository) from error
    commit = planned[0].commit_hash if planned else None
    return HubAnswer(
        repository=repository,
        revision=commit,
        folder=str(target),
        files=len(planned),
        bytes=total,
        bytes_fetched=missing,
    )


def _library() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise Unavailable(
            "NOT_INSTALLED", "The package huggingface_hub is not installed.", "pip install 'aisp-mcp[hub]'"
        ) from error


def _folder_name(repository: str) -> str:
    """One folder's name below the chosen one. Raises UsageError BAD_REPOSITORY for anything but NAME or ORG/NAME."""
    if not _REPOSITORY.fullmatch(repository) or ".." in repository:
        raise UsageError(
            "BAD_REPOSITORY", f"{repository[:MAX_NAME]!r} is not NAME or ORG/NAME.", "Search for it first."
        )
    return repository.replace("/", "--")


def _check_inside(target: Path, names: Sequence[str]) -> None:
    """Refuse names that would leave the folder, because the listing is not trusted. Raises Refused UNSAFE_NAME."""
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            raise Refused("UNSAFE_NAME", f"The repository lists {name[:MAX_NAME]!r}, which leaves {target}.", None)


def _check_room(target: Path, missing: int) -> None:
    parent = target
    while not parent.exists():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    if missing * RESERVE > free:
        raise Refused(
            "DISK_FULL",
            f"The download needs {missing} bytes; {free} are free at {parent}.",
            "Choose files with include, or another folder.",
        )


def _unconfirmed(
    repository: str, patterns: Sequence[str], files: int, total: int, missing: int, target: Path
) -> Refused:
    needed = math.ceil(missing / 1e6)
    return Refused(
        "CONFIRM_FIRST",
        f"{repository} has {files} chosen files of {quantity(total, 'B')}; {quantity(missing, 'B')} would be fetched "
        f"into {target}. Nothing was downloaded.",
        f"Ask the user; if they agree, call again with max_mb={needed:g}.",
        [("aisp_hf", {"action": "download", "query": repository, "include": list(patterns), "max_mb": needed})],
    )


def _explained(error: Exception, what: str) -> AispError:
    """The library's errors in this project's words; others keep the name of their type. No headers, so no token."""
    name = type(error).__name__
    if name in ("RepositoryNotFoundError", "RevisionNotFoundError", "HFValidationError"):
        hint = "Check the name with action=search; a private or gated one needs HF_TOKEN."
        return NotFound("NO_SUCH_REPOSITORY", f"The hub has no {what!r}, or not for this token.", hint)
    if name == "GatedRepoError":
        return Refused("GATED", f"{what} is gated.", "Accept its terms on the hub, then set HF_TOKEN.")
    hint = "Is the hub reachable from here? HF_ENDPOINT names a mirror."
    return Unavailable("HUB_UNREACHABLE", f"The hub did not answer for {what!r}: {name}.", hint)


def _model(model: Any) -> HubModel:
    return HubModel(
        id=model.id,
        task=model.pipeline_tag,
        downloads=model.downloads,
        likes=model.likes,
        trending_score=model.trending_score,
        gated=bool(model.gated),
    )
