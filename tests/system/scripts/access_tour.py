"""What an unmodified boto3 of any version sees of a server that asks for credentials.

Run by tests/system/test_access.py in the client's own environment:
access_tour.py URL ENDPOINT KEY_ID SECRET. Prints one JSON object: service -> case -> what came.
"""

import datetime
import json
import sys

import boto3
import botocore.auth
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

url, endpoint, key_id, secret = sys.argv[1:5]
CALLS = {
    "sagemaker": lambda client: client.list_endpoints(),
    "sagemaker-runtime": lambda client: client.invoke_endpoint(
        EndpointName=endpoint,
        ContentType="application/json",
        CustomAttributes="a=1;  b=2",
        Body=b"[1.0]",
    ),
    "cloudwatch": lambda client: client.list_metrics(),
}


def client_of(service, key=key_id, secret_key=secret, **config):
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret_key,
        config=Config(retries={"max_attempts": 0}, **config),
    )


def tried(call):
    """ "ok", or the code that the client raises and the HTTP status."""
    try:
        call()
    except ClientError as error:
        return [
            error.response["Error"]["Code"],
            error.response["ResponseMetadata"]["HTTPStatusCode"],
        ]
    return "ok"


def tampered(service):
    """A client whose requests change behind the signature."""
    client = client_of(service)

    client.meta.events.register("before-send.*", change_url)
    return client


def change_url(request, **_):
    request.url += "?changed=1"


def with_clock_off(minutes, call):
    """Runs the call while the signer's clock is wrong; how it reads the time differs by version."""
    off = datetime.timedelta(minutes=minutes)
    if hasattr(botocore.auth, "get_current_datetime"):
        real = botocore.auth.get_current_datetime
        botocore.auth.get_current_datetime = lambda *args, **options: real(*args, **options) + off
        try:
            return call()
        finally:
            botocore.auth.get_current_datetime = real
    real = botocore.auth.datetime

    class SkewedClock:
        class datetime(datetime.datetime):
            @classmethod
            def utcnow(cls):
                return real.datetime.utcnow() + off

    botocore.auth.datetime = SkewedClock
    try:
        return call()
    finally:
        botocore.auth.datetime = real


def cases(name):
    def call(client):
        return CALLS[name](client)

    return {
        "right": tried(lambda: call(client_of(name))),
        "wrong secret": tried(lambda: call(client_of(name, secret_key="wrong"))),
        "unknown key": tried(lambda: call(client_of(name, key="AKIANOBODY"))),
        "unsigned": tried(lambda: call(client_of(name, signature_version=UNSIGNED))),
        "changed on its way": tried(lambda: call(tampered(name))),
        "clock 10 min late": tried(lambda: with_clock_off(-10, lambda: call(client_of(name)))),
        "clock 10 min early": tried(lambda: with_clock_off(10, lambda: call(client_of(name)))),
    }


seen = {name: cases(name) for name in CALLS}
metrics = [
    {"MetricName": "Clicks", "Value": float(n), "Dimensions": [{"Name": "Page", "Value": "x" * 99}]}
    for n in range(300)
]
sent = []
cloudwatch = client_of("cloudwatch")
cloudwatch.meta.events.register(
    "before-send.*", lambda request, **_: sent.append(request.headers.get("Content-Encoding"))
)
stored = tried(lambda: cloudwatch.put_metric_data(Namespace="Zipped", MetricData=metrics))
seen["gzip"] = [sent[0] if isinstance(sent[0], str) else (sent[0] or b"").decode(), stored]
print(json.dumps(seen))
