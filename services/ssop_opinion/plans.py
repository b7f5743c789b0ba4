"""What a tenant's posts are analysed with: what its file says, made ready."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssop_chassis.settings import SettingsError
from ssop_opinion.core.brands import Brand, BrandIndex
from ssop_opinion.core.prompt import Example, PromptText
from ssop_opinion.core.wording import Language
from ssop_opinion.prompting import PromptError, tailor
from ssop_opinion.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Plan:
    """What a tenant's posts are analysed with."""

    prompts: Mapping[Language, PromptText]
    brands: BrandIndex
    collections: Sequence[str] = ()
    rag_prefetch_ratio: float | None = None
    policy: str = ""
    allows_similar: bool = False

    def find_policy(self, *, has_brand: bool) -> str:
        """As `x-router-policy`: nothing is looked up, and nothing embedded, for a post whose brand is known."""
        words = [word for word in self.policy.split(",") if word]
        if (has_brand or not self.collections) and "no_rag" not in words:
            words.append("no_rag")
        return ",".join(words)


def make_plan(tenant: Tenant) -> Plan:
    """What a tenant's file says about analysis. Raises SettingsError."""
    try:
        prompts = tailor(
            tenant.instruction,
            [(example.language, Example(example.text, example.answer)) for example in tenant.examples],
            has_shipped_examples=tenant.has_shipped_examples,
        )
    except PromptError as error:
        raise SettingsError(f"tenant '{tenant.name}': {error}") from error
    return Plan(
        prompts,
        BrandIndex([Brand(brand.name, brand.names, brand.note) for brand in tenant.brands]),
        tenant.collections,
        tenant.rag_prefetch_ratio,
        tenant.policy,
        tenant.allows_similar,
    )
