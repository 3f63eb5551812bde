"""The first program of a pod, sent as text: unpack what was mounted, and continue as the package that it contains.

It may run under any Python, and imports nothing but the standard library. A reason why the job cannot run is one line.
"""

import glob
import hashlib
import io
import json
import os
import sys
import tarfile

ERROR = "aisp-error "  # begins the line with a reason


def refuse(code: str, message: str) -> None:
    """End with a sentence for whoever sent the job."""
    print(ERROR + json.dumps({"code": code, "message": message}))
    sys.exit(1)


def main() -> None:
    """Unpack, and replace this process."""
    if sys.version_info < (3, 11):  # noqa: UP036
        refuse("HOST_PYTHON", "aisp needs Python 3.11, and the image has " + sys.version.split()[0])
    from importlib import metadata

    root = os.environ["AISP_POD"]
    data = b""
    for path in sorted(glob.glob(root + "/parts/*")):
        with open(path, "rb") as part:
            data += part.read()
    if hashlib.sha256(data).hexdigest() != os.environ["AISP_POD_SHA"]:
        refuse("HOST_FAILED", "what is mounted in the pod is not what was sent")
    lacking: list[str] = []
    for name in os.environ["AISP_POD_NEEDS"].split():
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            lacking.append(name)
    if lacking:
        refuse("HOST_LACKS", "the image lacks " + ", ".join(lacking) + ": pip install " + " ".join(lacking))
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            archive.extractall(root + "/job", filter="tar")
    except OSError as error:
        refuse("HOST_FULL", "the pod cannot unpack the job: " + str(error.strerror or error))
    os.environ["PYTHONPATH"] = root + "/job/0"
    os.environ["PYTHONSAFEPATH"] = "1"
    os.execv(sys.executable, [sys.executable, "-P", "-m", "aisp_mcp.jobs.pod"])


if __name__ == "__main__":
    main()
