"""Whose questions may be answered by what was answered to similar ones: opt-in per tenant, and per schema."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from ssop_chassis.settings import Settings
from ssop_codec import Schema
from ssop_router.canned import read_schema


class SimilarSettings(Settings):
    """A tenant that takes similar answers. The first entry that fits a request counts."""

    tenant: str = Field(min_length=1, description="Whose requests.")
    schema_file: Path | None = Field(
        None, description="Only for this schema, as requests send it: JSON. Not given: for all, and for plain text."
    )
    allow_hits: bool = Field(
        False,
        description="Also while all is well, for requests with `allow_similar`. Else only where no node can serve.",
    )
    min_similarity: float = Field(
        0.9, ge=0, le=1, description="Least cosine of the questions' vectors. Guards tell near questions apart besides."
    )
    max_age_ms: int = Field(0, ge=0, description="Oldest answer to take. 0: as long as answers are kept.")


@dataclass(frozen=True, slots=True)
class SimilarRules:
    """The entries, with the hashes of their schemas; None fits every request."""

    entries: tuple[tuple[SimilarSettings, bytes | None], ...] = field(default=())

    def find(self, tenant: str, schema: Schema | None) -> SimilarSettings | None:
        """The entry for a tenant's requests with this schema; None where they take no similar answers."""
        for entry, schema_hash in self.entries:
            if entry.tenant == tenant and (schema_hash is None or (schema is not None and schema.hash == schema_hash)):
                return entry
        return None


def load_similar(entries: Iterable[SimilarSettings]) -> SimilarRules:
    """Read the schemas. Raises SettingsError, naming the file at fault."""
    return SimilarRules(
        tuple(
            (entry, read_schema("similar", entry.schema_file).hash if entry.schema_file is not None else None)
            for entry in entries
        )
    )
