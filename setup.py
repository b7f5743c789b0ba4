"""How what pyproject.toml declares is compiled: on all cores, and without what a debugger would want of it."""

import os
from typing import Final

from Cython.Build import cythonize
from setuptools import setup
from setuptools.command.build_ext import build_ext

# A pointer of the wrong type is a method that was taken for a function: newer compilers refuse it, older ones warn.
_FLAGS: Final = ("-g0", "-Werror=incompatible-pointer-types")
# Modules that are compiled as they stand call the interpreter all the time: what -O3 adds is time to build.
_CALM: Final = "-O2"


class BuildExtensions(build_ext):
    """Writes the C of all modules in processes, and compiles it in threads."""

    def build_extensions(self) -> None:
        """See build_ext."""
        jobs = len(os.sched_getaffinity(0))
        written = cythonize(self.extensions, nthreads=jobs, language_level=3, quiet=True, force=self.force)
        self.parallel = self.parallel or jobs
        for extension, as_c in zip(self.extensions, written, strict=True):
            # It is written anew where any declaration that it draws on has changed.
            extension.depends = [*extension.depends, *as_c.sources]
            is_python = all(source.endswith(".py") for source in extension.sources)
            # What the caller sets has the last word.
            extra = (*_FLAGS, *((_CALM,) if is_python else ()), *os.environ.get("CFLAGS", "").split())
            extension.extra_compile_args = [*extra, *extension.extra_compile_args]
        super().build_extensions()


# Processes that write C may read this file, too.
if __name__ == "__main__":
    setup(cmdclass={"build_ext": BuildExtensions})
