"""`k8s-free-deploy` on a booted systemd: installed on a fresh root, asked through nginx, rebooted, harmed, upgraded.

One host for all, since an installation takes half a minute; each test leaves it serving.
"""

import json
import secrets
from typing import Any, Final

import pytest

from helpers.booted_host import wait_for
from helpers.front_load import SCHEMA, Tally
from helpers.metal import LIMIT_S, MARKS, NEXT_VERSION, ONE_OF_EACH, SERVICES, WHEELS, Metal, harmless, metal, restarted
from helpers.nginx import make_certificate
from helpers.opinion import signed

__all__ = ["metal"]
pytestmark = MARKS


def test_every_unit_is_active_after_the_installation(metal: Metal) -> None:
    assert [unit for unit in SERVICES if not metal.host.is_active(unit)] == []
    assert metal.host.is_active("ssop.target")


def test_a_second_installation_changes_nothing(metal: Metal) -> None:
    files = "/etc/ssop/ssop.toml", "/etc/ssop/keys.toml", "/etc/ssop/tls/front.pem", "/etc/ssop/credentials/mesh/secret"
    before = [metal.host.read(path) for path in files], [metal.host.show(unit, "MainPID") for unit in SERVICES]
    metal.install()
    after = [metal.host.read(path) for path in files], [metal.host.show(unit, "MainPID") for unit in SERVICES]
    assert after == before


def test_secrets_are_for_the_services_alone(metal: Metal) -> None:
    read = metal.host.run(
        *("setpriv", "--reuid=ssop-gateway", "--regid=ssop-gateway", "--clear-groups", "cat"),
        "/etc/ssop/credentials/mesh/secret",
        check=False,
    )
    assert read.returncode != 0
    assert metal.host.run("stat", "-c", "%a %U", "/etc/ssop/credentials").stdout.split() == ["700", "root"]


def check_go(metal: Metal) -> None:
    metal.wait_all_active()
    lines = metal.ask_in_go()
    assert [line["path"] for line in lines if "path" in line] == ["/mood", "/score"]
    assert [line["verdict"] for line in lines if "verdict" in line] == ["VERDICT_OK"]


@pytest.mark.needs("go")
@pytest.mark.needs("protoc")
def test_go_gets_a_checked_stream_through_the_front(metal: Metal) -> None:
    check_go(metal)


@pytest.mark.timeout(1200)
def test_clients_get_checked_answers_through_the_front_and_after_a_reboot(metal: Metal) -> None:
    def check(tally: Tally) -> None:
        assert (tally.failures, tally.wrong, tally.degraded) == ([], [], 0)
        assert all(tally.answers.values()), tally.answers

    metal.wait_all_active()
    check(metal.ask())
    metal.host.reboot()
    metal.wait_all_active()
    check(metal.ask())


@pytest.mark.needs("go")
@pytest.mark.needs("protoc")
def test_go_gets_a_checked_stream_through_the_front_after_a_reboot_too(metal: Metal) -> None:
    check_go(metal)


def test_the_real_model_runs_within_its_limits(metal: Metal) -> None:
    key = metal.host.read("/etc/ssop/credentials/client.key").strip()
    schema = metal.folder / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    metal.host.write("/run/schema.json", json.dumps(SCHEMA))
    asked = metal.host.run(
        *("env", f"SSOP_API_KEY={key}", "/opt/ssop/current/bin/ssop", "ask", "How is it?", "--json"),
        *("--schema", "/run/schema.json", "--policy", "lite", "--target", "127.0.0.1:7300", "--timeout", "100"),
    )
    answer: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
    assert set(answer["result"]) == {"mood", "ok"}, asked.stdout


def test_a_post_through_the_front_becomes_a_record(metal: Metal) -> None:
    metal.wait_active("ssop-opinion.service")
    secret = metal.host.read("/etc/ssop/credentials/opinion/webhook.secret").strip()
    body = json.dumps({"id": "1", "text": "The kettle leaks, and nobody answers."})
    headers = signed(body.encode(), nonce=secrets.token_hex(8), secret=secret, key="local")
    headers["content-type"] = "application/json"
    metal.fetch("https://localhost/v1/opinion/posts", headers, body)

    def is_recorded() -> bool:
        return "ssop_opinion_records_total{" in metal.fetch("http://127.0.0.1:7390/metrics")

    wait_for(is_recorded, LIMIT_S, "the post is a record")


@pytest.mark.timeout(1200)
def test_units_that_are_killed_are_started_again_and_cost_an_sdk_no_more_than_it_was_shown(metal: Metal) -> None:
    metal.wait_all_active()
    before = {unit: metal.host.show(unit, "MainPID") for unit in ONE_OF_EACH}
    # Of the router that is left, about the node that is killed.
    told = ("ssop-router@1.service", "a node is out of rotation")
    said = metal.said(*told, address="127.0.0.1:7311")
    with metal.load() as tally:
        metal.host.run("systemctl", "kill", "-s", "KILL", "--kill-who=main", *ONE_OF_EACH)
        restarted(metal, before)
    assert harmless(tally), tally
    cut = sum(failure.startswith("sdk") for failure in tally.failures)
    assert tally.answers["sdk"] + cut == tally.requests["sdk"] > cut
    assert metal.said(*told, address="127.0.0.1:7311") == said + 1


@pytest.mark.timeout(1200)
def test_a_unit_that_hangs_is_ended_and_the_place_where_it_hung_is_in_the_journal(metal: Metal) -> None:
    metal.wait_all_active()
    unit = "ssop-router@1.service"
    pid = metal.host.show(unit, "MainPID")
    with metal.load() as tally:
        metal.host.run("kill", "-STOP", pid)
        restarted(metal, {unit: pid})
    assert harmless(tally), tally
    journal = metal.host.journal(unit)
    assert "most recent call first" in journal
    assert "Failed with result 'watchdog'" in journal


@pytest.mark.timeout(1200)
def test_the_certificate_of_the_front_changes_under_load_and_no_request_fails(metal: Metal) -> None:
    metal.wait_all_active()
    make_certificate(metal.folder, "renewed")
    renewed = {kind: (metal.folder / f"renewed.{kind}").read_text() for kind in ("pem", "key")}
    with metal.load(next_certificate=renewed["pem"]) as tally:
        for kind, text in renewed.items():
            metal.host.run("sh", "-c", _RENEW, f"/etc/ssop/tls/front.{kind}", stdin=text.encode())
        metal.host.run("systemctl", "reload", "ssop-nginx")
        shows = ("sh", "-c", "openssl s_client -connect 127.0.0.1:443 </dev/null 2>/dev/null | openssl x509")
        wait_for(
            lambda: metal.host.run(*shows).stdout == renewed["pem"], LIMIT_S, "the front shows the new certificate"
        )
        metal.host.run("sleep", "2")
    assert (tally.failures, tally.wrong, tally.degraded) == ([], [], 0)
    assert all(tally.answers.values()), tally.answers


# As the runbook says: the owner and the mode stay, and no reader finds half a file.
_RENEW: Final = 'cp -p "$0" "$0.new" && cat >"$0.new" && mv "$0.new" "$0"'


@pytest.mark.timeout(1200)
def test_units_that_take_too_much_memory_are_killed_alone(metal: Metal) -> None:
    metal.wait_all_active()
    metal.need_memory_limits()
    before = {unit: metal.host.show(unit, "MainPID") for unit in ONE_OF_EACH}
    others = {unit: metal.host.show(unit, "MainPID") for unit in SERVICES if unit not in ONE_OF_EACH}
    with metal.load() as tally:
        for unit in ONE_OF_EACH:
            metal.fill_memory(unit)
        restarted(metal, before)
    assert harmless(tally), tally
    assert {unit: metal.host.show(unit, "MainPID") for unit in others} == others


@pytest.mark.timeout(1200)
def test_upgrade_and_rollback_lose_no_request(metal: Metal) -> None:
    metal.wait_all_active()
    first = metal.release
    moved = [unit for unit in SERVICES if not unit.startswith(("ssop-redis", "ssop-nginx"))]
    with metal.load() as tally:
        arguments = ["--wheelhouse", WHEELS, "--wheel", f"/next/{metal.next_wheel.name}"]
        metal.script("upgrade.sh", *arguments)
        assert {metal.release_of(unit) for unit in moved} == {NEXT_VERSION}
        metal.script("rollback.sh")
        assert {metal.release_of(unit) for unit in moved} == {first}
    assert (tally.failures, tally.wrong, tally.degraded) == ([], [], 0)
    assert all(tally.answers.values()), tally.answers


def test_uninstalling_keeps_the_data_unless_it_is_told_to_purge(metal: Metal) -> None:
    secret = metal.host.read("/etc/ssop/credentials/mesh/secret")
    metal.script("uninstall.sh")
    assert metal.host.run("systemctl", "list-units", "--no-legend", "ssop*").stdout == ""
    assert metal.host.read("/etc/ssop/credentials/mesh/secret") == secret
    metal.script("uninstall.sh", "--purge")
    left = metal.host.run(
        "sh", "-c", "ls -d /etc/ssop /opt/ssop /var/lib/ssop* 2>/dev/null; getent passwd | grep ssop-", check=False
    )
    assert left.stdout == ""
