"""The container image, built from deploy/Dockerfile and run as deploy/ runs it, where podman is at hand.

No registry of images is asked: in place of python:3.12-slim stands an image of this machine's own Python, C library and
shell, and the wheels that pip would fetch are handed in."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import pytest

from wheel.conftest import PROBLEM, ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("wheel"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("podman", "runc"))) or os.geteuid() != 0,
        reason="needs podman and runc, and to be root: apt-get install podman runc",
    ),
]

FEW = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""podman's own defaults may be more than this machine allows."""

HARDENED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
"""As compose.yaml and kubernetes.yaml have it; without the /tmp that podman, unlike others, would add."""

ASK = """
from tether.service.client import Client
with Client("http://127.0.0.1:8080", token=open("token").read().strip()) as client:
    decision = client.decide(0)
    client.record(decision.id, 0.5, 0.1)
    print(client.status()["counts"]["decisions"], decision.logged)
"""


def base_files(root):
    """Into `root`: this Python at /usr/local, the programs that RUN needs, and all libraries that they load."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library, programs = Path(sys.base_prefix) / "lib" / version, root / "usr" / "local" / "bin"
    left_out = shutil.ignore_patterns("test", "site-packages", "__pycache__", "config-*", "idlelib")
    shutil.copytree(library, root / "usr" / "local" / "lib" / version, ignore=left_out)
    programs.mkdir(parents=True)
    shutil.copy(Path(sys.base_prefix) / "bin" / version, programs / version)
    for name in ("python", "python3"):
        (programs / name).symlink_to(version)
    tools = [Path(shutil.which(name)) for name in ("sh", "mkdir", "chown")]
    (root / "bin").mkdir()
    for tool in tools:
        shutil.copy(tool, root / "bin" / tool.name)
    loaded = [programs / version, *tools, *library.glob("lib-dynload/*.so"), *Path(numpy.__file__).parent.rglob("*.so")]
    told = subprocess.run(["ldd", *map(str, loaded)], capture_output=True, text=True, check=False).stdout
    found = {Path(name) for name in re.findall(r"(/\S+) \(0x", told)}
    beside = next(each for each in found if each.name == "libc.so.6").parent  # wheels may load more of it
    found |= {each for name in ("rt", "dl", "pthread", "util", "resolv") for each in beside.glob(f"lib{name}.so.*")}
    for each in found:
        if not each.is_relative_to(sys.prefix):
            (root / each.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
            shutil.copy(each, root / each.relative_to("/"))
    (root / "tmp").mkdir(mode=0o1777)


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    """Run podman with images and containers in a folder of their own; answers what it prints."""
    home, run_root = tmp_path_factory.mktemp("podman"), Path(tempfile.mkdtemp())  # podman wants a short path there
    driver = "overlay" if "overlay" in Path("/proc/filesystems").read_text() else "vfs"
    kept = ("--root", home / "images", "--runroot", run_root, "--storage-driver", driver)

    def run(*arguments, check=True):
        command = ["podman", *kept, "--runtime", "runc", "--cgroup-manager", "cgroupfs", *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    yield run
    run("rm", "--all", "--force", "--time", "0", check=False)
    run("rmi", "--all", "--force", check=False)
    shutil.rmtree(run_root, ignore_errors=True)


@pytest.fixture(scope="module")
def image(podman, wheel, tmp_path_factory):
    """The name of the image that deploy/Dockerfile makes."""
    folder = tmp_path_factory.mktemp("context")
    base_files(folder / "root")
    steps = ["FROM scratch", "COPY root /", 'RUN ["python", "-m", "ensurepip", "--default-pip"]']
    (folder / "Containerfile").write_text("\n".join([*steps, "ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels", ""]))
    extras = re.search(r'PACKAGE="tether-rl(\[.+?\])"', (ROOT / "deploy" / "Dockerfile").read_text()).group(1)
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "-c", ROOT / "constraints.txt"]
    fetched = subprocess.run([*pip, "-d", wheels, f"{wheel}{extras}"], capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"the package registry does not answer: {fetched.stderr[-200:]}")
    built = ("build", "--isolation", "chroot", "--format", "docker", "--layers=false", *FEW)
    podman(*built, "-t", "base", folder)
    tried = podman("run", "--rm", "--network", "none", *FEW, "base", "python", "-c", "pass", check=False)
    if tried.returncode:
        pytest.skip(f"podman cannot run a container here: {tried.stderr[-200:]}")
    package = f"PACKAGE=/wheels/{wheel.name}{extras}"
    mounted = ("-v", f"{wheels}:/wheels:ro", "--build-arg", package)
    podman(*built, "--from", "localhost/base", *mounted, "-t", "tether", ROOT / "deploy")
    return "tether"


@pytest.fixture
def service(tmp_path):
    """The folder that is mounted at /service, which belongs to the image's user."""
    folder = tmp_path / "service"
    folder.mkdir()
    (folder / "building.py").write_text(PROBLEM)
    token = [sys.executable, "-m", "tether", "token", "new", "tokens.json", "--name", "controller"]
    roles = [part for role in ("decide", "record", "read") for part in ("--role", role)]
    made = subprocess.run([*token, *roles], cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / "token").write_text(made)
    (folder / "service.toml").write_text(
        'problem = "building:problem"\nhost = "0.0.0.0"\ntokens = "tokens.json"\nhead_note = "/notes/log.head"\n'
    )
    for each in (folder, *folder.iterdir()):
        os.chown(each, 65532, 65532)
    return folder


def test_the_image_is_built_and_serves_as_nobody_on_a_read_only_root(podman, image, service):
    mounts = ("-v", f"{service}:/service", "-v", "notes:/notes")
    for decisions in (1, 2):  # the second time on the log that the first left
        name = podman("run", "-d", "--network", "none", *FEW, *HARDENED, *mounts, image).stdout.strip()
        give_up = time.monotonic() + 120.0
        while podman("healthcheck", "run", name, check=False).returncode:
            state = podman("inspect", "-f", "{{.State.Status}}", name).stdout.strip()
            assert state == "running" and time.monotonic() < give_up, podman("logs", name).stderr
            time.sleep(0.5)
        assert podman("exec", name, "python", "-c", ASK).stdout.split() == [str(decisions), "True"]
        seen = podman("exec", name, "sh", "-c", "echo a > /usr/a || echo b > /tmp/b || mkdir /c", check=False)
        assert seen.returncode and seen.stderr.count("Read-only file system") == 3, seen.stderr
        assert podman("exec", name, "python", "-c", "import os; print(os.getuid())").stdout == "65532\n"
        podman("stop", "--time", "30", name)
        told = podman("logs", name).stderr
        assert "Finished server" in told and "no snapshot could be saved" not in told and "Traceback" not in told
        lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        assert lines and all("time" in line for line in lines)
        podman("rm", name)
    assert (service / "decisions.db").stat().st_uid == 65532
