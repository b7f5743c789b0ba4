"""How what pyproject.toml declares is compiled: on all cores, and without what a debugger would want of it.

A module that lies compiled beside its source, newer than all that it is made of, is taken as it is, so that a second
environment of a tree costs no second build. Wheels are always compiled, and so is what the caller has orders for.
"""

import os
from pathlib import Path
from typing import Final

import Cython
from Cython.Build import cythonize
from Cython.Build.Dependencies import DependencyTree
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

# A pointer of the wrong type is a method that was taken for a function: newer compilers refuse it, older ones warn.
_FLAGS: Final = ("-g0", "-Werror=incompatible-pointer-types")
# Modules that are compiled as they stand call the interpreter all the time: what -O3 adds is time to build.
_CALM: Final = "-O2"
_ORDERS: Final = ("CFLAGS", "CPPFLAGS", "LDFLAGS")
"""Variables by which a caller says how to compile."""
_RULES: Final = ("pyproject.toml", "setup.py")
"""What every module is made by."""
_OF_CYTHON: Final = Path(Cython.__file__).parent
_LONG_AGO_S: Final = 400_000_000.0
"""A time that archives can write, before that of any source."""


def _find_age(tree: DependencyTree, path: str) -> tuple[float, str]:
    """When a declaration was written. That one of Cython's own was just installed makes it no other than before.

    C that another version of Cython has written is written anew in any case.
    """
    return (_LONG_AGO_S if Path(path).is_relative_to(_OF_CYTHON) else tree.timestamp(path)), path


DependencyTree.extract_timestamp = _find_age


class BuildExtensions(build_ext):
    """Writes the C of all modules in processes, and compiles it in threads."""

    def run(self) -> None:
        """See build_ext."""
        # While it runs, setuptools says of no build that it is one in place.
        self._is_in_place = bool(self.inplace)
        self._has_orders = any(os.environ.get(name) for name in _ORDERS)
        super().run()

    def build_extensions(self) -> None:
        """See build_ext."""
        self._built: set[str] = set()
        # By their sources: those of the C that is written have other names.
        declared = {Path(extension.sources[0]).with_suffix(""): extension.name for extension in self.extensions}
        jobs = len(os.sched_getaffinity(0))
        roots = sorted({folder for extension in self.extensions for folder in extension.include_dirs})
        written = cythonize(self.extensions, nthreads=jobs, include_path=roots, language_level=3, force=self.force)
        self.parallel = self.parallel or jobs
        # An earlier build may have left modules that others would have.
        self.force = self.force or self._has_orders or not self._is_in_place
        for extension, as_c in zip(self.extensions, written, strict=True):
            is_python = all(source.endswith(".py") for source in extension.sources)
            # C is written anew where a declaration that it draws on has changed; what it includes is looked at here.
            extension.sources = as_c.sources
            extension.depends = as_c.depends
            # What the caller sets has the last word.
            extra = (*_FLAGS, *((_CALM,) if is_python else ()), *os.environ.get("CFLAGS", "").split())
            extension.extra_compile_args = [*extra, *extension.extra_compile_args]
            if not self.force:
                self._take(extension)
        super().build_extensions()
        self._drop_above(declared)

    def build_extension(self, extension: Extension) -> None:
        """See build_ext."""
        super().build_extension(extension)
        self._built.add(extension.name)
        if self._has_orders:
            # For whoever gave the orders alone: to others it is older than its source.
            os.utime(self.get_ext_fullpath(extension.name), (_LONG_AGO_S, _LONG_AGO_S))

    def copy_extensions_to_source(self) -> None:
        """See build_ext."""
        super().copy_extensions_to_source()
        for extension in self.extensions:
            if extension.name not in self._built:
                # Likewise: it would win over its source.
                self._beside(extension).unlink(missing_ok=True)

    def _beside(self, extension: Extension) -> Path:
        """Where a module lies that was built in place: with its C, that is, with its source."""
        return Path(extension.sources[0]).with_name(Path(self.get_ext_fullpath(extension.name)).name)

    def _take(self, extension: Extension) -> None:
        """Take what lies in place for what would be built, unless something that it is made of is newer."""
        lying = str(self._beside(extension))
        if not newer_group([*extension.sources, *extension.depends, *_RULES], lying):
            built = self.get_ext_fullpath(extension.name)
            self.mkpath(str(Path(built).parent))
            self.copy_file(lying, built)

    def _drop_above(self, declared: dict[Path, str]) -> None:
        """Drop what is compiled with types of a module that could not be: it would not load, where its source runs."""
        above = {
            extension.name: {declared.get(Path(path).with_suffix("")) for path in extension.depends} - {extension.name}
            for extension in self.extensions
            if extension.optional
        }
        missing = set(declared.values()) - self._built
        for name in missing:
            # One of an earlier build.
            Path(self.get_ext_fullpath(name)).unlink(missing_ok=True)
        while lost := {name for name, below in above.items() if name not in missing and below & missing}:
            for name in lost:
                Path(self.get_ext_fullpath(name)).unlink()
                self.warn(f'extension "{name}" is left out: it stands above one that could not be built')
            missing |= lost
            self._built -= lost


# The processes that write C may import this file.
if __name__ == "__main__":
    setup(cmdclass={"build_ext": BuildExtensions})
