"""The server side of AWS's wire protocols, over the service models that botocore ships.

It turns bytes into values and values into bytes; nothing here opens a socket, reads a clock or
knows what an operation does. A request passes through these modules in this order:

    http       the request and the answer as plain values, gzip bodies inflated within a bound
    sigv4      who signed it (`bearer` for tokens that wrap a signed URL)
    models     the service model to read it with
    json_rpc, rest_json, query     one protocol each: `parse_request`, `serialize_response`,
               `serialize_error`
    validate   AWS's constraint texts
    eventstream    frames of a streamed answer

Every refusal is an `errors.AwsError`.
"""
