"""Build the kernels: translated by Cython, compiled for every processor and, on x86-64, for those with AVX2.

All of it happens in `build_ext`; commands that only ask for metadata stay fast. What is made on the way is kept in
build/kernels and made again when its text would change. Where there is no C compiler, the one of the `ziglang` package
is used (build_backend.py asks for it).
"""

import filecmp
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CCompilerError, ExecError
from setuptools.modified import newer_group

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_kernels
from build_backend import ZIG, own_compiler

FLAGS = ["-fno-fast-math", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-g0"]
"""The order of every sum is fixed and products are rounded before they are added: all extensions give the same bits."""

X86_64_V3 = ["-mavx2", "-mbmi", "-mbmi2", "-mf16c", "-mfma", "-mlzcnt", "-mmovbe"]
"""-march=x86-64-v3 in words that gcc before 11 knows too. zig has a name of its own for it."""

TARGETS = {"_baseline": [], "_avx2": X86_64_V3} if platform.machine() in ("x86_64", "AMD64") else {"_baseline": []}
"""The extensions of tether.kernels, and what the compiler may use beyond the basic instructions."""

MADE = Path("build") / "kernels"


class BuildKernels(build_ext):
    """build_ext that translates the kernels first, compiles the extensions side by side, and says what is missing."""

    def finalize_options(self) -> None:
        """One thread per extension. What is built for use in place is kept apart from what goes into wheels."""
        super().finalize_options()
        self.parallel = self.parallel or len(TARGETS)
        if self.inplace:
            self.build_lib = str(MADE / sys.implementation.cache_tag)

    def get_source_files(self) -> list[str]:
        """Nothing: the C files are made here, so source distributions do not carry them."""
        return []

    def run(self) -> None:
        """Build with the compiler that is here: setuptools would insist on the one that Python was built with."""
        if own_compiler():
            os.environ["CC"] = own_compiler()
        super().run()

    def build_extensions(self) -> None:
        """Compile whichever extension is missing or older than its sources."""
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            version = sysconfig.get_python_version()
            raise failure(
                f"Python.h of Python {version} is missing. Install the headers: the package python3-dev on Debian and "
                f"Ubuntu (python{version}-dev for a Python beside the system's), python3-devel on Fedora."
            )
        if own_compiler() is None:
            self.use_zig()
        elif not shutil.which(shlex.split(own_compiler())[0]):
            raise failure(f"the C compiler {own_compiler()!r} that CC names is not on the path.")
        MADE.mkdir(parents=True, exist_ok=True)
        from Cython import __version__

        text = f"# Cython {__version__}\n{build_kernels.translated()}"
        for name in TARGETS:
            path = MADE / f"{name}.pyx"
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
        super().build_extensions()

    def use_zig(self) -> None:
        """Compile with zig, for a C library as old as that of manylinux2014, whatever this machine has."""
        if find_spec("ziglang") is None:
            raise failure(f'there is no C compiler on the path. Install one (gcc or clang), or `pip install "{ZIG}"`.')
        os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(Path("build", "zig").absolute()))
        libc = "musl" if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "") else "gnu.2.17"
        target = ["-target", f"{platform.machine()}-linux-{libc}"]  # without one, zig compiles for this very processor
        zig = [sys.executable, "-m", "ziglang", "cc", *target]
        self.compiler.set_executables(
            compiler=zig, compiler_so=[*zig, "-fPIC", "-DNDEBUG"], linker_so=[*zig, "-shared"], linker_exe=zig
        )
        for extension in self.extensions:
            if X86_64_V3[0] in extension.extra_compile_args:
                extension.extra_compile_args = [*FLAGS, "-mcpu=x86_64_v3"]

    def copy_file(self, infile: str, outfile: str, *args: object, **options: object) -> tuple[str, bool]:
        """Leave an extension alone that is in place already: somebody may be importing it."""
        if Path(outfile).exists() and filecmp.cmp(infile, outfile, shallow=False):
            return outfile, False
        return super().copy_file(infile, outfile, *args, **options)

    def build_extension(self, extension: Extension) -> None:
        """Translate one extension to C and compile it, unless it is newer than both; runs in a thread of its own."""
        source = Path(extension.sources[0])
        cython = source.with_suffix(".pyx")
        if not source.exists() or source.stat().st_mtime < cython.stat().st_mtime:
            unfinished = source.with_suffix(".unfinished.c")
            command = [sys.executable, "-m", "cython", "-3", str(cython), "-o", str(unfinished)]
            if subprocess.run(command, check=False).returncode:
                raise failure("Cython does not accept the kernels; its messages are above.")
            unfinished.replace(source)
        if not self.force and not newer_group([str(source), *extension.depends], self.get_ext_fullpath(extension.name)):
            return
        print(f"compiling {extension.name}", flush=True)
        try:
            super().build_extension(extension)
        except (CCompilerError, ExecError) as error:
            raise failure("the C compiler failed; its messages are above.") from error


class BuildPackage(build_py):
    """build_py that puts the examples into the wheel, for `tether examples`; a clone has them in its own folder."""

    def run(self) -> None:
        """Copy the package, then the examples beside it."""
        super().run()
        if not self.editable_mode:
            kept = shutil.ignore_patterns("__pycache__")
            shutil.copytree("examples", Path(self.build_lib, "tether", "examples"), ignore=kept, dirs_exist_ok=True)


def failure(message: str) -> SystemExit:
    """The end of the build, with one message and no traceback."""
    return SystemExit(f"\ntether-rl cannot be built: {message}")


setup(
    ext_modules=[
        Extension(
            f"tether.kernels.{name}",
            [str(MADE / f"{name}.c")],
            depends=["setup.py"],
            extra_compile_args=[*FLAGS, *wider],
            libraries=["m"],
        )
        for name, wider in TARGETS.items()
    ],
    cmdclass={"build_ext": BuildKernels, "build_py": BuildPackage},
)
