"""Channels of the settings as notifiers, and what tenants may use of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import httpx

from ssop_chassis.settings import SettingsError
from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.core.pacing import Bucket
from ssop_opinion.notifiers import feishu, signed_webhook, wecom
from ssop_opinion.notifiers.notifier import BrokenError, Notifier, Outlet, check_url
from ssop_opinion.settings import ChannelSettings
from ssop_opinion.tenants import MIN_SECRET_BYTES, read_secret

MINUTE_MS: Final = 60_000
_PER_MINUTE: Final = {
    "wecom": wecom.PER_MINUTE,
    "feishu": feishu.PER_MINUTE,
    "webhook": signed_webhook.PER_MINUTE,
}
_KINDS: Final[Mapping[str, Callable[[Outlet], Notifier]]] = {
    "wecom": wecom.WecomRobot,
    "feishu": feishu.FeishuRobot,
    "webhook": signed_webhook.SignedWebhook,
}


def check_routes(policies: Mapping[str, AlertPolicy], channels: Mapping[str, ChannelSettings]) -> None:
    """Every route must name a channel that its tenant may use. Raises SettingsError with all faults."""
    faults = []
    for tenant, policy in policies.items():
        for route in policy.routes:
            channel = channels.get(route.channel)
            if channel is None:
                faults.append(f"tenant '{tenant}': there is no channel '{route.channel}' in [opinion.channels]")
            elif channel.tenants and tenant not in channel.tenants:
                faults.append(f"tenant '{tenant}': the channel '{route.channel}' is not for this tenant")
    if faults:
        raise SettingsError("\n".join(faults))


def make_bucket(channel: ChannelSettings) -> Bucket:
    """What holds a channel to its rate."""
    return Bucket(channel.per_minute or _PER_MINUTE[channel.kind], MINUTE_MS)


def make_notifier(channel: ChannelSettings, client: httpx.AsyncClient, page_url: str) -> Notifier:
    """The notifier of a channel. Its files are read now, and again for each message. Raises SettingsError."""
    read_url = _reader(channel.url_file, lambda text: check_url(text, is_plain_allowed=channel.is_plain_allowed))
    read_key: Callable[[], str] = lambda: ""  # noqa: E731 - one of two
    if channel.secret_file is not None:
        least = MIN_SECRET_BYTES if channel.kind == "webhook" else 1
        read_key = _reader(channel.secret_file, str, at_least_bytes=least)
    try:
        read_url()
        read_key()
    except BrokenError as error:
        raise SettingsError(str(error.__cause__)) from error
    outlet = Outlet(client, read_url, read_key, channel.language, channel.timeout_ms, page_url)
    return _KINDS[channel.kind](outlet)


def _reader(path: Path, check: Callable[[str], str], *, at_least_bytes: int = 1) -> Callable[[], str]:
    def read() -> str:
        try:
            return check(read_secret(path, at_least_bytes=at_least_bytes))
        except (SettingsError, ValueError) as error:
            fault = error if isinstance(error, SettingsError) else SettingsError(f"the file '{path}': {error}")
            raise BrokenError("FILE_UNUSABLE") from fault

    return read
