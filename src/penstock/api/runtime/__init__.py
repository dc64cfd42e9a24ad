"""SageMaker Runtime: InvokeEndpoint in its three forms, and what of it several doors share."""
