"""How what pyproject.toml declares is compiled: on all cores, and without what a debugger would want of it."""

import os
from pathlib import Path
from typing import Final

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# A pointer of the wrong type is a method that was taken for a function: newer compilers refuse it, older ones warn.
_FLAGS: Final = ("-g0", "-Werror=incompatible-pointer-types")
# Modules that are compiled as they stand call the interpreter all the time: what -O3 adds is time to build.
_CALM: Final = "-O2"


class BuildExtensions(build_ext):
    """Writes the C of all modules in processes, and compiles it in threads."""

    def build_extensions(self) -> None:
        """See build_ext."""
        self._built: set[str] = set()
        # By their sources: those of the C that is written have other names.
        declared = {Path(extension.sources[0]).with_suffix(""): extension.name for extension in self.extensions}
        jobs = len(os.sched_getaffinity(0))
        roots = sorted({folder for extension in self.extensions for folder in extension.include_dirs})
        written = cythonize(self.extensions, nthreads=jobs, include_path=roots, language_level=3, force=self.force)
        self.parallel = self.parallel or jobs
        for extension, as_c in zip(self.extensions, written, strict=True):
            # It is written anew where any declaration that it draws on has changed.
            extension.depends = [*extension.depends, *as_c.sources]
            is_python = all(source.endswith(".py") for source in extension.sources)
            # What the caller sets has the last word.
            extra = (*_FLAGS, *((_CALM,) if is_python else ()), *os.environ.get("CFLAGS", "").split())
            extension.extra_compile_args = [*extra, *extension.extra_compile_args]
        super().build_extensions()
        self._drop_above(declared)

    def build_extension(self, extension: Extension) -> None:
        """See build_ext."""
        super().build_extension(extension)
        self._built.add(extension.name)

    def _drop_above(self, declared: dict[Path, str]) -> None:
        """Drop what is compiled with types of a module that could not be: it would not load, where its source runs."""
        above = {
            extension.name: {declared.get(Path(path).with_suffix("")) for path in extension.depends} - {extension.name}
            for extension in self.extensions
            if extension.optional
        }
        missing = set(declared.values()) - self._built
        while lost := {name for name, below in above.items() if name not in missing and below & missing}:
            for name in lost:
                Path(self.get_ext_fullpath(name)).unlink()
                self.warn(f'extension "{name}" is left out: it stands above one that could not be built')
            missing |= lost


# The processes that write C may import this file.
if __name__ == "__main__":
    setup(cmdclass={"build_ext": BuildExtensions})
