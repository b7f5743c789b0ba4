"""A plugin of pytest: modules that are compiled as they stand come from their sources, as where nothing was built."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class _Sources(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = fullname.rpartition(".")[2]
        for folder in map(Path, path or ()):
            if (source := folder / f"{name}.py").exists() and any(folder.glob(f"{name}.*.so")):
                return importlib.util.spec_from_file_location(fullname, source)
        return None


sys.meta_path.insert(0, _Sources())
