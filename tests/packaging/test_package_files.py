"""package.yaml and apply.yaml: what they may say, and how a mistake in them is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.package_files import echo_packages, write

from penstock.errors import PenstockError
from penstock.packaging.apply_spec import read_apply
from penstock.packaging.package_spec import read_packages

PACKAGE = """\
schema: 1
package: echo
version: "1"
files:
  - {from: weights.bin, to: weights.bin}
"""
APPLY = """\
schema: 1
stack: support
location: s3://models/support
endpoints:
  - name: shop
    package: shop
"""


def refused(path: Path) -> tuple[str, str, str]:
    read = read_packages if path.name == "package.yaml" else read_apply
    with pytest.raises(PenstockError) as caught:
        read(path)  # type: ignore[operator]
    return caught.value.code, caught.value.message, caught.value.hint


def test_a_file_makes_one_package_for_each_row(tmp_path: Path) -> None:
    specs = read_packages(echo_packages(tmp_path, ["acme", "best"]))
    assert [spec.name for spec in specs] == ["echo-acme", "echo-best"]
    assert specs[1].file.row_of(specs[1].keys.templates[0]) == {"customer": "best"}


def test_rows_may_be_plain_texts_or_lie_in_another_file(tmp_path: Path) -> None:
    text = PACKAGE.replace("echo", "echo-${each}")
    write(tmp_path, {"package.yaml": text + "for_each: [a, b]\n"})
    assert [spec.name for spec in read_packages(tmp_path / "package.yaml")] == ["echo-a", "echo-b"]
    write(
        tmp_path,
        {
            "package.yaml": text + "for_each: {file: customers.yaml}\n",
            "customers.yaml": "schema: 1\nfor_each: [c, d]\n",
        },
    )
    assert [spec.name for spec in read_packages(tmp_path / "package.yaml")] == ["echo-c", "echo-d"]


def test_an_entry_of_a_list_may_have_rows_beside_those_of_the_file(tmp_path: Path) -> None:
    text = """\
schema: 1
package: m-${customer}
version: "1"
files:
  - {from: "${customer}/${each}.bin", to: "${each}.bin", for_each: [a, b]}
for_each: [{customer: acme}]
"""
    [spec] = read_packages(write(tmp_path, {"package.yaml": text}) / "package.yaml")
    assert [(file.source, file.to) for file in spec.keys.files] == [
        ("acme/a.bin", "a.bin"),
        ("acme/b.bin", "b.bin"),
    ]


def test_where_a_value_sign_itself_is_meant_it_is_written_twice(tmp_path: Path) -> None:
    text = PACKAGE.replace("to: weights.bin", 'to: "$${each}.bin"')
    [spec] = read_packages(write(tmp_path, {"package.yaml": text}) / "package.yaml")
    assert spec.keys.files[0].to == "${each}.bin"


@pytest.mark.parametrize(
    ("change", "line", "message", "hint"),
    [
        (("version:", "verison:"), 3, "version is None", "Is verison meant to be it?"),
        (("package:", "name:"), 1, "package is None", "It must be given."),
        (("files:", "file:"), 4, "unknown key file", "Did you mean files? The keys here are"),
        (("from:", "form:"), 5, "files[0].from is None", "Is form meant to be it?"),
        (('"1"', "1"), 3, "version is 1", "text; put it in quotes"),
        (('"1"', "latest"), 3, "version is 'latest'", "a version of this package's own"),
        (('"1"', "a/b"), 3, "version is 'a/b'", "letters, digits and full stops"),
        (("echo", "a_b"), 2, "package is 'a_b'", "letters and digits"),
        (("echo", "e-${who}"), 2, "nothing gives a value to '${who}' in package", "Values here"),
        (("schema: 1", "schema: 2"), 1, "schema is 2", "an integer from 1 to 1"),
        (("files:\n", "files:\n  - 7\n"), 5, "files[0] is 7", "a mapping"),
    ],
)
def test_a_mistake_is_told_with_file_line_key_and_remedy(
    tmp_path: Path, change: tuple[str, str], line: int, message: str, hint: str
) -> None:
    write(tmp_path, {"package.yaml": PACKAGE.replace(*change)})
    code, told, remedy = refused(tmp_path / "package.yaml")
    assert code == "spec-invalid"
    assert told.startswith(f"{tmp_path / 'package.yaml'}:{line}: {message}")
    assert hint in remedy


@pytest.mark.parametrize(
    ("change", "line", "message", "hint"),
    [
        (("name:", "nmae:"), 5, "endpoints[0].name is None", "given"),
        (("package: shop", "package: shop\n    imge: x"), 7, "unknown key endpoints[0].imge",
         "Did you mean image?"),
        (("package: shop", "mode: MultiModel"), 5, "endpoints[0].models is None", "a list"),
        (("package: shop", "mode: Many"), 6, "endpoints[0].mode is 'Many'", "'MultiModel'"),
        (("s3://models/support", "gs://models"), 3, "location is 'gs://models'", "s3://BUCKET"),
        (("s3://models/support", "s3://models/../x"), 3, "location: the path", "below"),
        (("location: s3://models/support\n", ""), 4, "endpoints[0].location is None", "at the top"),
        (("stack: support", "stack: a/b"), 2, "stack is 'a/b'", "letters"),
        (("package: shop", "package: shop\n  - {name: SHOP, package: x}"), 7,
         "the endpoint SHOP is there twice", "without case"),
        (("package: shop", "mode: MultiModel\n    models: [{package: a, kind: b}]"), 7,
         "endpoints[0].models[0].package is 'a'", "not both"),
        (("package: shop", "mode: MultiModel\n    models: [{package: a*, as: b}]"), 7,
         "endpoints[0].models[0].as is 'b'", "many packages"),
        (("package: shop", "mode: MultiModel\n    models: [{package: a, as: ../b}]"), 7,
         "endpoints[0].models[0].as: the path '../b' is refused", "below"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_apply_file_is_told_as_well(
    tmp_path: Path, change: tuple[str, str], line: int, message: str, hint: str
) -> None:
    assert change[0] in APPLY
    write(tmp_path, {"apply.yaml": APPLY.replace(*change)})
    code, told, remedy = refused(tmp_path / "apply.yaml")
    assert code == "spec-invalid"
    assert told.startswith(f"{tmp_path / 'apply.yaml'}:{line}: {message}")
    assert hint in remedy


@pytest.mark.parametrize(
    "text",
    ["", "[]", "a: b: c", "a: 1\na: 2", "x: &x [1]\ny: *x", "!!python/object:os.system x", "\0"],
)
def test_what_is_no_plain_mapping_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"package.yaml": text})
    assert refused(tmp_path / "package.yaml")[0] == "spec-invalid"


@pytest.mark.parametrize(
    "rows",
    ["[]", "7", "{}", "[7]", "[{A: b}]", "[{a: 1}]", "{file: nothing.yaml}", "{file: ../x.yaml}"],
)
def test_rows_that_are_none_are_refused(tmp_path: Path, rows: str) -> None:
    write(tmp_path, {"package.yaml": f"{PACKAGE}for_each: {rows}\n"})
    code, message, _ = refused(tmp_path / "package.yaml")
    assert (code, ":6: for_each" in message) == ("spec-invalid", True)


def test_rows_of_another_file_are_a_list_there(tmp_path: Path) -> None:
    """A file that names itself leads to no end."""
    text = "schema: 1\nfor_each: {file: rows.yaml}\n"
    write(tmp_path, {"package.yaml": PACKAGE + "for_each: {file: rows.yaml}\n", "rows.yaml": text})
    code, message, _ = refused(tmp_path / "package.yaml")
    assert (code, "rows.yaml:2: for_each is {'file': 'rows.yaml'}" in message) == (
        "spec-invalid",
        True,
    )


def test_two_packages_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"package.yaml": PACKAGE + "for_each: [a, b]\n"})
    assert "the package echo is made twice" in refused(tmp_path / "package.yaml")[1]


def test_a_missing_file_and_a_folder_without_files_are_told(tmp_path: Path) -> None:
    assert refused(tmp_path / "package.yaml")[0] == "spec-not-found"
    assert refused(tmp_path)[0] == "spec-not-found"
    (tmp_path / "package.yaml").mkdir()
    assert refused(tmp_path / "package.yaml")[0] == "spec-unreadable"


def test_a_folder_is_all_its_apply_files(tmp_path: Path) -> None:
    other = APPLY.replace("shop", "search")
    write(tmp_path, {"b.yaml": APPLY, "a.yaml": other, "package.yaml": PACKAGE, "note.txt": "x"})
    names = [spec.endpoints[0].name for spec in read_apply(tmp_path)]
    assert names == ["search", "shop"]
