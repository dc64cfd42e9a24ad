"""Where members sit in rest-json and Query, on a small service made for it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.model import ServiceModel

from penstock.wire.aws import query, rest_json
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest, HttpResponse

STRINGS = {"type": "list", "member": {"shape": "Text"}}
SHAPES: dict[str, Any] = {
    "Text": {"type": "string"},
    "Number": {"type": "integer"},
    "Flag": {"type": "boolean"},
    "Moment": {"type": "timestamp"},
    "Json": {"type": "string", "jsonvalue": True},
    "Blob": {"type": "blob"},
    "Texts": STRINGS,
    "Numbers": {"type": "list", "member": {"shape": "Number"}, "max": 2},
    "Moments": {"type": "list", "member": {"shape": "Moment"}},
    "IsoMoment": {"type": "timestamp", "timestampFormat": "iso8601"},
    "IsoMoments": {"type": "list", "member": {"shape": "IsoMoment"}},
    "FlatTexts": {"type": "list", "member": {"shape": "Text"}, "flattened": True},
    "NamedTexts": {"type": "list", "member": {"shape": "Text", "locationName": "Item"}},
    "Map": {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Text"}},
    "FlatMap": {
        "type": "map",
        "key": {"shape": "Text", "locationName": "K"},
        "value": {"shape": "Text", "locationName": "V"},
        "flattened": True,
    },
    "ListMap": {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Texts"}},
    "Inner": {"type": "structure", "members": {"A": {"shape": "Number"}}},
    "Choice": {
        "type": "structure",
        "union": True,
        "members": {"A": {"shape": "Number"}, "B": {"shape": "Text"}},
    },
    "Located": {
        "type": "structure",
        "members": {
            "Name": {"shape": "Text", "location": "uri", "locationName": "Name"},
            "Number": {"shape": "Number", "location": "querystring", "locationName": "n"},
            "Numbers": {"shape": "Numbers", "location": "querystring", "locationName": "m"},
            "Header": {"shape": "Text", "location": "header", "locationName": "X-Header"},
            "Json": {
                "shape": "Json",
                "location": "header",
                "locationName": "X-Json",
                "jsonvalue": True,
            },
            "Texts": {"shape": "Texts", "location": "header", "locationName": "X-Texts"},
            "Numbers2": {"shape": "Numbers", "location": "header", "locationName": "X-Numbers"},
            "Moment": {"shape": "Moment", "location": "header", "locationName": "X-Moment"},
            "Moments": {"shape": "Moments", "location": "header", "locationName": "X-Moments"},
            "Iso": {"shape": "IsoMoments", "location": "header", "locationName": "X-Iso"},
            "Rest": {"shape": "Map", "location": "headers", "locationName": "X-Meta-"},
            "Status": {"shape": "Number", "location": "statusCode"},
            "InBody": {"shape": "Text"},
        },
    },
    "AllLocated": {
        "type": "structure",
        "members": {"Name": {"shape": "Text", "location": "uri", "locationName": "Name"}},
    },
    "WholeQuery": {
        "type": "structure",
        "members": {
            "All": {"shape": "Map", "location": "querystring"},
            "Lists": {"shape": "ListMap", "location": "querystring"},
        },
    },
    "TextBody": {
        "type": "structure",
        "payload": "Body",
        "members": {"Body": {"shape": "Text"}},
    },
    "BlobBody": {
        "type": "structure",
        "payload": "Body",
        "members": {"Body": {"shape": "Blob"}},
    },
    "NeededBlob": {
        "type": "structure",
        "payload": "Body",
        "required": ["Body"],
        "members": {"Body": {"shape": "Blob"}},
    },
    "InnerBody": {
        "type": "structure",
        "payload": "Body",
        "members": {"Body": {"shape": "Inner"}},
    },
    "OnlyHeader": {
        "type": "structure",
        "members": {"H": {"shape": "Text", "location": "header", "locationName": "Content-Type"}},
    },
    "Empty": {"type": "structure", "members": {}},
    "Form": {
        "type": "structure",
        "members": {
            "Text": {"shape": "Text"},
            "Texts": {"shape": "Texts"},
            "Numbers": {"shape": "Numbers"},
            "Flat": {"shape": "FlatTexts"},
            "Named": {"shape": "NamedTexts"},
            "Map": {"shape": "Map"},
            "FlatMap": {"shape": "FlatMap"},
            "Inner": {"shape": "Inner"},
            "Choice": {"shape": "Choice"},
            "Renamed": {"shape": "Number", "locationName": "Other"},
        },
    },
    "Broken": {
        "type": "structure",
        "exception": True,
        "error": {"httpStatusCode": 409},
        "members": {
            "Message": {"shape": "Text"},
            "Why": {"shape": "Number"},
            "Where": {"shape": "Text", "location": "header", "locationName": "X-Where"},
        },
    },
}


def operation(method: str, uri: str, shape: str | None, output: str | None = None) -> Any:
    made: dict[str, Any] = {"http": {"method": method, "requestUri": uri}}
    if shape is not None:
        made["input"] = {"shape": shape}
    if output is not None:
        made["output"] = {"shape": output}
    return made


OPERATIONS = {
    "Put": operation("PUT", "/things/{Name}", "Located", "Located"),
    "PutAll": operation("PUT", "/things/{Name}?all", "AllLocated", "Empty"),
    "Get": operation("GET", "/things", "WholeQuery", "OnlyHeader"),
    "GetOne": operation("GET", "/things/{Name}", "AllLocated"),
    "GetOwn": operation("GET", "/things/own", "TextBody", "TextBody"),
    "GetDeep": operation("GET", "/deep/{Name+}/end", "AllLocated"),
    "PostText": operation("POST", "/text", "TextBody", "BlobBody"),
    "PostBlob": operation("POST", "/blob", "BlobBody", "InnerBody"),
    "PostNeeded": operation("POST", "/needed", "NeededBlob"),
    "PostInner": operation("POST", "/inner", "InnerBody"),
    "PostNothing": operation("POST", "/nothing", None),
}
for each_name, each in OPERATIONS.items():
    each["name"] = each_name

REST = ServiceModel(
    {
        "metadata": {"protocol": "rest-json", "apiVersion": "1", "endpointPrefix": "x"},
        "operations": OPERATIONS,
        "shapes": SHAPES,
    },
    "rest",
)
QUERY = ServiceModel(
    {
        "metadata": {
            "protocol": "query",
            "apiVersion": "1",
            "endpointPrefix": "x",
            "xmlNamespace": "http://x/",
        },
        "operations": {"Do": operation("POST", "/", "Form", "Form") | {"name": "Do"}},
        "shapes": SHAPES,
    },
    "query",
)


def parsed(
    method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> Any:
    path, _, text = target.partition("?")
    return rest_json.parse_request(REST, HttpRequest(method, path, text, headers or {}, body))


def refusal(call: Any) -> AwsError:
    with pytest.raises(AwsError) as caught:
        call()
    return caught.value


def test_members_are_read_from_all_places_of_a_request() -> None:
    got = parsed(
        "PUT",
        "/things/a%2Fb?n=7&m=1&m=2&other=3",
        {
            "X-Header": " text ",
            "X-Json": "eyJhIjoxfQ==",
            "X-Texts": 'a, "b, \\"c\\"" , d',
            "X-Numbers": "1, 2",
            "X-Moment": "Thu, 29 Feb 2024 12:00:00 GMT",
            "X-Moments": "Thu, 29 Feb 2024 12:00:00 GMT, Thu, 01 Jan 1970 00:00:00 GMT",
            "X-Iso": "1970-01-01T00:00:01Z, 1970-01-01T00:00:02Z",
            "X-Meta-Color": "blue",
            "X-Meta-": "nothing",
        },
        b'{"InBody":"here","Header":"not from here"}',
    )
    assert got.operation.name == "Put"
    assert got.params == {
        "Name": "a/b",
        "Number": 7,
        "Numbers": [1, 2],
        "Header": "text",
        "Json": {"a": 1},
        "Texts": ["a", 'b, "c"', "d"],
        "Numbers2": [1, 2],
        "Moment": 1_709_208_000.0,
        "Moments": [1_709_208_000.0, 0.0],
        "Iso": [1.0, 2.0],
        "Rest": {"color": "blue"},
        "InBody": "here",
    }


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        ("a", ["a"]),
        (" a ,, b ", ["a", "", "b"]),
        ('"a","b"', ["a", "b"]),
        ('"a" x, b', ['"a" x', "b"]),
        ('"a, b', ['"a', "b"]),
        (r'"a\\", "\"b"', ["a\\", '"b']),
        ("a,", ["a"]),
    ],
)
def test_a_list_of_texts_in_a_header_may_be_quoted(text: str, items: list[str]) -> None:
    got = parsed("PUT", "/things/x", {"X-Texts": text}).params.get("Texts", [])
    assert got == items


def test_what_is_not_there_is_no_member() -> None:
    assert parsed("PUT", "/things/x").params == {"Name": "x", "Rest": {}}
    assert parsed("PUT", "/things/x?all", body=b"not read").params == {"Name": "x"}
    assert parsed("POST", "/nothing", body=b"not read").params == {}


def test_a_map_takes_the_whole_query() -> None:
    assert parsed("GET", "/things?a=1&b=2&a=3").params == {
        "All": {"a": "1", "b": "2"},
        "Lists": {"a": ["1", "3"], "b": ["2"]},
    }
    assert parsed("GET", "/things").params == {}


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        ("GET", "/things", "Get"),
        ("GET", "/things/own", "GetOwn"),
        ("GET", "/things/other", "GetOne"),
        ("PUT", "/things/own", "Put"),
        ("PUT", "/things/own?all", "PutAll"),
        ("PUT", "/things/own?all=1", "Put"),
        ("GET", "/deep/a/end", "GetDeep"),
        ("GET", "/deep/a/b/c/end", "GetDeep"),
    ],
)
def test_the_operation_that_says_most_of_a_path_is_meant(
    method: str, target: str, name: str
) -> None:
    assert parsed(method, target).operation.name == name


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/things/"),
        ("PUT", "/things/"),
        ("PUT", "/things/a/b"),
        ("POST", "/things"),
        ("GET", "/deep/end"),
        ("GET", "/deep//end"),
        ("GET", "/deep/a"),
        ("GET", "/deep"),
    ],
)
def test_any_other_path_is_no_operation(method: str, target: str) -> None:
    error = refusal(lambda: parsed(method, target))
    assert (error.code, error.status) == ("UnknownOperationException", 404)


def test_labels_of_many_segments_keep_their_slashes() -> None:
    assert parsed("GET", "/deep/a/b%2Fc/end").params == {"Name": "a/b/c"}


def test_a_query_without_a_value_has_an_empty_one() -> None:
    assert rest_json.parse_query("") == {}
    assert rest_json.parse_query("a&b=&c=d=e&a=x+y%26") == {
        "a": ["", "x y&"],
        "b": [""],
        "c": ["d=e"],
    }


@pytest.mark.parametrize(
    ("target", "body", "params"),
    [
        ("/text", b"", {}),
        ("/text", "é".encode(), {"Body": "é"}),
        ("/blob", b"", {}),
        ("/blob", b"\xff", {"Body": b"\xff"}),
        ("/needed", b"", {"Body": b""}),
        ("/inner", b"", {}),
        ("/inner", b'{"A":1}', {"Body": {"A": 1}}),
    ],
)
def test_a_body_that_is_one_member_is_that_member(
    target: str, body: bytes, params: dict[str, Any]
) -> None:
    assert parsed("POST", target, body=body).params == params


def test_what_can_not_be_read_is_refused() -> None:
    assert refusal(lambda: parsed("POST", "/text", body=b"\xff")).code == "SerializationException"
    for value in ("!", "e30", "e3s="):
        error = refusal(lambda: parsed("PUT", "/things/x", {"X-Json": value}))  # noqa: B023
        assert "At 'Json': expected JSON in base64" in error.message


# Answers


def answered(name: str, result: dict[str, Any]) -> HttpResponse:
    return rest_json.serialize_response(REST.operation_model(name), result, request_id="r")


def test_members_are_written_to_all_places_of_an_answer() -> None:
    response = answered(
        "Put",
        {
            "Header": "text",
            "Json": {"a": 1},
            "Texts": ["a", 'b "c"', "d, e", "f\\"],
            "Numbers2": [1, 2],
            "Moment": 0,
            "Iso": [1],
            "Rest": {"color": "blue"},
            "Status": 202,
            "InBody": "here",
        },
    )
    assert response == HttpResponse(
        202,
        [
            ("x-amzn-RequestId", "r"),
            ("X-Header", "text"),
            ("X-Json", "eyJhIjoxfQ=="),
            ("X-Texts", 'a, "b \\"c\\"", "d, e", f\\'),
            ("X-Numbers", "1, 2"),
            ("X-Moment", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("X-Iso", "1970-01-01T00:00:01Z"),
            ("X-Meta-color", "blue"),
            ("Content-Type", "application/json"),
        ],
        b'{"InBody":"here"}',
    )


def test_what_has_no_value_is_not_written() -> None:
    response = answered("Put", {"Header": None, "Texts": [], "Status": None, "InBody": None})
    assert response == HttpResponse(
        200, [("x-amzn-RequestId", "r"), ("Content-Type", "application/json")], b"{}"
    )


@pytest.mark.parametrize(
    ("name", "result", "content_type", "body"),
    [
        ("PutAll", {}, "application/json", b"{}"),
        ("Get", {}, None, b""),
        ("Get", {"H": "a/b"}, "a/b", b""),
        ("GetOwn", {"Body": "é"}, "text/plain", "é".encode()),
        ("GetOwn", {}, None, b""),
        ("PostText", {"Body": b"\xff"}, "application/octet-stream", b"\xff"),
        ("PostBlob", {"Body": {"A": 1}}, "application/json", b'{"A":1}'),
        ("PostNeeded", {}, None, b""),
    ],
)
def test_a_body_has_the_type_of_what_it_is(
    name: str, result: dict[str, Any], content_type: str | None, body: bytes
) -> None:
    response = answered(name, result)
    given = [value for header, value in response.headers if header == "Content-Type"]
    assert (given, response.body) == ([] if content_type is None else [content_type], body)
    assert response.status == 200


def test_an_error_has_its_members_where_its_shape_says() -> None:
    error = AwsError("Broken", "Why?", members={"Why": 7, "Where": "there", "Other": "kept"})
    assert rest_json.serialize_error(REST, error, request_id="r") == HttpResponse(
        409,
        [
            ("Content-Type", "application/json"),
            ("x-amzn-RequestId", "r"),
            ("x-amzn-ErrorType", "Broken"),
            ("X-Where", "there"),
        ],
        b'{"Message":"Why?","Other":"kept","Why":7}',
    )
    plain = rest_json.serialize_error(REST, AwsError("Unheard", ""), request_id="r")
    assert (plain.status, plain.body) == (400, b"{}")


# Query


def form(text: str) -> dict[str, Any]:
    http = HttpRequest("POST", "/", "", {}, f"Action=Do&{text}".encode())
    params: dict[str, Any] = query.parse_request(QUERY, http).params
    return params


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("Text=a+b%26", {"Text": "a b&"}),
        ("Text=", {"Text": ""}),
        ("Text=first&Text=last", {"Text": "last"}),
        ("Other=7&Renamed=8", {"Renamed": 7}),
        ("Unknown.1=x", {}),
        ("Texts.member.2=b&Texts.member.1=a", {"Texts": ["a", "b"]}),
        ("Texts.member.10=b&Texts.member.9=a", {"Texts": ["a", "b"]}),
        ("Texts.member.123456789=a", {"Texts": ["a"]}),
        ("Texts=", {"Texts": []}),
        ("Numbers.member.1=1&Numbers.member.2=2&Numbers.member.3=3&Numbers.member.4=x",
         {"Numbers": [1, 2, 3]}),
        ("Flat.1=a&Flat.2=b", {"Flat": ["a", "b"]}),
        ("Named.Item.1=a", {"Named": ["a"]}),
        ("Named.member.1=a", {"Named": ["a"]}),
        ("Map.entry.1.key=a&Map.entry.1.value=b", {"Map": {"a": "b"}}),
        ("Map=", {"Map": {}}),
        ("FlatMap.1.K=a&FlatMap.1.V=b&FlatMap.2.K=c&FlatMap.2.V=",
         {"FlatMap": {"a": "b", "c": ""}}),
        ("Inner.A=1", {"Inner": {"A": 1}}),
        ("Choice.B=x", {"Choice": {"B": "x"}}),
    ],
)  # fmt: skip
def test_a_form_is_read_by_its_dotted_names(text: str, params: dict[str, Any]) -> None:
    assert form(text) == params


@pytest.mark.parametrize(
    "text",
    [
        "Text.1=a",
        "Texts=a",
        "Texts.1=a",
        "Texts.member.x=a",
        "Texts.member.-1=a",
        "Texts.member.1234567890=a",
        "Numbers.member.1=x",
        "Map.1.key=a",
        "Map.entry.1.key=a",
        "Map.entry.1.value=a",
        "Map.entry.1.key.x=a&Map.entry.1.value=b",
        "Choice.A=1&Choice.B=x",
        "Choice.C=1",
    ],
)
def test_any_other_form_is_refused(text: str) -> None:
    assert refusal(lambda: form(text)).code == "SerializationException"


@pytest.mark.parametrize(("dots", "fits"), [(40, True), (41, False)])
def test_a_name_has_so_many_dots_at_most(dots: int, fits: bool) -> None:
    name = ".".join(["a"] * (dots + 1))
    if fits:
        assert form(f"{name}=1") == {}
    else:
        assert "more than 40 parts" in refusal(lambda: form(f"{name}=1")).message


@pytest.mark.parametrize(("fields", "fits"), [(40_000, True), (40_001, False)])
def test_a_form_has_so_many_fields_at_most(fields: int, fits: bool) -> None:
    text = "Text=1" + "&Text=2" * (fields - 2)
    if fits:
        assert form(text) == {"Text": "2"}
    else:
        assert "more than 40000 fields" in refusal(lambda: form(text)).message


@pytest.mark.parametrize(("parts", "fits"), [(80_000, True), (80_001, False)])
def test_names_have_so_many_parts_at_most(parts: int, fits: bool) -> None:
    """Each of these has two of its own, and `Action` is one."""
    text = "&".join(f"{n}.x.y=" for n in range((parts - 1) // 3))
    text += "".join(f"&z{n}=" for n in range((parts - 1) % 3))
    if fits:
        assert form(text) == {}
    else:
        assert "more than 80000 parts" in refusal(lambda: form(text)).message


def test_an_answer_names_its_elements_as_the_shapes_do() -> None:
    response = query.serialize_response(
        QUERY.operation_model("Do"),
        {
            "Text": "a<b&\x00\r",
            "Texts": ["a"],
            "Flat": ["a", "b"],
            "Named": ["a"],
            "Map": {"k": "v"},
            "FlatMap": {"k": "v"},
            "Inner": {"A": 1},
            "Renamed": 7,
            "Choice": None,
        },
        request_id="r&",
    )
    assert response == HttpResponse(
        200,
        [("Content-Type", "text/xml"), ("x-amzn-RequestId", "r&")],
        '<DoResponse xmlns="http://x/"><DoResult><Text>a&lt;b&amp;\ufffd&#13;</Text>'
        "<Texts><member>a</member></Texts><Flat>a</Flat><Flat>b</Flat>"
        "<Named><Item>a</Item></Named><Map><entry><key>k</key><value>v</value></entry></Map>"
        "<FlatMap><K>k</K><V>v</V></FlatMap><Inner><A>1</A></Inner><Other>7</Other></DoResult>"
        "<ResponseMetadata><RequestId>r&amp;</RequestId></ResponseMetadata></DoResponse>".encode(),
    )


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (AwsError("Broken", "Why?", members={"Why": 7, "Other": 1}), 409,
         "<Type>Sender</Type><Code>Broken</Code><Message>Why?</Message><Why>7</Why>"),
        (AwsError("Unheard", status=503), 503, "<Type>Receiver</Type><Code>Unheard</Code>"),
        (AwsError("Ours", sender=False), 500, "<Type>Receiver</Type><Code>Ours</Code>"),
    ],
)  # fmt: skip
def test_an_error_says_whose_fault_it_is(error: AwsError, status: int, text: str) -> None:
    response = query.serialize_error(QUERY, error, request_id="r")
    assert response.status == status
    assert response.body.decode() == (
        f'<ErrorResponse xmlns="http://x/"><Error>{text}</Error><RequestId>r</RequestId>'
        "</ErrorResponse>"
    )
