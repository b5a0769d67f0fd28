"""Lists of algorithms: those of the configuration narrow and order ours; sizes of RSA keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import LinkError
from mslaunch.transport.ssh.config.algorithms import KINDS, OFFERED, offered, rsa_bits
from mslaunch.transport.ssh.user_keys import pack


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512"]),
        ("hmac-sha2-512,hmac-sha2-256", ["hmac-sha2-512", "hmac-sha2-256"]),
        ("-*-etm@openssh.com", ["hmac-sha2-256", "hmac-sha2-512"]),
        ("^hmac-sha2-512", ["hmac-sha2-512", *OFFERED["macs"][:3]]),
        ("+hmac-sha1", list(OFFERED["macs"])),  # asked for and too weak: not offered
        ("hmac-md5,hmac-sha2-256", ["hmac-sha2-256"]),
    ],
)
def test_lists(text: str, names: list[str]) -> None:
    assert offered("macs", text, "config:1") == names


@pytest.mark.parametrize("text", ["hmac-md5,umac-64@openssh.com", "-*"])
def test_nothing_is_left(text: str) -> None:
    with pytest.raises(LinkError) as caught:
        offered("macs", text, "config:1")
    assert f"leaves no macs that mslaunch's own SSH offers: {text}" in str(caught.value)
    assert "--rsh-agent ssh" in caught.value.todo


@given(st.sampled_from(sorted(OFFERED)), st.sampled_from(["", "+", "-", "^"]), st.data())
def test_no_list_adds_to_ours(keyword: str, sign: str, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(KINDS[keyword])) | st.sampled_from(["*", "*sha1*"]), min_size=1))
    try:
        found = offered(keyword, sign + ",".join(chosen), "config:1")
    except LinkError:
        return
    assert set(found) <= set(OFFERED[keyword])
    assert len(found) == len(set(found))


def test_sizes_of_rsa_keys() -> None:
    modulus = (1 << 2047).to_bytes(257, "big")
    assert rsa_bits(pack("ssh-rsa", b"\1\0\1", modulus)) == 2048
    assert rsa_bits(pack("ssh-rsa-cert-v01@openssh.com", b"nonce", b"\1\0\1", modulus)) == 2048
    assert rsa_bits(pack("ssh-ed25519", b"k" * 32)) == rsa_bits(b"") == rsa_bits(b"\0\0") == 0
    assert rsa_bits(pack("ssh-rsa", b"\1\0\1")) == 0
