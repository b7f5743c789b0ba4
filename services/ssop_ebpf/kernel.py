"""The part of libbpf that is needed, by ctypes: load an object, attach to USDT probes, read and clear maps.

Needs libbpf.so.1 (Debian: libbpf1) and, for the kernel to take a uprobe, CAP_SYS_ADMIN.
"""

import ctypes as c
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_PROVIDER: Final = b"ssop"
_EVERY_PROCESS: Final = -1
_POINTER, _INT, _TEXT = c.c_void_p, c.c_int, c.c_char_p
_FUNCTIONS: Final = {
    "bpf_object__open_file": (_POINTER, [_TEXT, _POINTER]),
    "bpf_object__load": (_INT, [_POINTER]),
    "bpf_object__close": (None, [_POINTER]),
    "bpf_object__find_program_by_name": (_POINTER, [_POINTER, _TEXT]),
    "bpf_object__find_map_fd_by_name": (_INT, [_POINTER, _TEXT]),
    "bpf_program__attach_usdt": (_POINTER, [_POINTER, _INT, _TEXT, _TEXT, _TEXT, _POINTER]),
    "bpf_link__destroy": (_INT, [_POINTER]),
    "bpf_map_lookup_elem": (_INT, [_INT, _POINTER, _POINTER]),
    "bpf_map_update_elem": (_INT, [_INT, _POINTER, _POINTER, c.c_uint64]),
    "bpf_map_delete_elem": (_INT, [_INT, _POINTER]),
    "bpf_map_get_next_key": (_INT, [_INT, _POINTER, _POINTER]),
    "libbpf_num_possible_cpus": (_INT, []),
    "libbpf_set_print": (_POINTER, [_POINTER]),
}


class KernelError(OSError):
    """The kernel, or libbpf, refuses; the text says what was tried."""


def _open_library() -> Any:
    try:
        library = c.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise KernelError(f"libbpf.so.1 can't be loaded, so libbpf1 may be missing: {error}") from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    # What it would print on standard error is said by the errors raised here.
    library.libbpf_set_print(None)
    return library


class Kernel:
    """A loaded object. Not safe between threads."""

    def __init__(self, object_file: Path) -> None:
        """Raises KernelError."""
        self._library = _open_library()
        self._cpus = self._library.libbpf_num_possible_cpus()
        self._object = self._check(self._library.bpf_object__open_file(os.fsencode(object_file), None), object_file)
        try:
            if self._library.bpf_object__load(self._object):
                raise self._error(f"load {object_file}")
        except KernelError:
            self._library.bpf_object__close(self._object)
            raise

    def close(self) -> None:
        """Unload; what is attached must be detached before."""
        self._library.bpf_object__close(self._object)

    def attach(self, probe: str, path: str) -> int:
        """Have the program of a probe's name run where any process hits it in the file; what `detach` takes.

        Raises KernelError.
        """
        name = probe.encode()
        program = self._check(self._library.bpf_object__find_program_by_name(self._object, name), probe)
        link = self._library.bpf_program__attach_usdt(program, _EVERY_PROCESS, os.fsencode(path), _PROVIDER, name, None)
        return self._check(link, f"{probe} in {path}")

    def detach(self, link: int) -> None:
        """Stop. The counts stay."""
        self._library.bpf_link__destroy(link)

    def put(self, map_name: str, key: int, values: list[int]) -> None:
        """Set an entry of an array, in 64-bit words. Raises KernelError."""
        words = (c.c_uint64 * len(values))(*values)
        if self._library.bpf_map_update_elem(self._map(map_name), c.byref(c.c_uint32(key)), words, 0):
            raise self._error(f"write {map_name}")

    def read_array(self, map_name: str, key: int, words: int) -> list[int]:
        """An entry of a per-CPU array in 64-bit words, summed over the CPUs. Raises KernelError."""
        found = self._sum(map_name, c.c_uint32(key), words)
        if found is None:
            raise self._error(f"read {map_name}")
        return found

    def read_pairs(self, map_name: str, words: int) -> Iterator[tuple[tuple[int, int], list[int]]]:
        """The entries of a per-CPU hash whose keys are two 32-bit numbers, summed over the CPUs."""
        pair = c.c_uint32 * 2
        key, following = None, pair()
        file = self._map(map_name)
        while self._library.bpf_map_get_next_key(file, key, following) == 0:
            key = pair(*following)
            values = self._sum(map_name, key, words)
            if values is not None:
                yield (key[0], key[1]), values

    def delete_pair(self, map_name: str, key: tuple[int, int]) -> None:
        """Forget an entry; one that is not there is no error."""
        self._library.bpf_map_delete_elem(self._map(map_name), (c.c_uint32 * 2)(*key))

    def _sum(self, map_name: str, key: Any, words: int) -> list[int] | None:
        buffer = (c.c_uint64 * (words * self._cpus))()
        if self._library.bpf_map_lookup_elem(self._map(map_name), c.byref(key), buffer):
            return None
        return [sum(buffer[word::words]) for word in range(words)]

    def _map(self, name: str) -> int:
        file: int = self._library.bpf_object__find_map_fd_by_name(self._object, name.encode())
        if file < 0:
            raise KernelError(f"the object has no map {name}")
        return file

    def _check(self, pointer: int | None, what: object) -> int:
        if not pointer:
            raise self._error(str(what))
        return pointer

    def _error(self, what: str) -> KernelError:
        number = c.get_errno()
        return KernelError(number, f"{what}: {os.strerror(number)}")
