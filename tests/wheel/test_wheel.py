"""A wheel holds the whole package and needs no compiler: installed into an empty environment, the README runs there."""

import ast
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
import zipfile
from pathlib import Path

import pytest

from wheel.conftest import BUILD_FILES, PROBLEM, ROOT, sources

EXTENSIONS = {f"tether/kernels/{name}{sysconfig.get_config_var('EXT_SUFFIX')}" for name in ("_baseline", "_avx2")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("wheel"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="manylinux wheels are for Linux"),
]


def without_compiler(folder):
    """An environment whose path is one folder, and which knows nothing of this repository."""
    dropped = ("PATH", "CC", "PYTHONPATH", "VIRTUAL_ENV", "PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")
    kept = {name: v for name, v in os.environ.items() if name not in dropped and not name.startswith("TETHER")}
    return {**kept, "PATH": str(folder), "PYTHONHASHSEED": "0"}


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run a command of an environment that holds the wheel and what it requires, far from the repository."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "venv", with_pip=True)
    programs = home / "venv" / "bin"
    environment = without_compiler(programs)
    assert not any(shutil.which(name, path=str(programs)) for name in ("cc", "gcc", "clang", "zig", "make", "cython"))

    def run(command, *arguments):
        done = subprocess.run(
            [programs / command, *arguments], cwd=home, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("python", "-m", "pip", "install", "--only-binary=:all:", "-c", ROOT / "constraints.txt", wheel)
    return run


def test_the_wheel_holds_every_file_of_the_package_and_both_extensions(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if not name.endswith("/")}
    metadata = {name for name in inside if name.split("/")[0].endswith(".dist-info")}
    assert inside - metadata == {*sources(), *EXTENSIONS}


def test_the_wheel_runs_on_a_c_library_of_2018(wheel):
    version = re.search(r"manylinux_2_(\d+)_", wheel.name)
    assert version, wheel.name
    assert int(version.group(1)) <= 28


def test_the_machine_code_names_no_folder_of_the_machine_that_built_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        for name in EXTENSIONS:
            content = archive.read(name)
            for folder in (ROOT, Path.home(), Path(sys.base_prefix)):
                assert str(folder).encode() + b"/" not in content, (name, folder)


def test_the_wheel_is_what_runs(installed):
    said = installed("python", "-c", "import tether.kernels.compiled as c; print(c.__file__, c.EXTENSION.__name__)")
    file, extension = said.split()
    assert "site-packages" in file
    assert extension in ("tether.kernels._baseline", "tether.kernels._avx2")
    assert "reproduce" in installed("tether", "--help")


def test_the_readme_runs_without_a_compiler(installed, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    blocks = [block for block in blocks if "gym_electric_motor" not in block]  # another package's simulator
    assert installed("python", "-c", "\n".join([f"import os; os.chdir({str(tmp_path)!r})", *blocks])).strip()


def test_the_examples_are_in_the_wheel(installed, tmp_path):
    assert "gym_frozen_lake" in installed("tether", "examples")
    installed("tether", "examples", "copy", "service", "--to", str(tmp_path))
    assert (tmp_path / "service" / "building.py").exists()


def test_the_wheel_gives_the_same_bits_as_the_extensions_built_in_place(installed):
    """zig compiles the wheel; in place it is the machine's own compiler, where there is one."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); from kernels.bits import digests; print(digests(10))"
    )
    here = {**os.environ, "PYTHONHASHSEED": "0"}
    in_place = subprocess.run([sys.executable, "-c", program], env=here, capture_output=True, text=True, check=True)
    assert ast.literal_eval(installed("python", "-c", program)) == ast.literal_eval(in_place.stdout)


def test_a_source_distribution_holds_what_the_build_needs(tmp_path):
    copy = tmp_path / "copy"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    command = "import build_backend, sys; print(build_backend.build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", command, tmp_path], cwd=copy, capture_output=True, check=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert inside >= {*(str(file.relative_to(ROOT)) for file in sources().values()), *BUILD_FILES}
    assert not [name for name in inside if name.endswith((".c", ".pyx", ".so"))]
    assert not (copy / "build").exists(), "metadata alone must not translate or compile anything"


def test_the_steps_of_the_dockerfile_serve(wheel, tmp_path):
    """Where no container can be built: its first RUN in an empty environment, then its ENTRYPOINT and its HEALTHCHECK,
    without a home and without the repository. That it runs as any user is in tests/service/test_service_start.py."""
    docker = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    extras = re.search(r'PACKAGE="tether-rl(\[.+?\])"', docker).group(1)
    venv.create(tmp_path / "venv", with_pip=True)
    path = {"PATH": f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin", "HOME": "/nowhere"}
    pinned = {**os.environ, **path, "PACKAGE": f"{wheel}{extras}", "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    subprocess.run(["sh", "-c", re.search(r"^RUN (pip .+)$", docker, re.MULTILINE).group(1)], env=pinned, check=True)
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "building.py").write_text(PROBLEM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "service" / "service.toml").write_text(f'problem = "building:problem"\nport = {port}\n')
    start = json.loads(re.search(r"^ENTRYPOINT (.+)$", docker, re.MULTILINE).group(1))
    probe = json.loads(re.search(r"^HEALTHCHECK .*CMD\s+(\[.+\])$", docker, re.MULTILINE).group(1))
    probe = [part.replace("8080", str(port)) for part in probe]
    served = subprocess.Popen(["env", *start, "service.toml"], cwd=tmp_path / "service", env=path)
    try:
        give_up = time.monotonic() + 120.0
        while subprocess.run(["env", *probe], env=path, capture_output=True, check=False).returncode:
            assert served.poll() is None and time.monotonic() < give_up
            time.sleep(0.2)
    finally:
        served.terminate()
        assert served.wait(30) in (0, -signal.SIGTERM)  # uvicorn ends, and then passes the signal on
