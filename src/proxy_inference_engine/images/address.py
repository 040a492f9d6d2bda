"""Which addresses the public internet has. Everything else is somebody's own network, or this machine."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# https://www.iana.org/assignments/iana-ipv4-special-registry and multicast; written out, because what the standard
# library calls global differs between its versions.
_SPECIAL_4 = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24
192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4
240.0.0.0/4
"""
_NOT_PUBLIC_4 = tuple(map(IPv4Network, _SPECIAL_4.split()))
_METADATA_4 = IPv4Address("168.63.129.16")  # a cloud's own service behind an address that looks public
_PUBLIC_6 = IPv6Network("2000::/3")
# Teredo and other protocols, documentation, 6to4, segment routing: some of them hide an IPv4 address.
_SPECIAL_6 = "2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20"
_NOT_PUBLIC_6 = tuple(map(IPv6Network, _SPECIAL_6.split()))
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Whether an address, as a resolver gives it, belongs to the public internet."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return _is_public_4(address) if isinstance(address, IPv4Address) else _is_public_6(address)


def _is_public_4(address: IPv4Address) -> bool:
    return address != _METADATA_4 and not any(address in network for network in _NOT_PUBLIC_4)


def _is_public_6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    inner = address.ipv4_mapped
    if inner is None and address in _NAT64:
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None:
        return _is_public_4(inner)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)
