"""What a decision reads: the request's features and the operator's settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ssop.v1.mesh_pb2 import Tier
from ssop_router.core.canary import Canary
from ssop_router.core.policy import Policy
from ssop_router.core.rules import Rule
from ssop_router.core.score import ScoreSettings

try:
    from ssop_router.core._sieve import Sieve
except ImportError:
    from ssop_router.core._sieve_py import Sieve  # type: ignore[assignment]

# A byte-pair tokenizer rarely makes tokens longer than this on average, so bytes over it is a lower bound; only the
# node knows the number of tokens.
MOST_BYTES_PER_TOKEN: Final = 8
_AUTO: Final = Policy()


class Features(NamedTuple):
    """What the decision reads of a request. `prompt_bytes` counts all text; `user_text` is the last user message.

    `text_chars` stands for its length where the text itself is gone, as in a log.

    `conversation_tier` is where its conversation is, and `conversation_switches` how often that has changed.
    `canaries` are the models on trial that it meets.
    `is_cache_first`: too much fails, so that stored answers are taken whatever the temperature.
    """

    scopes: frozenset[str]
    policy: Policy = _AUTO
    model: str = ""
    user_text: str = ""
    documents: int = 0
    prompt_bytes: int = 0
    max_output_tokens: int = 0
    capabilities: frozenset[str] = frozenset()
    needs_logprobs: bool = False
    has_schema: bool = False
    temperature: float = 0.0
    is_sampled_cacheable: bool = False
    names_collections: bool = False
    conversation_tier: Tier.ValueType = Tier.TIER_UNSPECIFIED
    conversation_switches: int = 0
    is_cache_first: bool = False
    text_chars: int | None = None
    canaries: frozenset[str] = frozenset()

    @property
    def user_chars(self) -> int:
        """Length of the user's text."""
        return len(self.user_text) if self.text_chars is None else self.text_chars

    @property
    def least_input_tokens(self) -> int:
        """A number of tokens that no tokenizer makes the prompt shorter than."""
        return self.prompt_bytes // MOST_BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """What the operator says: names of models, the default tier, the rules, and when a status is old.

    A user text shorter than `follow_up_chars` says too little to take a conversation off the full tier.
    """

    model_tiers: Mapping[str, Tier.ValueType]
    default_tier: Tier.ValueType
    rules: Sequence[Rule] = ()
    status_stale_ms: int = 5_000
    low_memory_ratio: float = 0.02
    max_attempts: int = 3
    score: ScoreSettings = field(default_factory=ScoreSettings)
    follow_up_chars: int = 200
    canaries: Sequence[Canary] = ()
    sieve: Sieve = field(init=False, compare=False, repr=False)
    """Catches each text in lower case that holds a piece of a rule's words: few do."""

    def __post_init__(self) -> None:
        words = [rule.words for rule in self.rules if rule.words is not None]
        needles = {needle for found in words for needle, _ in (*found.latin, *found.others)}
        object.__setattr__(self, "sieve", Sieve(sorted(needles)))
