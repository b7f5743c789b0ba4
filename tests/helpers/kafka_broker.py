"""A real Kafka broker for tests, which can be killed and started again on what it left on disk."""

import asyncio
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import GroupCoordinatorNotAvailableError

from helpers.certificates import make_authority, make_certificate
from helpers.java_server import JAVA, START_S, JavaServer
from helpers.maven import find_classpath
from ssop_cli.embedded import free_port

USER: Final = "opinion"
PASSWORD: Final = "a-password-of-the-broker"
_PROJECT: Final = Path(__file__).parent / "kafka"
_JAVA: Final = (*JAVA, "-Xmx256m")
_PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAIN://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAIN://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.security.protocol.map=PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
 user_{user}="{password}";
listener.name.secure.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={folder}/keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


class KafkaBroker(JavaServer):
    """One broker in a folder of its own; use it in `with`."""

    def __init__(self) -> None:
        super().__init__("kafka")
        self._port, self._secure_port = free_port(), free_port()
        authority = make_authority(self.folder)
        self.ca_file = authority.certificate
        self.client = make_certificate(self.folder, authority, "client")
        server = make_certificate(self.folder, authority, "server")
        keystore = server.key.read_bytes() + server.certificate.read_bytes()
        (self.folder / "keystore.pem").write_bytes(keystore)
        self._properties = self.folder / "server.properties"
        text = _PROPERTIES.format(
            port=self._port, secure_port=self._secure_port, controller=free_port(), folder=self.folder,
            user=USER, password=PASSWORD,
        )  # fmt: skip
        self._properties.write_text(text)
        self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c")

    @property
    def server(self) -> str:
        """Where it listens in plain text; the same after it was started again."""
        return f"127.0.0.1:{self._port}"

    @property
    def secure_server(self) -> str:
        """Where it listens with TLS, wants a certificate, and a user by SASL PLAIN."""
        return f"127.0.0.1:{self._secure_port}"

    def _java(self, *words: str) -> None:
        command = [*_JAVA, "-cp", find_classpath(_PROJECT), *words, str(self._properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it and wait until it says that it has."""
        command = [*_JAVA, "-cp", find_classpath(_PROJECT), "kafka.Kafka", str(self._properties)]
        self.launch(command, lambda: b"Kafka Server started" in self.log.read_bytes())

    async def make_topic(self, name: str, partitions: int = 1) -> None:
        """Make a topic."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.server)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, partitions, 1)])
        finally:
            await admin.close()

    async def send(self, topic: str, values: Iterable[bytes]) -> None:
        """Write values to a topic, and wait until it has them."""
        producer = AIOKafkaProducer(bootstrap_servers=self.server, acks="all")
        await producer.start()
        try:
            await asyncio.gather(*[await producer.send(topic, value) for value in values])
        finally:
            await producer.stop()

    async def committed(self, topic: str, group: str) -> int:
        """How many messages of a topic a group has committed, in all partitions; 0 before there is a group."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.server)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(group)
        except GroupCoordinatorNotAvailableError:
            return 0
        finally:
            await admin.close()
        return sum(found.offset for place, found in offsets.items() if place.topic == topic)
