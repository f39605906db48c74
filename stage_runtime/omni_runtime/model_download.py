"""`python -m omni_runtime.model_download`: fetches a checkpoint before the stages of a pod start.

Pods of a pipeline share a volume and start together, so one of them downloads while the others
wait, and whoever comes later finds a marker and asks the hub nothing: a pod restarts while the hub
is down. The marker is written once every file has the size and the checksum that the hub names.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import disable_progress_bars
from huggingface_hub.utils import logging as hub_logging

from omni_config.errors import OmniError
from omni_runtime.download_progress import telling_progress
from omni_runtime.downloaded_files import Marker, RemoteFile, check, is_complete
from omni_runtime.logging import EventLogger, configure_logging

logger = EventLogger(__name__)

LOCK_FILE = ".omnipipe-download.lock"


class DownloadFailed(OmniError):
    """The checkpoint is not there whole; what came already is kept for the next attempt."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Download a checkpoint; returns 0 when it is whole, 1 when it is not."""
    given = _parser().parse_args(arguments)
    configure_logging("download", given.log_format)
    disable_progress_bars()  # made for terminals
    # What they log of requests and retries names addresses, and those of large files are signed.
    hub_logging.set_verbosity_error()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        token, port = os.environ.get("HF_TOKEN"), given.progress_port
        download(given.repo, given.revision, given.directory, token, port)
    except OmniError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def download(
    repo: str, revision: str, directory: Path, token: str | None = None, port: int | None = None
) -> None:
    """Fetch one revision of a repository of the hub into a directory, unless it is there.

    A branch is resolved once: the directory keeps the commit it was filled with.

    Args:
        token: of the hub; null asks as nobody, whatever this machine has stored.
        port: where to answer how far it is; null for nowhere.

    Raises:
        DownloadFailed: the hub refuses or cannot be reached, or a file is not what the hub says.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with _alone_in(directory):
        if is_complete(directory, repo, revision):
            logger.info("checkpoint is there", repo=repo, revision=revision)
            return
        try:
            commit, files = _listing(repo, revision, token)
            total = sum(file.size for file in files)
            logger.info("downloading", repo=repo, commit=commit, files=len(files), bytes=total)
            with telling_progress(directory, total, port):
                snapshot_download(repo, revision=commit, local_dir=directory, token=token or False)
            _compare(repo, commit, files, directory)
        except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
            raise DownloadFailed(f"{repo}@{revision}: {_reason(error)}") from None
        Marker(repo, revision, commit, {file.path: file.size for file in files}).write(directory)
    logger.info("checkpoint is whole", repo=repo, commit=commit, files=len(files))


def _listing(repo: str, revision: str, token: str | None) -> tuple[str, tuple[RemoteFile, ...]]:
    """Return the commit that a revision is now, and its files."""
    info = HfApi(token=token or False).model_info(repo, revision=revision, files_metadata=True)
    files = tuple(
        RemoteFile(
            path=one.rfilename,
            size=one.size or 0,
            sha256=one.lfs.sha256 if one.lfs is not None else None,
            git_id=one.blob_id,
        )
        for one in info.siblings or ()
    )
    if info.sha is None or not files:
        raise DownloadFailed(f"{repo}@{revision}: the hub lists no files")
    return info.sha, files


def _compare(repo: str, commit: str, files: tuple[RemoteFile, ...], directory: Path) -> None:
    logger.info("comparing checksums", files=len(files))
    problems = [problem for file in files if (problem := check(directory, file)) is not None]
    if problems:
        # They are removed: the next attempt fetches these files, and only these.
        raise DownloadFailed(f"{repo}@{commit}: {'; '.join(problems)}")


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; the kernel frees it when the process dies."""
    with (directory / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another pod downloads, waiting", directory=directory)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _reason(error: Exception) -> str:
    """Return what went wrong without addresses: those of large files carry signatures."""
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        hint = "; set a token that may read it" if status in (401, 403) else ""
        return f"the hub answered {status} ({type(error).__name__}){hint}"
    if isinstance(error, httpx.HTTPError):
        return f"the hub cannot be reached ({type(error).__name__})"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m omni_runtime.model_download",
        description="Downloads a checkpoint from the hub HF_ENDPOINT, in the name of HF_TOKEN.",
    )
    parser.add_argument("--repo", required=True, metavar="OWNER/NAME")
    parser.add_argument("--revision", default="main", help="branch, tag or commit")
    parser.add_argument("--directory", type=Path, required=True, help="where the files go")
    parser.add_argument(
        "--progress-port", type=int, metavar="PORT", help="where GET /progress is answered"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
