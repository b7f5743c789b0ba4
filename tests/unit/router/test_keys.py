"""Keys from a file that changes, and from a store that may not answer."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from helpers.as_written import run_both_ways
from helpers.eventually import eventually
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.keys_pb2 import KeyInfo, KeyRecord, ReadKeysRequest, ReadKeysResponse
from ssop_chassis.api_keys import hash_key, load_keys, make_key
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Secrets
from ssop_router.dependency import Unavailable
from ssop_router.keys import Keys, KeysFile, KeysStore

way = run_both_ways("ssop_router.keys", "Keys")
SECRET = bytes(range(32))
MAX_AGE_MS = 60_000
R = ErrorReason


def entry(key_id: str, key: str) -> str:
    return f'[[keys]]\nid = "{key_id}"\ntenant = "acme"\nscopes = ["lite"]\nhmac = "{hash_key(key, SECRET).hex()}"\n'


class Failures:
    count = 0

    def __call__(self) -> None:
        self.count += 1


class Store:
    """A store of keys that can go away, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.is_gone = False
        self.is_old = False
        self.garbage = b""
        self.version = 0
        self.records: dict[str, KeyRecord] = {}
        self.replies = 0

    def put(self, key_id: str, key: str, *, revoked_at_ms: int = 0) -> None:
        self.version += 1
        self.records[key_id] = KeyRecord(
            info=KeyInfo(key_id=key_id, tenant="shop", scopes=["full"], revoked_at_ms=revoked_at_ms),
            hmac=hash_key(key, SECRET),
        )

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: Mapping[str, str | bytes]
    ) -> bytes:
        if self.is_gone:
            raise Unavailable("keys")
        if self.is_old:
            raise Unavailable("keys") from MeshError(R.ERROR_REASON_UNSUPPORTED, "no such method")
        if self.garbage:
            return self.garbage
        self.replies += 1
        response = ReadKeysResponse(version=self.version)
        if ReadKeysRequest.FromString(request).known_version != self.version:
            response.records.extend(self.records.values())
        return response.SerializeToString()


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def store() -> Store:
    return Store()


def open_keys(
    path: Path, failures: Failures, store: Store | None = None, on_fault: Callable[[], None] = lambda: None
) -> Keys:
    copy = None
    if store is not None:
        copy = KeysStore(
            store,  # type: ignore[arg-type]
            metadata=dict,
            timeout_s=1,
            clock_ms=lambda: store.now_ms,
            on_failure=failures,
        )
    file, secrets = KeysFile(path, on_failure=failures), Secrets(SECRET)
    return Keys(file, copy, secrets, max_age_ms=MAX_AGE_MS, now_ms=lambda: 1_000, on_fault=on_fault)


def outcome(keys: Keys, key: str) -> str:
    """The tenant, or the reason of the refusal."""
    try:
        return keys.authenticate({"authorization": f"Bearer {key}"}).tenant
    except MeshError as error:
        return error.reason_name


async def test_revoked_key_ends_with_the_next_look(tmp_path: Path, failures: Failures) -> None:
    path, one, two = tmp_path / "keys.toml", make_key("a"), make_key("b")
    path.write_text(entry("a", one) + entry("b", two))
    keys = open_keys(path, failures)
    assert outcome(keys, one) == "acme"
    path.write_text(entry("b", two))
    await keys.refresh()
    assert [outcome(keys, one), outcome(keys, two)] == ["KEY_INVALID", "acme"]


async def test_file_that_is_broken_leaves_the_last_keys_and_is_counted(tmp_path: Path, failures: Failures) -> None:
    path, key = tmp_path / "keys.toml", make_key("a")
    path.write_text(entry("a", key))
    keys = open_keys(path, failures)
    path.write_text("[[keys]]\nid = 3\n")
    await keys.refresh()
    assert outcome(keys, key) == "acme"
    assert failures.count == 1


async def test_file_that_is_gone_leaves_the_last_keys(tmp_path: Path, failures: Failures) -> None:
    path, key = tmp_path / "keys.toml", make_key("a")
    path.write_text(entry("a", key))
    keys = open_keys(path, failures)
    path.unlink()
    await keys.refresh()
    assert outcome(keys, key) == "acme"
    assert failures.count == 1


async def test_broken_file_that_is_mended_is_read(tmp_path: Path, failures: Failures) -> None:
    path, one, two = tmp_path / "keys.toml", make_key("a"), make_key("b")
    path.write_text(entry("a", one))
    keys = open_keys(path, failures)
    path.write_text("nonsense")
    await keys.refresh()
    path.write_text(entry("b", two))
    await keys.refresh()
    assert outcome(keys, two) == "acme"


def test_missing_key_is_said(tmp_path: Path, failures: Failures) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("")
    with pytest.raises(MeshError) as caught:
        open_keys(path, failures).authenticate({})
    assert caught.value.reason == R.ERROR_REASON_KEY_MISSING


@pytest.fixture
def empty_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text("")
    return path


async def test_key_of_the_store_is_good_after_one_look(empty_file: Path, failures: Failures, store: Store) -> None:
    keys, key = open_keys(empty_file, failures, store), make_key("s")
    store.put("s", key)
    await keys.refresh()
    assert outcome(keys, key) == "shop"


async def test_key_that_can_not_be_checked_yet_is_not_called_bad(
    empty_file: Path, failures: Failures, store: Store
) -> None:
    store.is_gone = True
    keys = open_keys(empty_file, failures, store)
    await keys.refresh()
    assert outcome(keys, make_key("s")) == "STORE_UNAVAILABLE"
    assert failures.count == 1


async def test_copy_serves_while_the_store_is_gone_and_up_to_its_age(
    empty_file: Path, failures: Failures, store: Store
) -> None:
    keys, key = open_keys(empty_file, failures, store), make_key("s")
    store.put("s", key)
    await keys.refresh()
    store.is_gone, store.now_ms = True, MAX_AGE_MS
    await keys.refresh()
    assert outcome(keys, key) == "shop"
    store.now_ms += 1
    assert outcome(keys, key) == "STORE_UNAVAILABLE"


async def test_keys_of_the_file_need_no_store(tmp_path: Path, failures: Failures, store: Store) -> None:
    path, key = tmp_path / "keys.toml", make_key("a")
    path.write_text(entry("a", key))
    keys = open_keys(path, failures, store)
    store.is_gone, store.now_ms = True, 10 * MAX_AGE_MS
    await keys.refresh()
    assert outcome(keys, key) == "acme"


async def test_key_of_the_file_hides_one_of_the_store(tmp_path: Path, failures: Failures, store: Store) -> None:
    path, of_file, of_store = tmp_path / "keys.toml", make_key("a"), make_key("a")
    path.write_text(entry("a", of_file))
    keys = open_keys(path, failures, store)
    store.put("a", of_store)
    await keys.refresh()
    assert [outcome(keys, of_file), outcome(keys, of_store)] == ["acme", "KEY_INVALID"]


async def test_store_that_lost_its_keys_is_believed(empty_file: Path, failures: Failures, store: Store) -> None:
    keys, key = open_keys(empty_file, failures, store), make_key("s")
    store.put("s", key)
    await keys.refresh()
    store.records, store.version = {}, 0
    await keys.refresh()
    assert outcome(keys, key) == "KEY_INVALID"


async def test_renewal_ends_with_the_revocation(empty_file: Path, failures: Failures, store: Store) -> None:
    keys, key = open_keys(empty_file, failures, store), make_key("s")
    store.put("s", key)
    await keys.refresh()
    principal = keys.authenticate({"authorization": f"Bearer {key}"})
    assert keys.renew(principal) == principal
    store.put("s", key, revoked_at_ms=1)
    await keys.refresh()
    with pytest.raises(MeshError, match="revoked"):
        keys.renew(principal)


async def test_store_that_knows_nothing_of_keys_has_none(tmp_path: Path, failures: Failures, store: Store) -> None:
    path, key = tmp_path / "keys.toml", make_key("a")
    path.write_text(entry("a", key))
    keys = open_keys(path, failures, store)
    store.is_old = True
    await keys.refresh()
    assert [outcome(keys, key), outcome(keys, make_key("s"))] == ["acme", "KEY_INVALID"]


async def test_store_that_is_newer_again_is_believed(empty_file: Path, failures: Failures, store: Store) -> None:
    keys, key = open_keys(empty_file, failures, store), make_key("s")
    store.is_old = True
    await keys.refresh()
    store.is_old = False
    store.put("s", key)
    await keys.refresh()
    assert outcome(keys, key) == "shop"


async def test_keys_that_were_known_are_not_forgotten_for_an_older_service(
    empty_file: Path, failures: Failures, store: Store
) -> None:
    keys, key = open_keys(empty_file, failures, store), make_key("s")
    store.put("s", key)
    await keys.refresh()
    store.is_old = True
    await keys.refresh()
    assert outcome(keys, key) == "shop"
    store.now_ms = MAX_AGE_MS + 1
    assert outcome(keys, key) == "STORE_UNAVAILABLE"


@pytest.mark.parametrize("key", ["nonsense", "ssop_a_aaaaaaaaaaaaaaa"])
async def test_key_that_can_be_no_key_is_called_bad_without_the_store(
    empty_file: Path, failures: Failures, store: Store, key: str
) -> None:
    store.is_gone = True
    assert outcome(open_keys(empty_file, failures, store), key) == "KEY_INVALID"


async def test_garbage_from_the_store_ends_no_watch_and_loses_no_file(
    tmp_path: Path, failures: Failures, store: Store
) -> None:
    path, one, two = tmp_path / "keys.toml", make_key("a"), make_key("b")
    path.write_text(entry("a", one))
    keys = open_keys(path, failures, store)
    store.garbage = b"\xff"
    path.write_text(entry("b", two))
    await keys.refresh()
    assert [outcome(keys, two), failures.count] == ["acme", 1]


async def test_look_that_fails_is_counted_and_the_next_one_comes(
    empty_file: Path, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Failures()
    keys = open_keys(empty_file, failures, on_fault=faults)
    monkeypatch.setattr(KeysFile, "refresh", lambda _: 1 / 0)
    task = asyncio.create_task(keys.watch(1))
    await eventually(lambda: faults.count >= 2)
    task.cancel()


@pytest.mark.parametrize("changes", [{"tenant": "mesh"}, {"tenant": ""}, {"key_id": "A B"}])
async def test_records_that_no_router_writes_are_left_out(
    empty_file: Path, failures: Failures, store: Store, changes: dict[str, str]
) -> None:
    keys, good, bad = open_keys(empty_file, failures, store), make_key("s"), make_key("t")
    store.put("t", bad)
    for name, value in changes.items():
        setattr(store.records["t"].info, name, value)
    store.put("s", good)
    await keys.refresh()
    assert [outcome(keys, good), outcome(keys, bad), failures.count] == ["shop", "KEY_INVALID", 1]


async def test_session_of_an_old_secret_ends_with_the_overlap(
    empty_file: Path, failures: Failures, store: Store
) -> None:
    keys, old, new = open_keys(empty_file, failures, store), make_key("s"), make_key("s")
    store.put("s", old)
    await keys.refresh()
    principal = keys.authenticate({"authorization": f"Bearer {old}"})
    store.put("s", new)
    record = store.records["s"]
    record.old_hmac = hash_key(old, SECRET)
    record.info.old_secret_expires_at_ms = 1_001
    await keys.refresh()
    assert keys.renew(principal) == principal
    record.info.old_secret_expires_at_ms = 1_000
    store.version += 1
    await keys.refresh()
    with pytest.raises(MeshError, match="rotated"):
        keys.renew(principal)


async def test_session_does_not_outlive_its_key_through_another_of_the_same_id(
    tmp_path: Path, failures: Failures
) -> None:
    path, one, other = tmp_path / "keys.toml", make_key("a"), make_key("a")
    path.write_text(entry("a", one))
    keys = open_keys(path, failures)
    principal = keys.authenticate({"authorization": f"Bearer {one}"})
    path.write_text(entry("a", other) + "\n")
    await keys.refresh()
    with pytest.raises(MeshError, match="unknown"):
        keys.renew(principal)


def test_no_repr_shows_an_hmac(tmp_path: Path, failures: Failures) -> None:
    path, key = tmp_path / "keys.toml", make_key("a")
    path.write_text(entry("a", key))
    (record,) = load_keys(path)
    principal = open_keys(path, failures).authenticate({"authorization": f"Bearer {key}"})
    assert principal.key_hmac == record.hmac
    assert repr(record.hmac) not in repr((record, principal))
