"""Section `inference`: what of it may be seen, and what is refused."""

import pydantic
import pytest

from ssop_chassis.settings import show
from ssop_inference.settings import InferenceSettings, ModelSettings


def test_what_requests_carry_besides_is_logged_by_name_only() -> None:
    model = ModelSettings(
        name="m", backend="openai", url="http://h/v1", extra_body={"user": "u-1", "nested": {"api_key": "sk-9"}}
    )
    shown = str(show(InferenceSettings(models=(model,))))
    assert "nested" in shown
    assert "sk-9" not in shown
    assert "u-1" not in shown
    assert model.extra_body["nested"] == {"api_key": "sk-9"}


@pytest.mark.parametrize("field", ["has_images", "has_tools"])
def test_what_servers_take_is_no_setting_of_the_engine(field: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=field):
        ModelSettings.model_validate({"name": "m", field: True})
