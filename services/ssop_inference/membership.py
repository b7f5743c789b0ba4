"""MembershipService: the node proves that it has the mesh's secret, to who must know before sending it anything."""

from typing import Final

from ssop.v1 import registry_pb2
from ssop_chassis.announcement import prove
from ssop_chassis.call import Call, Service, bind
from ssop_chassis.errors import invalid_request

_CHALLENGE_BYTES: Final = range(16, 65)


class MembershipServicer:
    """Anybody may ask; the answer is good for nothing else that the secret is used for."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    async def prove_membership(self, call: Call) -> None:
        """See MembershipService.ProveMembership."""
        challenge = registry_pb2.ProveMembershipRequest.FromString(call.request).challenge
        if len(challenge) not in _CHALLENGE_BYTES:
            raise invalid_request(("challenge", "must have 16 to 64 bytes"))
        response = registry_pb2.ProveMembershipResponse(proof=prove(self._secret, challenge))
        await call.write(response.SerializeToString())

    def service(self) -> Service:
        """For a server."""
        return bind(registry_pb2.DESCRIPTOR.services_by_name["MembershipService"], self, needs_principal=False)
