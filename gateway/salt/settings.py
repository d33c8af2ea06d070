"""The section ``upstream``: which kind of masters is above, and how those of Salt are used, by Salt's option names."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.salt.resource_inventory import ResourceRules
from upstream.salt.terms import EncryptionAlgorithm, SaltRules, SigningAlgorithm, endpoint

ADDRESS_PATTERN = r"^[^\s/]+$(?!\n)"
ID_PATTERN = r"^[^\s/\\\x00]{1,255}$(?!\n)"
FINGERS_PATTERN = r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){15,63}$(?!\n)"
TYPE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$(?!\n)"
FINGER_PATTERN = r"^([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){15,63})?$(?!\n)"
SIGN_KEY_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$(?!\n)"

Port = Annotated[int, Meta(ge=1, le=65535)]


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stock Salt masters above a gateway."""

    type: Annotated[
        Literal["outstation", "salt"],
        Meta(description="outstation: the masters of masters:, above; salt: the stock Salt masters that follow here"),
    ] = "outstation"
    masters: Annotated[
        list[
            Annotated[
                str,
                Meta(
                    max_length=255,
                    pattern=ADDRESS_PATTERN,
                    description="host, or host:port where its ret_port is not master_port",
                    examples=["salt.example.net"],
                ),
            ]
        ],
        Meta(max_length=16, description="salt: the masters, best first; docs/salt.md"),
    ] = []
    id: Annotated[
        Annotated[str, Meta(pattern=ID_PATTERN)] | None,
        Meta(description="salt: the id that its masters know this gateway by, in salt-key; default: name"),
    ] = None
    master_port: Annotated[Port, Meta(description="salt: port for requests (ret_port) of masters without one")] = 4506
    publish_port: Annotated[
        Port | None, Meta(description="salt: port that they publish on; default: what each says when it lets us in")
    ] = None
    master_type: Annotated[
        Literal["str", "failover", "hot"],
        Meta(description="salt: which one is active, as master_type above; all of them may order"),
    ] = "str"
    master_alive_interval: Annotated[
        Annotated[float, Meta(ge=0, le=3600)] | None,
        Meta(description="salt: seconds between two probes of a master that says nothing; default: 30"),
    ] = None
    master_failback: Annotated[
        bool, Meta(description="salt: go back to a master that stands before the active one when it is up again")
    ] = False
    master_failback_interval: Annotated[
        float, Meta(ge=0, le=86_400, description="salt: seconds that it must have been up without a break")
    ] = 0.0
    master_shuffle: Annotated[bool, Meta(description="salt: draw the order of the masters at the start")] = False
    master_finger: Annotated[
        Annotated[str, Meta(pattern=FINGER_PATTERN)]
        | Annotated[list[Annotated[str, Meta(pattern=FINGERS_PATTERN)]], Meta(max_length=32)],
        Meta(
            description="salt: fingerprint of the masters' key, as salt-key -F shows it, or several in a list;"
            " default: the first that each shows is kept"
        ),
    ] = ""
    verify_master_pubkey_sign: Annotated[
        bool,
        Meta(description="salt: believe a key that is new when the masters' signing key has signed it, and no other"),
    ] = False
    master_sign_key_name: Annotated[
        str,
        Meta(
            pattern=SIGN_KEY_PATTERN,
            description="salt: the signing key is the file of this name with .pub in the folder salt of state_dir",
        ),
    ] = "master_sign"
    always_verify_signature: Annotated[
        bool, Meta(description="salt: the signature is asked for at every sign-in, not of a new key alone")
    ] = False
    acceptance_wait_time: Annotated[
        float, Meta(gt=0, le=3600, description="salt: seconds between two questions whether our key is accepted")
    ] = 10.0
    acceptance_wait_time_max: Annotated[
        float, Meta(ge=0, le=86_400, description="salt: up to so many seconds this wait grows; 0: it stays")
    ] = 0.0
    random_reauth_delay: Annotated[
        float, Meta(ge=0, le=3600, description="salt: a lost master is asked again after up to so many seconds")
    ] = 10.0
    auth_timeout: Annotated[float, Meta(gt=0, le=300, description="salt: most that a sign-in may take, in seconds")] = (
        5.0
    )
    auth_tries: Annotated[int, Meta(ge=1, le=100, description="salt: sign-ins before a longer wait")] = 7
    request_channel_timeout: Annotated[
        float, Meta(ge=1, le=3600, description="salt: most that the answer to a request may take, in seconds")
    ] = 60.0
    keysize: Annotated[int, Meta(ge=2048, le=8192, description="salt: bits of our RSA key when it is made")] = 2048
    encryption_algorithm: Annotated[EncryptionAlgorithm, Meta(description="salt: as in Salt; SHA1 for old masters")] = (
        "OAEP-SHA224"
    )
    signing_algorithm: Annotated[SigningAlgorithm, Meta(description="salt: as in Salt; SHA1 for old masters")] = (
        "PKCS1v15-SHA224"
    )

    resources: Annotated[
        Annotated[str, Meta(pattern=TYPE_PATTERN)] | None,
        Meta(
            description="salt: type under which devices are registered as resources, where the master has such (3008); "
            "none: they are not",
            examples=["camera"],
        ),
    ] = None
    resources_by: Annotated[
        str, Meta(max_length=128, description="salt: grain that names the type of a device, where it has one")
    ] = ""
    resource_grains: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=128)]],
        Meta(max_length=256, description="salt: grains that go up with resources; empty: all, the smallest first"),
    ] = []

    def __post_init__(self) -> None:
        """What no pattern of a setting can say."""
        if self.type == "outstation":
            if self.masters:
                raise ValueError(
                    "masters: here are Salt's, so type: salt is missing; our own stand under masters: above"
                )
            return
        if not self.masters:
            raise ValueError("masters: is empty; give the address of a Salt master, as in masters: [salt.example.net]")
        if self.always_verify_signature and not self.verify_master_pubkey_sign:
            raise ValueError("always_verify_signature: verify_master_pubkey_sign: true is missing beside it")
        for place, address in enumerate(self.masters):
            try:
                endpoint(address, self.master_port)
            except ValueError as error:
                raise ValueError(f"masters[{place}]: {error}") from None
            if address in self.masters[:place]:
                raise ValueError(f"masters[{place}]: {address} is there twice; remove one of the two")

    @property
    def salt(self) -> bool:
        """Whether the masters above are Salt's."""
        return self.type == "salt"

    @property
    def fingers(self) -> tuple[str, ...]:
        """``master_finger`` as a list; empty where it says nothing."""
        said = self.master_finger
        return tuple(said) if isinstance(said, list) else (said,) if said else ()

    def resource_rules(self) -> ResourceRules | None:
        """What is registered as resources; None for nothing."""
        if self.resources is None:
            return None
        return ResourceRules(self.resources, self.resources_by, tuple(self.resource_grains))

    def rules(self, name: str) -> SaltRules:
        """How the masters are used by a gateway of this name."""
        return SaltRules(
            id=self.id or name,
            master_port=self.master_port,
            publish_port=self.publish_port or 0,
            master_type=self.master_type,
            master_alive_interval=self.master_alive_interval,
            master_failback=self.master_failback,
            master_failback_interval=self.master_failback_interval,
            master_shuffle=self.master_shuffle,
            master_finger=self.fingers,
            verify_master_pubkey_sign=self.verify_master_pubkey_sign,
            master_sign_key_name=self.master_sign_key_name,
            always_verify_signature=self.always_verify_signature,
            acceptance_wait_time=self.acceptance_wait_time,
            acceptance_wait_time_max=self.acceptance_wait_time_max,
            random_reauth_delay=self.random_reauth_delay,
            auth_timeout=self.auth_timeout,
            auth_tries=self.auth_tries,
            request_channel_timeout=self.request_channel_timeout,
            keysize=self.keysize,
            encryption_algorithm=self.encryption_algorithm,
            signing_algorithm=self.signing_algorithm,
        )
