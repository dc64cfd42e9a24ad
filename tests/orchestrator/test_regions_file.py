"""regions.yaml: what it says, and errors that name the key, the value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CallerError
from penstock.orchestrator.regions_file import read_regions

WHOLE = """
home: eu
mode: manual
hold_max: 10
settle_s: 5
regions:
  - {name: eu, url: "https://eu.example:8443", key_variable: EU_KEY, certificate: eu.pem,
     ratio: 3, cost_per_hour: 0.1, slots_max: 7}
  - {name: us, url: "http://[::1]:8080", key_file: us.key, ratio: 1}
endpoints:
  chat-eu: {pinned: [eu]}
  search: {mode: automatic, ratios: {eu: 0.5, us: 0.5}}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "regions.yaml"
    path.write_text(text)
    (folder / "us.key").write_text("psk_us\n")
    return path


def test_a_file_says_how_regions_are_reached_and_what_each_is_to_have(tmp_path: Path) -> None:
    regions = read_regions(written(tmp_path, WHOLE), {"EU_KEY": "psk_eu"})
    eu, us = regions.access
    assert (eu.address.host, eu.address.port, eu.address.tls) == ("eu.example", 8443, True)
    assert eu.address.certificate == tmp_path / "eu.pem"
    assert eu.credential.line == b"authorization: Bearer psk_eu\r\n"
    assert us.address.authority == b"[::1]:8080"
    assert us.credential.line == b"authorization: Bearer psk_us\r\n"
    assert "psk" not in repr(regions)
    spec = regions.spec_of("other")
    assert (spec.endpoint, spec.home, spec.mode, spec.hold_max, spec.settle_s) == (
        ("other", "eu", "manual", 10, 5.0)
    )
    assert spec.ratios() == {"eu": 0.75, "us": 0.25}
    assert spec.regions[0].slots_max == 7
    assert regions.spec_of("chat-eu").ratios() == {"eu": 1.0, "us": 0.0}
    assert regions.spec_of("search").ratios() == {"eu": 0.5, "us": 0.5}
    assert regions.spec_of("search").mode == "automatic"


ONE = 'regions: [{{name: eu, url: "http://eu:1"{}}}]{}'


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("regions: []", "regions-invalid", "1 to 64 regions"),
        (ONE.format(", ratoi: 2", ""), "regions-invalid", "ratoi"),
        (ONE.format(", ratio: -1", ""), "regions-invalid", "ratio is -1"),
        (ONE.format("", "\nmode: fast"), "regions-invalid", "mode is 'fast'"),
        (ONE.format("", "\nhome: mars"), "invalid-traffic", "which is no region"),
        (ONE.format("", "\nendpoints: {a: {pinned: [us]}}"), "invalid-traffic", "pinned"),
        (ONE.format("", "\nendpoints: {a: {ratios: {us: 1}}}"), "invalid-traffic", "no region us"),
        (ONE.format("", "\nendpoints: {a: {ratios: {eu: 2}}}"), "invalid-traffic", "sum to 2"),
        (ONE.format(", key_file: none.key", ""), "region-key-missing", "none.key can't be read"),
        (ONE.format(", key_variable: NONE", ""), "region-key-missing", "NONE is not set"),
        (ONE.format(", key_file: a, key_variable: B", ""), "regions-invalid", "a key_variable"),
        ('regions: [{name: eu, url: "eu:1"}]', "regions-invalid", "not the address"),
        ('regions: [{name: eu, url: "http://eu:1/x"}]', "regions-invalid", "not the address"),
        ('regions: [{name: "e u", url: "http://eu:1"}]', "regions-invalid", "name is 'e u'"),
        ("regions: [", "regions-invalid", "regions.yaml"),
    ],
)
def test_what_is_wrong_is_said_by_key_and_value(
    tmp_path: Path, text: str, code: str, words: str
) -> None:
    with pytest.raises(CallerError) as caught:
        read_regions(written(tmp_path, text), {})
    assert caught.value.code == code
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="can't be read") as caught:
        read_regions(tmp_path / "none.yaml", {})
    assert caught.value.code == "regions-invalid"


def test_a_certificate_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    from penstock.clock import SystemClock
    from penstock.orchestrator.regions_file import pool_to

    regions = read_regions(written(tmp_path, WHOLE), {"EU_KEY": "k"})
    with pytest.raises(CallerError) as caught:
        pool_to(regions.access[0].address, SystemClock())
    assert caught.value.code == "tls-unusable"
